"""simple_tag: slow predators chase fast prey around obstacles, as in mpe2.

The agents are the predators ("adversary_0", ...), then the prey ("agent_0", ...). Each sees its own velocity and
position, where the obstacles and the other agents are from it, and the velocities of the (other) prey. Prey thus see
two numbers fewer, and two zeros at the end make up for them. A catch gives every predator 10 and takes 10 from the
prey, which also pays for leaving the arena. No state is terminal.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs import particles
from msrl.envs.jax_env import JaxEnv

# of a predator, of a prey
RADIUS = (0.075, 0.05)
GAIN = (3.0, 4.0)
MAX_SPEED = (1.0, 1.3)
OBSTACLE_RADIUS = 0.2
OBSTACLE_RANGE = 0.9  # obstacles lie within ± this in either direction
CATCH = 10.0


@dataclass(frozen=True)
class SimpleTag(JaxEnv):
    num_good: int = 1
    num_adversaries: int = 3
    num_obstacles: int = 2
    max_cycles: int = 25

    def __post_init__(self):
        needed = {"num_good": self.num_good, "num_adversaries": self.num_adversaries, "max_cycles": self.max_cycles}
        particles.require("simple_tag", 1, **needed)
        particles.require("simple_tag", 0, num_obstacles=self.num_obstacles)

    @cached_property
    def spec(self) -> EnvSpec:
        predators = tuple(f"adversary_{i}" for i in range(self.num_adversaries))
        prey = tuple(f"agent_{i}" for i in range(self.num_good))
        neighbours = len(predators) + len(prey) - 1
        return EnvSpec(
            id="simple_tag",
            observation=Box(shape=(4 + 2 * self.num_obstacles + 2 * neighbours + 2 * self.num_good,)),
            action=Discrete(particles.NUM_ACTIONS),
            agents=predators + prey,
            max_episode_steps=self.max_cycles,
        )

    def reset_one(self, key):
        return self._worlds(key, ())

    def reset_batch(self, key, num_envs):
        return self._worlds(key, (num_envs,))

    def _worlds(self, key, batch):
        agents = self.num_adversaries + self.num_good
        return particles.random_worlds(key, batch, agents, self.num_obstacles, OBSTACLE_RANGE)

    def observe(self, state):
        around = particles.surroundings(state.position, state.landmark)
        return jnp.concatenate([state.velocity, state.position, around, self._prey_velocity(state)], axis=1)

    def _prey_velocity(self, state):
        """(N, 2 * num_good): for predators all prey's velocities, for a prey the others' and two zeros."""
        prey, good = state.velocity[self.num_adversaries :], self.num_good
        seen = jnp.broadcast_to(prey.reshape(1, -1), (self.num_adversaries, 2 * good))
        seen_by_prey = particles.others(jnp.broadcast_to(prey, (good, good, 2))).reshape(good, -1)
        return jnp.concatenate([seen, jnp.pad(seen_by_prey, ((0, 0), (0, 2)))])

    def step_one(self, state, action, key):
        radius = self._per_agent(RADIUS)
        force = particles.drive(action, self._per_agent(GAIN))
        force += particles.contact(state.position, state.position, radius[:, None] + radius)
        force += particles.contact(state.position, state.landmark, radius[:, None] + OBSTACLE_RADIUS)
        state = particles.move(state, force, self._per_agent(MAX_SPEED))

        predators, prey = jnp.split(state.position, [self.num_adversaries])
        caught = particles.distances(prey, predators) < RADIUS[0] + RADIUS[1]  # (predators, prey)
        hunt = jnp.broadcast_to(CATCH * caught.sum(), self.num_adversaries)
        flight = -CATCH * caught.sum(0) - _straying(jnp.abs(prey)).sum(1)
        return state, jnp.concatenate([hunt, flight]), jnp.bool_(False)

    def _per_agent(self, of_predator_and_prey):
        return np.repeat(np.float32(of_predator_and_prey), (self.num_adversaries, self.num_good))  # (N,)


def _straying(distance):
    """The cost of being this far from the middle along an axis: none up to 0.9, then a slope, then an exponential."""
    beyond = jnp.minimum(jnp.exp(2 * distance - 2), 10.0)
    return jnp.where(distance < 0.9, 0.0, jnp.where(distance < 1, 10 * (distance - 0.9), beyond))
