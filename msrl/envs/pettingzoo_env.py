"""PettingZoo's parallel environments: B copies on the host, stepped one after another in Python.

In: the path of a module with a `parallel_env()`. Out: observations (B, N, O), padded with zeros at the end where agents
see less than the widest one; actions and rewards (B, N, ...). An episode ends when its last agent has: terminated if
all of them ended in a terminal state, truncated otherwise. An agent that ends before the others has zeros for its
observations and rewards from then on, and its actions are dropped.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box
from msrl.envs.batch import Batch
from msrl.envs.contract import ParallelPromise
from msrl.envs.host import HostEnv
from msrl.envs.rows import Found, One, Rows
from msrl.envs.spaces import Codec, codec
from msrl.errors import EnvError


class PettingZooEnv(HostEnv):
    """`pettingzoo:<module>`, such as pettingzoo:mpe2.simple_spread_v3."""

    def __init__(self, name: str):
        super().__init__(name)
        env = _module(name).parallel_env()
        self.kind = type(env.unwrapped)
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
        return Rows(lambda: _Copy(self.name, self.spec, self._observations), num_envs, np.asarray, self._action.encode)


def _module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise _no_such(name, "It is not the path of a module.")
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


class _Copy(One):
    def __init__(self, name: str, spec: EnvSpec, observations: list[Codec]):
        self._env = _module(name).parallel_env()
        self._promise = ParallelPromise(self._env)
        self._agents, self._observations = spec.agents, observations
        self._shape, self._dtype = spec.batch(spec.observation, 1)[1:], spec.observation.dtype
        self._random = np.random.default_rng()
        self._all_terminal = True  # of the agents that ended in this episode

    def begin(self, seed: int) -> np.ndarray:
        self._random = np.random.default_rng(seed)
        return self._reset()

    def rebegin(self, start: Any) -> np.ndarray:
        self._random.bit_generator.state = start
        return self._reset()

    def step(self, action: np.ndarray) -> Found:
        env, alive = self._env, set(self._env.agents)
        self.actions.append(np.array(action))
        seen, ends = self._promise.stepped(env.step(
            {agent: action[i] for i, agent in enumerate(self._agents) if agent in alive}), alive)
        self._all_terminal &= all(ends[agent][1] for agent in alive - set(env.agents))
        reward = np.array([ends[agent][0] if agent in alive else 0.0 for agent in self._agents], np.float32)
        last = self._array(seen, alive)
        if env.agents:
            return last, reward, False, False, last
        terminated = self._all_terminal
        return self._reset(), reward, terminated, not terminated, last

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> np.ndarray:
        self.start, self.actions = self._random.bit_generator.state, []
        self._all_terminal = True
        # A seed per episode: whether an unseeded reset goes on with the old generator is up to each environment.
        found = self._env.reset(seed=int(self._random.integers(2**31)))
        alive = set(self._env.agents)
        return self._array(self._promise.began(found, alive), alive)

    def _array(self, seen: dict[str, Any], agents: set[str]) -> np.ndarray:
        array = np.zeros(self._shape, self._dtype)
        for i, agent in enumerate(self._agents):
            if agent in agents:
                one = self._observations[i].decode(seen[agent])
                array[(i, *map(slice, one.shape))] = one
        return array
