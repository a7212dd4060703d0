"""Acrobot-v1: swing the tip of a two-link pendulum above a line, by a torque on the joint between the links.

Actions 0, 1, 2 are torques of -1, 0, +1 N·m. The state is (θ1, θ2, θ1', θ2'), θ1 from hanging down and θ2 relative to
the first link; the observation has the angles' cosines and sines, then the velocities. Reward -1 a step and 0 for
the one that ends the episode. The dynamics are those of Sutton and Barto's book, integrated by one fourth-order
Runge-Kutta step, as in Gymnasium.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs.jax_env import JaxEnv

GRAVITY = 9.8  # m/s²
MASS = 1.0  # kg, of each link
LENGTH = 1.0  # m, of each link
CENTRE = 0.5  # m, from a link's upper end to its centre of mass
INERTIA = 1.0  # kg·m², of each link
MAX_VELOCITY = (4 * math.pi, 9 * math.pi)  # rad/s, of each joint
TIME_STEP = 0.2  # s
START = 0.1  # every component starts uniformly within ±START


@dataclass(frozen=True)
class Acrobot(JaxEnv):
    spec = EnvSpec(
        id="Acrobot-v1",
        observation=Box(
            shape=(6,),
            low=(-1.0, -1.0, -1.0, -1.0, -MAX_VELOCITY[0], -MAX_VELOCITY[1]),
            high=(1.0, 1.0, 1.0, 1.0, *MAX_VELOCITY),
        ),
        action=Discrete(3),
        max_episode_steps=500,
    )

    def reset_one(self, key):
        return jax.random.uniform(key, (4,), minval=-START, maxval=START)

    def reset_batch(self, key, num_envs):
        return jax.random.uniform(key, (num_envs, 4), minval=-START, maxval=START)

    def observe(self, state):
        angle1, angle2, velocity1, velocity2 = state
        return jnp.stack([jnp.cos(angle1), jnp.sin(angle1), jnp.cos(angle2), jnp.sin(angle2), velocity1, velocity2])

    def step_one(self, state, action, key):
        torque = (action - 1).astype(jnp.float32)
        angle1, angle2, velocity1, velocity2 = _runge_kutta(tuple(state), torque)
        angle1, angle2 = _wrap(angle1), _wrap(angle2)
        velocity1 = jnp.clip(velocity1, -MAX_VELOCITY[0], MAX_VELOCITY[0])
        velocity2 = jnp.clip(velocity2, -MAX_VELOCITY[1], MAX_VELOCITY[1])
        height = -jnp.cos(angle1) - jnp.cos(angle1 + angle2)  # of the tip, in links above the upper joint
        terminated = height > 1
        return jnp.stack([angle1, angle2, velocity1, velocity2]), jnp.where(terminated, 0.0, -1.0), terminated


def _runge_kutta(state, torque):
    def along(rates, time):
        return tuple(s + time * r for s, r in zip(state, rates))

    k1 = _rates(state, torque)
    k2 = _rates(along(k1, TIME_STEP / 2), torque)
    k3 = _rates(along(k2, TIME_STEP / 2), torque)
    k4 = _rates(along(k3, TIME_STEP), torque)
    return along([a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4)], TIME_STEP / 6)


def _rates(state, torque):
    """The time derivatives of (θ1, θ2, θ1', θ2'), by Lagrange's equations."""
    angle1, angle2, velocity1, velocity2 = state
    cos2, sin2 = jnp.cos(angle2), jnp.sin(angle2)
    arm = MASS * LENGTH * CENTRE
    # The mass matrix is [[inertia1, coupling], [coupling, inertia2]].
    inertia2 = MASS * CENTRE**2 + INERTIA
    coupling = inertia2 + arm * cos2
    inertia1 = MASS * (CENTRE**2 + LENGTH**2) + 2 * arm * cos2 + INERTIA + inertia2
    weight2 = MASS * CENTRE * GRAVITY * jnp.sin(angle1 + angle2)
    weight1 = MASS * (CENTRE + LENGTH) * GRAVITY * jnp.sin(angle1) + weight2
    pull1 = weight1 - arm * velocity2 * (velocity2 + 2 * velocity1) * sin2
    pull2 = weight2 + arm * velocity1**2 * sin2
    ratio = coupling / inertia1
    acceleration2 = (torque + ratio * pull1 - pull2) / (inertia2 - ratio * coupling)
    acceleration1 = -(coupling * acceleration2 + pull1) / inertia1
    return velocity1, velocity2, acceleration1, acceleration2


def _wrap(angle):
    """The same angle within ±π; one that is within already keeps its bits."""
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
