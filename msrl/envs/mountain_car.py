"""MountainCar-v0: drive an underpowered car out of a valley by rocking to and fro.

Actions 0, 1, 2 push left, not at all, right. The observation is the state: position and velocity. Reward -1 a step;
the episode ends at the flag on the right-hand hill. The dynamics are those of Moore (1990), as in Gymnasium.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs.jax_env import JaxEnv

FORCE = 0.001
GRAVITY = 0.0025
MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL = 0.5
START_LOW, START_HIGH = -0.6, -0.4  # positions; the car starts at rest


@dataclass(frozen=True)
class MountainCar(JaxEnv):
    spec = EnvSpec(
        id="MountainCar-v0",
        observation=Box(shape=(2,), low=(MIN_POSITION, -MAX_SPEED), high=(MAX_POSITION, MAX_SPEED)),
        action=Discrete(3),
        max_episode_steps=200,
    )

    def reset_one(self, key):
        position = jax.random.uniform(key, (1,), minval=START_LOW, maxval=START_HIGH)
        return jnp.pad(position, (0, 1))

    def reset_batch(self, key, num_envs):
        position = jax.random.uniform(key, (num_envs, 1), minval=START_LOW, maxval=START_HIGH)
        return jnp.pad(position, ((0, 0), (0, 1)))

    def observe(self, state):
        return state

    def step_one(self, state, action, key):
        position, velocity = state
        velocity = velocity + (action - 1) * FORCE - GRAVITY * jnp.cos(3 * position)
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        # The left edge is a wall that takes all speed.
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= GOAL) & (velocity >= 0)
        return jnp.stack([position, velocity]), jnp.float32(-1), terminated
