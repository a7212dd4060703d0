"""DQN on Gymnasium's CartPole written by hand: what Python, JAX's calls and the environment leave to be had.

One environment, one learning per step, as in bench_dqn: a replay of NumPy's arrays, a jitted choice of the action and a
jitted update with its state donated. It reports nothing, saves nothing and does not look whether numbers are finite.
"""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from msrl.rl import rows_times_weights

GAMMA, EPSILON, TARGET_EVERY = 0.99, 0.05, 10_000


class Q(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        hidden, head = (nn.Dense(width, dot_general=rows_times_weights) for width in (self.hidden, 2))
        return head(nn.relu(hidden(x)))


class HandDQN:
    """As benchmarks/peers/serve.py runs it."""

    version, quantum = f"(JAX {jax.__version__})", 500

    def __init__(self, settings: dict[str, int]):
        hidden, warmup, capacity = (settings[name] for name in ("hidden", "warmup", "capacity"))
        self.batch, self.capacity = settings["batch"], capacity
        self.network, self.optimiser = Q(hidden), optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3))
        params = self.network.init(jax.random.key(0), jnp.zeros((1, 4)))
        self.state = params, jax.tree.map(jnp.copy, params), self.optimiser.init(params), jnp.int32(0)
        self.obs, self.next_obs = np.zeros((2, capacity, 4), np.float32)
        self.action, self.reward = np.zeros(capacity, np.int32), np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, bool)
        self.random, self.made = np.random.default_rng(0), 0
        self.env = gymnasium.make("CartPole-v1")
        self.at, _ = self.env.reset(seed=0)
        self.greedy = jax.jit(lambda params, obs: self.network.apply(params, obs).argmax())
        self.update = jax.jit(self._update, donate_argnums=0)
        for _ in range(warmup):
            self._step()

    def run(self, steps: int) -> int:
        for _ in range(steps):
            self._step()
            self._learn()
        jax.block_until_ready(self.state)
        return steps

    def threads(self, count: int) -> None:
        """As many as it was started with."""

    def close(self) -> None:
        self.env.close()

    def _step(self) -> None:
        explore = self.random.random() < EPSILON
        action = int(self.random.integers(2)) if explore else int(self.greedy(self.state[0], self.at))
        new, reward, terminated, truncated, _ = self.env.step(action)
        row = self.made % self.capacity
        self.obs[row], self.next_obs[row], self.action[row] = self.at, new, action
        self.reward[row], self.terminated[row] = reward, terminated
        self.at = self.env.reset()[0] if terminated or truncated else new
        self.made += 1

    def _learn(self) -> None:
        rows = self.random.integers(min(self.made, self.capacity), size=self.batch)
        self.state = self.update(self.state, self.obs[rows], self.action[rows], self.reward[rows],
                                 self.terminated[rows], self.next_obs[rows])

    def _update(self, state, obs, action, reward, terminated, next_obs):
        params, target, opt, learnt = state
        goal = reward + GAMMA * (1.0 - terminated) * self.network.apply(target, next_obs).max(-1)  # (M,)

        def loss(params):
            q = jnp.take_along_axis(self.network.apply(params, obs), action[:, None], -1)[:, 0]  # (M,)
            return optax.huber_loss(q, goal).mean()

        changes, opt = self.optimiser.update(jax.grad(loss)(params), opt, params)
        params, learnt = optax.apply_updates(params, changes), learnt + 1
        pick = partial(jnp.where, learnt % TARGET_EVERY == 0)
        return params, jax.tree.map(pick, params, target), opt, learnt
