"""PettingZoo's parallel environments: B copies on the host, stepped one after another in Python.

In: the path of a module with a `parallel_env()`. Out: observations (B, N, O), padded with zeros at the end where agents
see less than the widest one; actions and rewards (B, N, ...). An episode ends when its last agent has: terminated if
all of them ended in a terminal state, truncated otherwise. An agent that ends before the others has zeros for its
observations and rewards from then on, and its actions are dropped.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from msrl.api.env import EnvSpec, Step
from msrl.api.spaces import Box
from msrl.envs.batch import Batch, flat, plain, ragged, text
from msrl.envs.host import HostEnv
from msrl.envs.spaces import Codec, codec
from msrl.errors import EnvError


class PettingZooEnv(HostEnv):
    """`pettingzoo:<module>`, such as pettingzoo:mpe2.simple_spread_v3."""

    def __init__(self, name: str):
        super().__init__(name)
        env = _module(name).parallel_env()
        agents = tuple(env.possible_agents)
        self._observations, observation = _pad([env.observation_space(agent) for agent in agents], self.id)
        self._action = _shared([env.action_space(agent) for agent in agents], self.id)
        # Where PettingZoo's environments keep their time limit, if they have one; it is told to nobody else.
        limit = getattr(env.unwrapped, "max_cycles", None)
        self.spec = EnvSpec(self.id, observation, self._action.space, agents, limit)
        env.close()

    @property
    def id(self) -> str:
        return f"pettingzoo:{self.name}"

    def open(self, num_envs: int) -> Batch:
        return _Copies(self.name, num_envs, self.spec, self._observations, self._action)


def _module(name: str) -> ModuleType:
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        if package in ("mpe2", "pettingzoo"):
            raise EnvError(
                f"pettingzoo:{name} needs {package}, which is not installed.",
                why="Environments of PettingZoo are an extra.",
                instead="Run: pip install 'msrl[marl]'",
            )
        raise _no_such(name, f"No package {package!r} is installed.")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise _no_such(name, f"Importing it fails: {error}.") from error
    if not callable(getattr(module, "parallel_env", None)):
        raise _no_such(name, "The module has no parallel_env().")
    return module


def _no_such(name: str, why: str) -> EnvError:
    return EnvError(
        f"There is no PettingZoo environment {name!r}.",
        why=why,
        instead="Write the path of a module that has one, such as pettingzoo:mpe2.simple_spread_v3.",
    )


def _pad(observations: list[Any], env: str) -> tuple[list[Codec], Box]:
    """A codec per agent, and the space that all of them fit into."""
    codecs = [codec(space, role="observation", env=env) for space in observations]
    own = [entry.space for entry in codecs]
    if all(space == own[0] for space in own) and isinstance(own[0], Box):
        return codecs, own[0]
    if all(isinstance(space, Box) and len(space.shape) == 1 and space.dtype == own[0].dtype for space in own):
        return codecs, Box((max(space.shape[0] for space in own),), dtype=own[0].dtype)
    raise EnvError(
        f"{env} has agents that observe {', '.join(dict.fromkeys(str(space) for space in own))}.",
        why="All agents' observations make one array: equal Boxes, or vectors that are padded to the longest.",
        instead="Wrap the environment so that its agents observe vectors, in a module with a parallel_env().",
    )


def _shared(actions: list[Any], env: str) -> Codec:
    if any(space != actions[0] for space in actions):
        raise EnvError(
            f"{env} has agents with the action spaces {', '.join(dict.fromkeys(str(space) for space in actions))}.",
            why="All agents' actions make one array, so they must be the same Discrete or Box.",
            instead="Wrap the environment so that all agents have the widest one, in a module with a parallel_env().",
        )
    return codec(actions[0], role="action", env=env)


class _Copies(Batch):
    exact = False  # what led to each copy is kept here

    def __init__(self, name: str, num_envs: int, spec: EnvSpec, observations: list[Codec], action: Codec):
        make = _module(name).parallel_env
        self._envs = [make() for _ in range(num_envs)]
        self._agents, self._action = spec.agents, action
        self._observations = dict(zip(spec.agents, observations, strict=True))
        self._shape, self._dtype = spec.batch(spec.observation, num_envs), spec.observation.dtype
        self._random: list[np.random.Generator] = []
        self._all_terminal = [True] * num_envs  # of the agents that ended in this episode
        self._starts = [0] * num_envs  # the seeds of the present episodes
        self._since: list[list[np.ndarray]] = [[] for _ in range(num_envs)]  # the actions since then, encoded

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self, seeds: list[int]) -> np.ndarray:
        self._random = [np.random.default_rng(seed) for seed in seeds]
        obs = np.zeros(self._shape, self._dtype)
        for row in range(len(self)):
            self._restart(row, obs)
        return obs

    def step(self, action: np.ndarray) -> Step:
        action = self._action.encode(action)  # (B, N, ...)
        obs, final = np.zeros(self._shape, self._dtype), np.zeros(self._shape, self._dtype)
        reward = np.zeros(self._shape[:2], np.float32)
        terminated, truncated = np.zeros(len(self), bool), np.zeros(len(self), bool)
        for row, env in enumerate(self._envs):
            alive = set(env.agents)
            seen, rewards = self._act(row, action[row])
            for i, agent in enumerate(self._agents):
                reward[row, i] = rewards[agent] if agent in alive else 0.0
            self._write(final[row], seen, alive)
            obs[row] = final[row]
            if not env.agents:
                terminated[row], truncated[row] = self._all_terminal[row], not self._all_terminal[row]
                self._restart(row, obs)
        return Step(obs, reward, terminated, truncated, final)

    def mark(self) -> Any:
        return None if self.cut else [(random.bit_generator.state, start, actions, len(actions)) for
                                      random, start, actions in zip(self._random, self._starts, self._since,
                                                                    strict=False)]

    def history(self, mark: Any) -> dict[str, np.ndarray]:
        return {"random": text([state for state, _, _, _ in mark]),
                "starts": np.array([start for _, start, _, _ in mark], np.int64),
                **flat([actions[:count] for _, _, actions, count in mark])}

    def replay(self, seeds: list[int], saved: Mapping[str, np.ndarray]) -> bool:
        if "starts" not in saved:
            return False
        self.obs = self.begin(seeds)
        for row, (start, actions) in enumerate(zip(saved["starts"], ragged(saved), strict=True)):
            self._start(row, int(start), self.obs)
            for action in actions:
                alive = set(self._envs[row].agents)
                self.obs[row] = 0
                self._write(self.obs[row], self._act(row, action)[0], alive)
        for generator, state in zip(self._random, plain(saved["random"]), strict=True):
            generator.bit_generator.state = state
        return True

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _act(self, row: int, action: np.ndarray) -> tuple[dict[str, Any], dict[str, float]]:
        """Steps one copy: what its agents see, and their rewards."""
        env = self._envs[row]
        self._since[row].append(np.array(action))
        alive = set(env.agents)
        seen, rewards, terminal, _, _ = env.step(
            {agent: action[i] for i, agent in enumerate(self._agents) if agent in alive})
        for agent in alive - set(env.agents):
            self._all_terminal[row] &= bool(terminal[agent])
        return seen, rewards

    def _restart(self, row: int, obs: np.ndarray) -> None:
        # A seed per episode: whether an unseeded reset goes on with the old generator is up to each environment.
        self._start(row, int(self._random[row].integers(2**31)), obs)

    def _start(self, row: int, seed: int, obs: np.ndarray) -> None:
        seen, _ = self._envs[row].reset(seed=seed)
        self._starts[row], self._since[row] = seed, []
        self._all_terminal[row] = True
        obs[row] = 0
        self._write(obs[row], seen, set(self._envs[row].agents))

    def _write(self, into: np.ndarray, seen: dict[str, Any], agents: set[str]) -> None:
        for i, agent in enumerate(self._agents):
            if agent in agents:
                one = self._observations[agent].decode(seen[agent])
                into[(i, *map(slice, one.shape))] = one
