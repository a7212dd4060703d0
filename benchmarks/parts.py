"""Where the time of a compiled PPO update goes: its parts as programs of their own, by turns.

In: the sizes of hand_ppo. Out: for each part, its share of the time of all of them. XLA fuses across parts, so that
they add up to about the whole and not exactly; which part is the largest is beyond doubt all the same.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.hand_ppo import MLP, Settings
from msrl.envs.cartpole import CartPole
from msrl.envs.wrappers import EpisodeStats
from msrl.rl import permutation


def ppo_parts(s: Settings) -> dict[str, float]:
    env, actor, critic = EpisodeStats(CartPole()), MLP(2, 0.01), MLP(1, 1.0)
    key, total = jax.random.key(0), s.envs * s.rollout
    state, obs = env.reset(env.init(key, s.envs), key)
    params = {"actor": actor.init(key, obs), "critic": critic.init(key, obs)}
    rows = jnp.zeros((total, 4)), jnp.zeros(total, jnp.int32)

    def stepping(state):
        def step(state, at):
            return env.step(state, jnp.full(s.envs, at % 2), jax.random.fold_in(key, at))[0], None
        return jax.lax.scan(step, state, jnp.arange(s.rollout))[0]

    def acting(obs):
        def act(obs, at):
            action = jax.random.categorical(jax.random.fold_in(key, at), actor.apply(params["actor"], obs))
            return obs + 1e-6 * action[:, None], None  # the next one depends on this one, as in a rollout
        return jax.lax.scan(act, obs, jnp.arange(s.rollout))[0]

    def shuffling(key):
        return jax.vmap(lambda k: permutation(k, total))(jax.random.split(key, s.epochs))

    def learning(params):
        def loss(params, chosen):
            obs, action = jax.tree.map(lambda x: x[chosen], rows)
            logits = jax.nn.log_softmax(actor.apply(params["actor"], obs))
            taken = jnp.take_along_axis(logits, action[:, None], -1)
            return jnp.square(critic.apply(params["critic"], obs)).mean() - taken.mean()

        def step(params, chosen):
            grads = jax.grad(loss)(params, chosen)
            return jax.tree.map(lambda p, g: p - 1e-4 * g, params, grads), None
        order = jnp.tile(jnp.arange(total).reshape(s.minibatches, -1), (s.epochs, 1))
        return jax.lax.scan(step, params, order)[0]

    programs = {"environment": (stepping, state), "inference": (acting, obs), "shuffling": (shuffling, key),
                "gradients": (learning, params)}
    return split({name: partial(jax.jit(program), argument) for name, (program, argument) in programs.items()})


def inference(envs: int, shards: int, steps: int = 128) -> tuple[float, float]:
    """Microseconds that an environment's step costs the policy: all in one batch, and one shard after another."""
    actor, key = MLP(2, 0.01), jax.random.key(0)
    params = actor.init(key, jnp.zeros((1, 4)))

    def acting(parts: int, obs: jax.Array) -> jax.Array:
        def act(obs, at):
            def one(rows, number):
                logits = actor.apply(params, rows)
                action = jax.random.categorical(jax.random.fold_in(jax.random.fold_in(key, at), number), logits)
                return rows + 1e-6 * action[:, None]
            rows = [one(rows, number) for number, rows in enumerate(jnp.split(obs, parts))]
            return jnp.concatenate(rows), None
        return jax.lax.scan(act, obs, jnp.arange(steps))[0]

    programs = {parts: partial(jax.jit(partial(acting, parts)), jnp.zeros((envs, 4))) for parts in (1, shards)}
    times = medians(programs, 15)
    return times[1] * 1e6 / (envs * steps), times[shards] * 1e6 / (envs * steps)


def split(parts: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """The share of each, by the median of its times."""
    times = medians(parts, rounds)
    return {name: each / sum(times.values()) for name, each in sorted(times.items(), key=lambda item: -item[1])}


def medians(parts: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Seconds that each takes, by turns."""
    times: dict[Any, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, part in parts.items():
            began = time.perf_counter()
            jax.block_until_ready(part())
            if number:  # the first compiles
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}
