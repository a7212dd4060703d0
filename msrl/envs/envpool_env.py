"""EnvPool's environments: a batch on the host, stepped by a pool of C++ threads.

In: an id of `envpool.list_all_envs()`. Left alone, EnvPool resets an environment in the step *after* its episode's end
and ignores that step's action. Here the ended ones are reset at once, in a second call for them alone, so that no
action is ignored; at an episode's end that costs what the reset costs, and nothing in the other steps.
"""

import importlib.util
import warnings
from threading import Lock
from types import ModuleType

import numpy as np
from gymnasium import spaces

from msrl.api.env import EnvSpec, Step
from msrl.envs.batch import Batch
from msrl.envs.host import HostEnv
from msrl.envs.spaces import Codec, codec
from msrl.errors import EnvError

# EnvPool calls every end at the time limit a truncation, even one in a terminal state. In these families the limit is a
# mere stop watch, so we give it a limit that is one longer and hold the watch ourselves. Elsewhere (rewards that are a
# fraction of the limit, say) the environment would change with it.
_STOP_WATCH = {
    "envpool.atari", "envpool.box2d", "envpool.classic_control", "envpool.mujoco.gym", "envpool.toy_text",
}
_NO_LIMIT = 2**31 - 1
_QUIET = Lock()  # what a process ignores, all its threads do: they take turns


def installed() -> bool:
    return importlib.util.find_spec("envpool") is not None


def names() -> list[str]:
    """The ids that EnvPool has, if it is installed."""
    return _envpool().list_all_envs() if installed() else []


def _envpool() -> ModuleType:
    if not installed():
        raise EnvError(
            "envpool: environments need EnvPool, which is not installed.",
            why="It is an extra, as it is large and not made for every platform.",
            instead="Run: pip install 'msrl[envpool]'",
        )
    import envpool

    return envpool


class EnvPoolEnv(HostEnv):
    """`envpool:<name>`, for a name out of `names()`."""

    def __init__(self, name: str):
        super().__init__(name)
        full = f"envpool:{name}"
        envpool = _envpool()
        try:
            with warnings.catch_warnings():  # of bounds that lose precision as they become float32
                warnings.simplefilter("ignore")
                spec = envpool.make_spec(name)
                observation, action = spec.observation_space, spec.action_space
        except ImportError as error:
            raise EnvError(f"{full} cannot be made.", why=f"EnvPool says: {error}") from error
        if spec.config.max_num_players > 1:
            raise EnvError(
                f"{full} is a game of up to {spec.config.max_num_players} players.",
                why="EnvPool gives its players' observations in batches of changing size; here a batch has one size.",
                instead="Environments of several agents come from PettingZoo (pettingzoo:mpe2.simple_spread_v3) or are "
                "built in (simple_spread, simple_tag).",
            )
        self._channels_first = _is_channels_first(observation)
        self._observation = codec(_channels_last(observation) if self._channels_first else observation,
                                  role="observation", env=full)
        self._action = codec(action, role="action", env=full)
        limit = spec.config.max_episode_steps
        self._limit = limit if 0 < limit < _NO_LIMIT else None
        self._stop_watch = self._limit if envpool.registration.registry.specs[name][0] in _STOP_WATCH else None
        self.spec = EnvSpec(full, self._observation.space, self._action.space, max_episode_steps=self._limit)

    def probe(self) -> None:
        """Its environments and their spaces are made by one program: there is nothing to find out."""

    def open(self, num_envs: int) -> Batch:
        return _Pool(self.name, num_envs, self._observation, self._action, self._stop_watch, self._channels_first)


def _is_channels_first(space: spaces.Space) -> bool:
    return (isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
            and space.shape[0] < min(space.shape[1:]))


def _channels_last(space: spaces.Box) -> spaces.Box:
    return spaces.Box(np.moveaxis(space.low, 0, -1), np.moveaxis(space.high, 0, -1), dtype=np.uint8)


class _Pool(Batch):
    def __init__(self, name: str, num_envs: int, observation: Codec, action: Codec, stop_watch: int | None,
                 channels_first: bool):
        self._name, self._num_envs = name, num_envs
        self._observation, self._action = observation, action
        self._stop_watch, self._channels_first = stop_watch, channels_first
        self._pool = None

    def __len__(self) -> int:
        return self._num_envs

    def reset(self, seeds: list[int]) -> np.ndarray:
        self.close()
        # EnvPool takes seeds only as it is built, and building 64 HalfCheetahs takes 0.2 s.
        limit = {"max_episode_steps": self._stop_watch + 1} if self._stop_watch else {}
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pool = _envpool().make(
                self._name, env_type="gymnasium", num_envs=self._num_envs, seed=seeds, **limit
            )
            obs, _ = self._pool.reset()
        return self._decode(obs)

    def step(self, action: np.ndarray) -> Step:
        assert self._pool is not None, "an environment is reset before it is stepped"
        obs, reward, terminated, truncated, info = self._pool.step(self._action.encode(action))
        if self._stop_watch:
            truncated = info["elapsed_step"] >= self._stop_watch
        truncated = truncated & ~terminated
        final = obs = self._decode(obs)
        ended = np.flatnonzero(terminated | truncated)
        if ended.size:
            first, info = self._pool.reset(ended.astype(np.int32))
            obs = final.copy()
            obs[info["env_id"]] = self._decode(first)
        return Step(obs, reward.astype(np.float32), terminated, truncated, final)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _decode(self, obs: np.ndarray) -> np.ndarray:
        """Images are (H, W, C) everywhere, as convolutions in JAX have them."""
        return self._observation.decode(np.ascontiguousarray(np.moveaxis(obs, 1, -1)) if self._channels_first else obs)
