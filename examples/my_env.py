"""An environment of one's own, written for one environment; the base class makes a batch of it.

    python examples/my_env.py            trains PPO on it for a few seconds, then draws an episode
    python examples/my_env.py 16384      the same for 16 384 environment steps

From the command line: `msrl train ppo --env examples/my_env.py:Lake`.
"""

import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp

import msrl
from msrl.api import Box, Discrete, EnvSpec
from msrl.envs.jax_env import JaxEnv

SIDE = 5
GOAL = (4, 4)
HOLES = ((1, 1), (1, 3), (3, 0), (3, 3))
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


@dataclass(frozen=True)
class Lake(JaxEnv):
    """Cross a frozen lake to the far corner: 1 for arriving, -1 for falling into a hole, -0.01 a step. One move in ten
    slips to the right of where it was meant to go."""

    spec = EnvSpec(
        id="Lake",  # `make` replaces it by the id that was asked for
        observation=Box(shape=(2 * SIDE,), low=0.0, high=1.0),
        action=Discrete(4),
        max_episode_steps=50,
    )

    def reset_one(self, key):
        return jnp.zeros(2, jnp.int32)  # (row, column): the state keeps this shape and dtype for ever

    def observe(self, state):
        return jax.nn.one_hot(state, SIDE).reshape(-1)

    def step_one(self, state, action, key):
        slip = jax.random.bernoulli(key, 0.1).astype(jnp.int32)
        move = jnp.asarray(MOVES, jnp.int32)[(action + slip) % 4]
        state = jnp.clip(state + move, 0, SIDE - 1)
        fell = (state == jnp.asarray(HOLES)).all(axis=-1).any()
        arrived = (state == jnp.asarray(GOAL)).all()
        reward = jnp.where(arrived, 1.0, jnp.where(fell, -1.0, -0.01))
        return state, reward, fell | arrived


def main(total_steps: int = 100_000) -> None:
    env = Lake()
    program = msrl.compile("ppo", env, total_steps=total_steps, num_envs=16, rollout=64, learning_rate=2e-3)
    for update in program.run():
        if update.episodes and update.env_steps % (10 * 1024) == 0:
            print(f"{update.env_steps:>8} steps, return {update.episode_return:5.2f}")
    found = program.evaluate(episodes=50)[0]
    print(f"mean return of 50 episodes: {found.returns.mean():.2f}")
    print(draw(program))


def draw(program: msrl.Program) -> str:
    """One episode by hand: the environment is pure functions, and so is the actor."""
    env, actor, weights = Lake(), program.world.agent.actor, program.resources["$weights"]
    state, obs = env.reset(env.init(jax.random.key(0), 1), jax.random.key(1))
    play = jax.jit(lambda state, obs, key: env.step(state, actor.exploit(weights, key, obs).action, key))
    path = [tuple(state.inner[0].tolist())]
    for number in range(env.spec.max_episode_steps):
        state, out = play(state, obs, jax.random.fold_in(jax.random.key(2), number))
        obs = out.obs
        if out.done[0]:
            break
        path.append(tuple(state.inner[0].tolist()))
    marks = {**dict.fromkeys(HOLES, "o"), **dict.fromkeys(path, "*"), GOAL: "G"}
    return "\n".join(" ".join(marks.get((row, column), ".") for column in range(SIDE)) for row in range(SIDE))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
