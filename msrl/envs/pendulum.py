"""Pendulum-v1: swing a pendulum up and hold it there, by a torque within ±2 N·m.

The action is (1,), clipped to the torque's range. The state is the angle from upright, kept within ±π, and its
velocity; the observation is the angle's cosine and sine, then the velocity. The reward is minus a cost on the angle,
velocity and torque before the step. No state is terminal. Dynamics and costs are Gymnasium's.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box
from msrl.envs.jax_env import JaxEnv

GRAVITY = 10.0  # m/s²
MASS = 1.0  # kg
LENGTH = 1.0  # m
MAX_TORQUE = 2.0  # N·m
MAX_VELOCITY = 8.0  # rad/s
TIME_STEP = 0.05  # s
START = (math.pi, 1.0)  # angle and velocity start uniformly within ± these


@dataclass(frozen=True)
class Pendulum(JaxEnv):
    spec = EnvSpec(
        id="Pendulum-v1",
        observation=Box(shape=(3,), low=(-1.0, -1.0, -MAX_VELOCITY), high=(1.0, 1.0, MAX_VELOCITY)),
        action=Box(shape=(1,), low=-MAX_TORQUE, high=MAX_TORQUE),
        max_episode_steps=200,
    )

    def reset_one(self, key):
        return jax.random.uniform(key, (2,), minval=-1, maxval=1) * jnp.array(START)

    def reset_batch(self, key, num_envs):
        return jax.random.uniform(key, (num_envs, 2), minval=-1, maxval=1) * jnp.array(START)

    def observe(self, state):
        angle, velocity = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), velocity])

    def step_one(self, state, action, key):
        angle, velocity = state
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        cost = angle**2 + 0.1 * velocity**2 + 0.001 * torque**2
        pull = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle)
        velocity = velocity + (pull + 3 / (MASS * LENGTH**2) * torque) * TIME_STEP
        velocity = jnp.clip(velocity, -MAX_VELOCITY, MAX_VELOCITY)
        angle = angle + velocity * TIME_STEP
        # Gymnasium lets the angle grow; in 32 bits it would lose a digit for every few turns.
        angle = angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
        return jnp.stack([angle, velocity]), -cost, jnp.bool_(False)
