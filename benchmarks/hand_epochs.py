"""The learning of PPO with normal actions by itself, written by hand: epochs of minibatches on rows that stay.

It is one of the two yardsticks for PPO on HalfCheetah; the other is EnvPool without anything that learns. Both are what
a program could reach that had nothing else to do.
"""

import time
import warnings
from collections.abc import Sequence
from itertools import pairwise

import envpool
import jax
import jax.numpy as jnp
import numpy as np
import optax

from msrl.rl import rows_times_weights

OBS, ACTIONS = 17, 6


def make_epochs(rows: int, epochs: int, minibatches: int, hidden: tuple[int, ...]):
    """(state, update): update is all epochs on so many rows, donated state in, state and losses out."""
    draw = jax.random.split(jax.random.key(0), 5)
    obs, action = jax.random.normal(draw[0], (rows, OBS)), jax.random.normal(draw[1], (rows, ACTIONS))
    old, advantage, target = (jax.random.normal(key, (rows,)) for key in draw[2:])
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))

    def layers(key, widths):
        return [(jax.random.normal(jax.random.fold_in(key, n), (a, b)) / a**0.5, jnp.zeros(b))
                for n, (a, b) in enumerate(pairwise(widths))]

    def network(layers, x):
        for weight, bias in layers[:-1]:
            x = jnp.tanh(rows_times_weights(x, weight) + bias)
        return rows_times_weights(x, layers[-1][0]) + layers[-1][1]

    def loss(params, chosen):
        mean, value = network(params["actor"], obs[chosen]), network(params["critic"], obs[chosen])[:, 0]
        scaled = (action[chosen] - mean) * jnp.exp(-params["log_std"])
        log_prob = -(0.5 * jnp.square(scaled) + params["log_std"] + 0.919).sum(-1)
        ratio, gain = jnp.exp(jnp.clip(log_prob - old[chosen], -1.0, 1.0)), advantage[chosen]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = -jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain).mean()
        return policy + 0.25 * jnp.square(value - target[chosen]).mean()

    def update(state):
        def step(carry, chosen):
            params, opt = carry
            value, grads = jax.value_and_grad(loss)(params, chosen)
            changes, opt = optimiser.update(grads, opt, params)
            return (optax.apply_updates(params, changes), opt), value

        params, opt, key = state
        key, shuffle = jax.random.split(key)
        order = jax.vmap(lambda k: jax.random.permutation(k, rows))(jax.random.split(shuffle, epochs))
        (params, opt), losses = jax.lax.scan(step, (params, opt), order.reshape(epochs * minibatches, -1))
        return (params, opt, key), losses.mean()

    params = {"actor": layers(draw[0], (OBS, *hidden, ACTIONS)), "critic": layers(draw[1], (OBS, *hidden, 1)),
              "log_std": jnp.zeros(ACTIONS)}
    return (params, optimiser.init(params), jax.random.key(1)), jax.jit(update, donate_argnums=0)


class Stepping:
    """EnvPool's HalfCheetah, stepped by actions drawn beforehand. `pause`: how many seconds the program is busy with
    something else between two steps, which do not count; meanwhile EnvPool's threads go to sleep."""

    def __init__(self, name: str, envs: int, pause: float = 0.0):
        self.name, self.envs, self.pause = name, envs, pause
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.pool = envpool.make("HalfCheetah-v4", env_type="gymnasium", num_envs=envs, seed=0)
            self.pool.reset()
        self.actions = np.random.default_rng(0).uniform(-1.0, 1.0, (64, envs, ACTIONS)).astype(np.float64)

    def turn(self, seconds: float) -> float:
        began, count, paused = time.perf_counter(), 0, 0.0
        while count == 0 or time.perf_counter() - began < seconds:
            for action in self.actions:
                self.pool.step(action)
                paused += self._pause()
            count += len(self.actions)
        return count * self.envs / (time.perf_counter() - began - paused)

    def _pause(self) -> float:
        began = time.perf_counter()
        while (taken := time.perf_counter() - began) < self.pause:
            pass
        return taken if self.pause else 0.0

    def close(self) -> None:
        self.pool.close()


def in_turn(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The speed of doing both for every step, one after the other, round by round."""
    return [1 / (1 / a + 1 / b) for a, b in zip(one, other, strict=True)]
