"""Gymnasium's environments as a batch on the host, stepped one after another in Python.

In: an id that `gymnasium.make` knows, or a way to make one. The batch resets in the same step, and `final_obs` is what
the episode ended on.
It always holds that an end is one of terminated and truncated: where a library says both, the terminal state wins.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from msrl.api.env import EnvSpec
from msrl.envs.batch import Batch
from msrl.envs.contract import Promise
from msrl.envs.host import HostEnv
from msrl.envs.rows import Found, One, Rows
from msrl.envs.spaces import codec
from msrl.errors import EnvError
from msrl.tracebacks import author_span


class GymnasiumEnv(HostEnv):
    """`gymnasium:<name>`; or `object:<name>`, made by a factory. Unknown names raise gymnasium.error.UnregisteredEnv,
    for `make` to suggest others."""

    def __init__(self, name: str, factory: Callable[[], gymnasium.Env] | None = None):
        super().__init__(name)
        self.factory = factory
        env = _make(name) if factory is None else factory()
        self.kind = type(env.unwrapped)
        full = f"gymnasium:{name}" if factory is None else f"object:{name}"
        self._observation = codec(env.observation_space, role="observation", env=full)
        self._action = codec(env.action_space, role="action", env=full)
        limit = env.spec.max_episode_steps if env.spec else None
        self.spec = EnvSpec(full, self._observation.space, self._action.space, max_episode_steps=limit)
        env.close()

    def __reduce__(self):
        made, _, settings = super().__reduce__()
        return made, (self.name, self.factory), settings

    def open(self, num_envs: int) -> Batch:
        make = self.factory or partial(gymnasium.make, self.name, disable_env_checker=True)
        return Rows(lambda: _One(make()), num_envs, self._observation.decode, self._action.encode)


def _make(name: str) -> gymnasium.Env:
    """One environment, for its spaces; or an error that says what to install."""
    module, colon, registered = name.rpartition(":")
    full = f"gymnasium:{name}"
    try:
        if colon:  # module:id, where importing the module registers the id
            importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"{full} cannot be made.", why=f"Importing {module!r} fails: {error}.") from error
    try:
        entry = gymnasium.spec(registered).entry_point
        if str(entry).startswith("gymnasium.envs.mujoco") and importlib.util.find_spec("mujoco") is None:
            raise EnvError(
                f"{full} needs MuJoCo, which is not installed.",
                why="It is an extra, as it is large and many environments do without it.",
                instead="Run: pip install 'msrl[mujoco]'",
            )
        # What Gymnasium's checker asks is asked here in every step (contract.py), and answered with the class's line.
        return gymnasium.make(name, disable_env_checker=True)
    except (EnvError, gymnasium.error.UnregisteredEnv):
        raise
    except (ImportError, gymnasium.error.Error) as error:
        if type(error) is gymnasium.error.Error and registered not in gymnasium.registry:  # CartPole without -v1
            raise gymnasium.error.UnregisteredEnv(str(error)) from error
        raise EnvError(f"{full} cannot be made.", why=f"Gymnasium says: {error}") from error
    except Exception as error:  # of its constructor
        raise EnvError(f"{full} cannot be made: {type(error).__name__}.", span=author_span(error), why=str(error)
                       ) from error


class _One(One):
    def __init__(self, env: gymnasium.Env):
        self._env, self._promise = env, Promise(type(env.unwrapped), env.observation_space)

    def begin(self, seed: int) -> Any:
        self.start, self.actions = seed, []
        return self._promise.began(self._env.reset(seed=seed))

    def rebegin(self, start: Any) -> Any:
        if isinstance(start, int):
            return self.begin(start)
        self._generator.state = start
        return self._reset()

    def step(self, action: Any) -> Found:
        self.actions.append(np.array(action))
        obs, reward, terminated, truncated = self._promise.stepped(self._env.step(action))
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
        return self._promise.began(self._env.reset())
