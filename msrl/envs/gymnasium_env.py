"""Gymnasium's environments as a batch on the host, stepped one after another in Python.

In: an id that `gymnasium.make` knows. The batch resets in the same step, and `final_obs` is what the episode ended on.
It always holds that an end is one of terminated and truncated: where a library says both, the terminal state wins.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from msrl.api.env import EnvSpec, Step
from msrl.envs.batch import Batch, flat, plain, ragged, text
from msrl.envs.host import HostEnv
from msrl.envs.spaces import Codec, codec
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
        return _Vector(self.name, num_envs, self._observation, self._action)


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


class _Fresh(gymnasium.ObservationWrapper):
    """Copies observations: an environment that reuses its array would overwrite the final one as it resets."""

    def observation(self, observation):
        return np.array(observation)


class _Remembered(gymnasium.Wrapper):
    """Knows what led to its state: the seed, or the generator before the last reset, and the actions since then."""

    start: Any = None
    actions: ClassVar[list[np.ndarray]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.start = self.unwrapped.np_random.bit_generator.state if seed is None else int(seed)
        self.actions = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        self.actions.append(np.array(action))
        return self.env.step(action)

    def repeat(self, start: Any, actions: np.ndarray) -> Any:
        """Comes to the same state again: its observation."""
        if isinstance(start, int):
            obs, _ = self.reset(seed=start)
        else:
            self.unwrapped.np_random.bit_generator.state = start
            obs, _ = self.reset()
        for action in actions:
            obs, *_ = self.step(action[()])
        return obs


class _Vector(Batch):
    exact = False  # each environment knows what led to it

    def __init__(self, name: str, num_envs: int, observation: Codec, action: Codec):
        self._observation, self._action = observation, action
        same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self._envs = gymnasium.make_vec(
            name, num_envs=num_envs, vectorization_mode="sync", vector_kwargs=same_step, wrappers=[_Fresh, _Remembered]
        )

    def __len__(self) -> int:
        return self._envs.num_envs

    def reset(self, seeds: list[int]) -> np.ndarray:
        obs, _ = self._envs.reset(seed=seeds)
        return self._observation.decode(obs)

    def step(self, action: np.ndarray) -> Step:
        obs, reward, terminated, truncated, info = self._envs.step(self._action.encode(action))
        obs = self._observation.decode(obs)
        final = obs
        if "final_obs" in info:
            ended = info["_final_obs"]  # (B,) bool
            final = obs.copy()
            final[ended] = self._observation.decode(np.stack(list(info["final_obs"][ended])))
        return Step(obs, reward.astype(np.float32), terminated, truncated & ~terminated, final)

    def mark(self) -> Any:
        return None if self.cut else [(env.start, env.actions, len(env.actions)) for env in self._envs.envs]

    def history(self, mark: Any) -> dict[str, np.ndarray]:
        return {"starts": text([start for start, _, _ in mark]),
                **flat([actions[:count] for _, actions, count in mark])}

    def replay(self, seeds: list[int], saved: Mapping[str, np.ndarray]) -> bool:
        if "starts" not in saved:
            return False
        self.begin(seeds)
        found = [env.repeat(start, actions) for env, start, actions in
                 zip(self._envs.envs, plain(saved["starts"]), ragged(saved), strict=True)]
        self.obs = self._observation.decode(np.stack(found))
        return True

    def close(self) -> None:
        self._envs.close()
