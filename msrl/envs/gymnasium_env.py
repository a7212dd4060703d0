"""Gymnasium's environments as a batch on the host, stepped one after another in Python.

In: an id that `gymnasium.make` knows. The batch resets in the same step, and `final_obs` is what the episode ended on.
It always holds that an end is one of terminated and truncated: where a library says both, the terminal state wins.
"""

import importlib
import importlib.util
from typing import Any

import gymnasium
import numpy as np

from msrl.api.env import EnvSpec
from msrl.envs.batch import Batch
from msrl.envs.host import HostEnv
from msrl.envs.rows import Found, One, Rows
from msrl.envs.spaces import codec
from msrl.errors import EnvError


class GymnasiumEnv(HostEnv):
    """`gymnasium:<name>`. Unknown names raise gymnasium.error.UnregisteredEnv, for `make` to suggest others."""

    def __init__(self, name: str):
        super().__init__(name)
        env = _make(name)
        full = f"gymnasium:{name}"
        self._observation = codec(env.observation_space, role="observation", env=full)
        self._action = codec(env.action_space, role="action", env=full)
        limit = env.spec.max_episode_steps
        self.spec = EnvSpec(full, self._observation.space, self._action.space, max_episode_steps=limit)
        env.close()

    def open(self, num_envs: int) -> Batch:
        return Rows(lambda: _One(self.name), num_envs, self._observation.decode, self._action.encode)


def _make(name: str) -> gymnasium.Env:
    """One environment, for its spaces; or an error that says what to install."""
    module, colon, registered = name.rpartition(":")
    try:
        if colon:  # module:id, where importing the module registers the id
            importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"gymnasium:{name} cannot be made.", why=f"Importing {module!r} fails: {error}.") from error
    entry = gymnasium.spec(registered).entry_point
    if str(entry).startswith("gymnasium.envs.mujoco") and importlib.util.find_spec("mujoco") is None:
        raise EnvError(
            f"gymnasium:{name} needs MuJoCo, which is not installed.",
            why="It is an extra, as it is large and many environments do without it.",
            instead="Run: pip install 'msrl[mujoco]'",
        )
    try:
        return gymnasium.make(name)
    except (ImportError, gymnasium.error.DependencyNotInstalled, gymnasium.error.DeprecatedEnv) as error:
        raise EnvError(f"gymnasium:{name} cannot be made.", why=f"Gymnasium says: {error}") from error


class _One(One):
    def __init__(self, name: str):
        self._env = gymnasium.make(name)

    def begin(self, seed: int) -> Any:
        self.start, self.actions = seed, []
        obs, _ = self._env.reset(seed=seed)
        return obs

    def rebegin(self, start: Any) -> Any:
        if isinstance(start, int):
            return self.begin(start)
        self._generator.state = start
        return self._reset()

    def step(self, action: Any) -> Found:
        self.actions.append(np.array(action))
        obs, reward, terminated, truncated, _ = self._env.step(action)
        if not (terminated or truncated):
            return obs, reward, False, False, obs
        last = np.array(obs)  # some reuse their array as they reset
        return self._reset(), reward, terminated, truncated, last

    def close(self) -> None:
        self._env.close()

    @property
    def _generator(self) -> Any:
        return self._env.unwrapped.np_random.bit_generator

    def _reset(self) -> Any:
        self.start, self.actions = self._generator.state, []
        obs, _ = self._env.reset()
        return obs
