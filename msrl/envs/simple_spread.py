"""simple_spread: N agents are to cover N landmarks without running into each other, as in mpe2.

Each agent sees its own velocity and position, then where the landmarks and the other agents are from it, and two
zeros for each other agent, who says nothing. Half of the reward is common, minus the distances of the landmarks to
their nearest agents; the other half is the agent's own, -1 for each other agent it touches. No state is terminal.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs import particles
from msrl.envs.jax_env import JaxEnv

RADIUS = 0.15  # of an agent; landmarks are mere spots
GAIN = 5.0  # an action's force
LOCAL_RATIO = 0.5  # an agent's own share of its reward
UTTERANCE = 2  # numbers in the silent channel of each other agent


@dataclass(frozen=True)
class SimpleSpread(JaxEnv):
    num_agents: int = 3
    max_cycles: int = 25

    def __post_init__(self):
        particles.require("simple_spread", 1, num_agents=self.num_agents, max_cycles=self.max_cycles)

    @cached_property
    def spec(self) -> EnvSpec:
        n = self.num_agents
        return EnvSpec(
            id="simple_spread",
            observation=Box(shape=(4 + 2 * n + (2 + UTTERANCE) * (n - 1),)),
            action=Discrete(particles.NUM_ACTIONS),
            agents=tuple(f"agent_{i}" for i in range(n)),
            max_episode_steps=self.max_cycles,
        )

    def reset_one(self, key):
        return particles.random_worlds(key, (), self.num_agents, self.num_agents, 1.0)

    def reset_batch(self, key, num_envs):
        return particles.random_worlds(key, (num_envs,), self.num_agents, self.num_agents, 1.0)

    def observe(self, state):
        around = particles.surroundings(state.position, state.landmark)
        silence = jnp.zeros((self.num_agents, UTTERANCE * (self.num_agents - 1)))
        return jnp.concatenate([state.velocity, state.position, around, silence], axis=1)

    def step_one(self, state, action, key):
        push = particles.contact(state.position, state.position, 2 * RADIUS)
        state = particles.move(state, particles.drive(action, GAIN) + push)
        to_landmarks = particles.distances(state.landmark, state.position)  # (N, L)
        to_agents = particles.distances(state.position, state.position)  # (N, N)
        touching = jnp.sum(to_agents < 2 * RADIUS, axis=1) - 1  # an agent always touches itself
        cover = jnp.min(to_landmarks, axis=0).sum()
        reward = -(1 - LOCAL_RATIO) * cover - LOCAL_RATIO * touching
        return state, reward, jnp.bool_(False)
