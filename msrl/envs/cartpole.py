"""CartPole-v1: keep a pole upright on a cart by pushing the cart left (0) or right (1).

The observation is the state: cart position (m), its velocity, pole angle (rad), its velocity. Reward 1 a step. The
equations of motion are those of Barto, Sutton and Anderson (1983), integrated by Euler's explicit method, as in
Gymnasium.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs.jax_env import JaxEnv

GRAVITY = 9.8  # m/s²
POLE_MASS = 0.1  # kg
TOTAL_MASS = 1.0 + POLE_MASS  # kg, with the cart
HALF_LENGTH = 0.5  # m, from the pole's joint to its centre of mass
POLE_MOMENT = POLE_MASS * HALF_LENGTH  # kg·m
FORCE = 10.0  # N
TIME_STEP = 0.02  # s
MAX_POSITION = 2.4  # m
MAX_ANGLE = math.radians(12)
START = 0.05  # every component starts uniformly within ±START


@dataclass(frozen=True)
class CartPole(JaxEnv):
    spec = EnvSpec(
        id="CartPole-v1",
        # Twice the limits, so that the observation that ends an episode lies within.
        observation=Box(
            shape=(4,),
            low=(-2 * MAX_POSITION, -math.inf, -2 * MAX_ANGLE, -math.inf),
            high=(2 * MAX_POSITION, math.inf, 2 * MAX_ANGLE, math.inf),
        ),
        action=Discrete(2),
        max_episode_steps=500,
    )

    def reset_one(self, key):
        return jax.random.uniform(key, (4,), minval=-START, maxval=START)

    def reset_batch(self, key, num_envs):
        return jax.random.uniform(key, (num_envs, 4), minval=-START, maxval=START)

    def observe(self, state):
        return state

    def step_one(self, state, action, key):
        _, x_dot, angle, angle_dot = state
        force = jnp.where(action == 1, FORCE, -FORCE)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + POLE_MOMENT * angle_dot**2 * sin) / TOTAL_MASS
        angle_acc = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS))
        x_acc = push - POLE_MOMENT * angle_acc * cos / TOTAL_MASS

        rates = jnp.stack([x_dot, x_acc, angle_dot, angle_acc])
        state = state + TIME_STEP * rates
        terminated = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
        return state, jnp.float32(1), terminated
