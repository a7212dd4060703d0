"""Environments whose every number is known beforehand."""

from collections import deque

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from msrl.api.env import Env, EnvSpec, Step
from msrl.api.spaces import Box, Discrete

LIMIT = 6


class Counter(gymnasium.Env):
    """Observes (steps in this episode, last action) in one array that it reuses. It terminates at a random length of
    4 to 8, so that with a limit of 6 some episodes terminate, some are truncated, and some would be both."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3, start=1)

    def __init__(self):
        self.seen = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = self.np_random.integers(4, 9)
        self.seen[:] = 0
        return self.seen, {}

    def step(self, action):
        self.seen[:] = self.seen[0] + 1, action
        return self.seen, float(action), bool(self.seen[0] >= self.length), False, {}


class Pixels(gymnasium.Env):
    """An image that is filled with the sum of a two-fold action; the episode's end is its fifth step."""

    observation_space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    action_space = spaces.MultiDiscrete([3, 2], start=[0, 10])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((4, 5, 3), self.np_random.integers(100, 200), np.uint8), {}

    def step(self, action):
        return np.full((4, 5, 3), action.sum(), np.uint8), 0.0, False, False, {}


class Rooms(gymnasium.Env):
    """A corridor of rooms 5 to 9: the action is the next room, and room 9 is terminal. Seen once or twice over."""

    def __init__(self, double=False):
        self.double = double
        self.observation_space = spaces.MultiDiscrete([5, 5], start=[5, 5]) if double else spaces.Discrete(5, start=5)
        self.action_space = spaces.Discrete(5, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._see(self.np_random.integers(5, 9)), {}

    def step(self, action):
        return self._see(action), 1.0, bool(action == 9), False, {}

    def _see(self, room):
        return np.array([room, room]) if self.double else np.int64(room)


class Words(gymnasium.Env):
    observation_space = spaces.Dict({"a": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)


class Messages(gymnasium.Env):
    observation_space = spaces.Discrete(2)
    action_space = spaces.Text(3)


TOYS = {
    "msrl/Counter-v0": (Counter, LIMIT, {}), "msrl/Pixels-v0": (Pixels, 5, {}), "msrl/Rooms-v0": (Rooms, 20, {}),
    "msrl/DoubleRooms-v0": (Rooms, 20, {"double": True}), "msrl/Words-v0": (Words, None, {}),
    "msrl/Messages-v0": (Messages, None, {}),
}


def register() -> None:
    for name, (cls, limit, kwargs) in TOYS.items():
        if name not in gymnasium.registry:
            # The checker warns of Counter's reused array, which is there on purpose.
            gymnasium.register(name, cls, max_episode_steps=limit, kwargs=kwargs, disable_env_checker=True)


class Parallel:
    """A PettingZoo environment as its parallel API has it. Agent i observes 2 + i numbers, the first of which
    counts steps, and lives for lives[i] steps; the letter says whether it then (t)erminates or is (c)ut off."""

    def __init__(self, lives=("3t", "5t"), actions=None, observations=None):
        self.possible_agents = [f"agent_{i}" for i in range(len(lives))]
        self.lives = lives
        self.actions = actions or [spaces.Discrete(3)] * len(lives)
        self.observations = observations
        self.unwrapped, self.closed = self, False

    def observation_space(self, agent):
        i = self.possible_agents.index(agent)
        return self.observations[i] if self.observations else spaces.Box(-np.inf, np.inf, (2 + i,), np.float32)

    def action_space(self, agent):
        return self.actions[self.possible_agents.index(agent)]

    def reset(self, seed=None, options=None):
        self.first = seed % 97
        self.agents, self.t = list(self.possible_agents), 0
        return self._see(self.agents), {}

    def step(self, actions):
        assert list(actions) == self.agents
        self.t += 1
        end = {agent: self.t >= int(self.lives[int(agent[-1])][0]) for agent in self.agents}
        cut = {agent: self.lives[int(agent[-1])][1] == "c" for agent in self.agents}
        out = (
            self._see(self.agents),
            {agent: float(action) + 1 for agent, action in actions.items()},
            {agent: end[agent] and not cut[agent] for agent in self.agents},
            {agent: end[agent] and cut[agent] for agent in self.agents},
            {},
        )
        self.agents = [agent for agent in self.agents if not end[agent]]
        return out

    def close(self):
        self.closed = True

    def _see(self, agents):
        return {agent: np.array([self.first + self.t, *[1 + int(agent[-1])] * (1 + int(agent[-1]))], np.float32)
                for agent in agents}


class Scripted(Env):
    """Plays back arrays: T steps of B environments (of N agents), the same as JAX and as NumPy."""

    def __init__(self, traceable: bool, agents: int = 0, steps: int = 40, num_envs: int = 3, seed: int = 0,
                 shape: tuple[int, ...] = (2,), action=None, scale: float = 1.0):
        random = np.random.default_rng(seed)
        self.traceable, self.xp = traceable, jnp if traceable else np
        many = (agents,) if agents else ()
        self.spec = EnvSpec("scripted", Box(shape), action or Discrete(2), tuple(f"agent_{i}" for i in range(agents)))
        end = random.random((steps, num_envs))
        self.terminated, self.truncated = end < 0.1, end > 0.85
        self.first = (3 + scale * random.normal(size=(num_envs, *many, *shape))).astype(np.float32)
        self.final = (3 + scale * random.normal(size=(steps, num_envs, *many, *shape))).astype(np.float32)
        done = (self.terminated | self.truncated).reshape(steps, num_envs, *[1] * (self.final.ndim - 2))
        self.obs = np.where(done, random.normal(size=self.final.shape), self.final).astype(np.float32)
        self.reward = random.normal(1, 3, (steps, num_envs, *many)).astype(np.float32)
        self.actions: deque = deque(maxlen=1)

    def init(self, key, num_envs):
        return self.xp.zeros((), "int32")

    def reset(self, state, key):
        return state, self.xp.asarray(self.first)

    def step(self, state, action, key):
        self.actions.append(action)
        at = lambda array: self.xp.asarray(array)[state]
        step = Step(at(self.obs), at(self.reward), at(self.terminated), at(self.truncated), at(self.final))
        return state + 1, step


def play(env: Env, steps: int, action=None, num_envs: int = 3, state=None):
    """Resets and steps: (state, first observations, list of steps)."""
    state = env.init(None, num_envs) if state is None else state
    state, first = env.reset(state, None)
    out = []
    for _ in range(steps):
        state, step = env.step(state, action, None)
        out.append(step)
    return state, first, out
