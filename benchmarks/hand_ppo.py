"""PPO on CartPole written by hand for one device: the yardstick for what the compiler makes of the loop.

The same mathematics (environment with episode statistics, networks, their products, advantages, permutation, losses,
annealed optimiser, metrics), in the manner of a fused JAX script: one jitted update of a scanned rollout and scanned
minibatches. It knows nothing of Trainer, buffers, graphs or engines.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from msrl.envs.cartpole import CartPole
from msrl.envs.wrappers import EpisodeStats
from msrl.rl import permutation, rows_times_weights


class Settings(NamedTuple):
    envs: int = 64
    rollout: int = 128
    epochs: int = 4
    minibatches: int = 4
    updates: int = 36
    learning_rate: float = 2.5e-3
    gamma: float = 0.99
    lam: float = 0.98
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 0.5


class MLP(nn.Module):
    out: int
    gain: float
    product: Callable = rows_times_weights

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.tanh(self.layer(64, 2.0**0.5)(x))
        return self.layer(self.out, self.gain)(x)

    def layer(self, width, gain):
        return nn.Dense(width, kernel_init=nn.initializers.orthogonal(gain), dot_general=self.product)


def make(s: Settings, product: Callable = rows_times_weights):
    """(init, update): update is one iteration, donated state in, state and metrics out. `product`: of the layers."""
    env, actor, critic = EpisodeStats(CartPole()), MLP(2, 0.01, product), MLP(1, 1.0, product)
    rate = optax.linear_schedule(s.learning_rate, 0.0, s.updates * s.epochs * s.minibatches)
    optimiser = optax.chain(_clip_each(s.max_grad_norm), optax.adam(rate, eps=1e-5))

    def init(key):
        a, c, e, r = jax.random.split(key, 4)
        obs = jnp.zeros((1, 4))
        params = {"actor": actor.init(a, obs), "critic": critic.init(c, obs)}
        env_state, obs = env.reset(env.init(e, s.envs), r)
        return params, optimiser.init(params), env_state, obs, key

    def loss_of(params, rows):
        obs, action, old_log_prob, advantage, target = rows
        logits = jax.nn.log_softmax(actor.apply(params["actor"], obs))
        value = critic.apply(params["critic"], obs)[..., 0]
        log_prob = jnp.take_along_axis(logits, action[:, None], -1)[:, 0]
        ratio = jnp.exp(log_prob - old_log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - s.clip, 1 + s.clip) * advantage).mean()
        value_loss = 0.5 * jnp.square(value - target).mean()
        entropy = -(jnp.exp(logits) * jnp.where(logits > -jnp.inf, logits, 0.0)).sum(-1).mean()
        loss = policy + s.value_coef * value_loss - s.entropy_coef * entropy
        log_ratio = log_prob - old_log_prob
        kl = (jnp.exp(log_ratio) - 1.0 - log_ratio).mean()
        return loss, jnp.stack([loss, policy, value_loss, entropy, kl])

    def update(state):
        params, opt, env_state, obs, key = state
        key, roll, shuffle = jax.random.split(key, 3)

        def step(carry, at):
            env_state, obs = carry
            act, move = jax.random.split(jax.random.fold_in(roll, at))
            logits = jax.nn.log_softmax(actor.apply(params["actor"], obs))
            action = jax.random.categorical(act, logits).astype(jnp.int32)
            log_prob = jnp.take_along_axis(logits, action[:, None], -1)[:, 0]
            env_state, out = env.step(env_state, action, move)
            kept = obs, action, log_prob, out.reward, out.terminated, out.done, out.final_obs
            return (env_state, out.obs), kept

        (env_state, obs), batch = jax.lax.scan(step, (env_state, obs), jnp.arange(s.rollout))
        b_obs, action, log_prob, reward, terminated, done, final_obs = batch
        value, following = critic.apply(params["critic"], jnp.stack([b_obs, final_obs]))[..., 0]
        delta = reward + s.gamma * (1.0 - terminated) * following - value

        def backwards(later, now):
            later = now[0] + s.gamma * s.lam * (1.0 - now[1]) * later
            return later, later

        _, advantage = jax.lax.scan(backwards, jnp.zeros(s.envs), (delta, done), reverse=True, unroll=8)
        total = s.rollout * s.envs
        rows = jax.tree.map(lambda x: x.reshape(total, *x.shape[2:]),
                            (b_obs, action, log_prob, advantage, advantage + value))
        order = jax.vmap(lambda k: permutation(k, total))(jax.random.split(shuffle, s.epochs))

        def learn(carry, chosen):
            params, opt = carry
            grads, metrics = jax.grad(loss_of, has_aux=True)(params, jax.tree.map(lambda x: x[chosen], rows))
            changes, opt = optimiser.update(grads, opt, params)
            return (optax.apply_updates(params, changes), opt), metrics

        (params, opt), metrics = jax.lax.scan(learn, (params, opt), order.reshape(s.epochs * s.minibatches, -1))
        return (params, opt, env_state, obs, key), metrics.mean(0)

    return jax.jit(init), jax.jit(update, donate_argnums=0)


def _clip_each(most):
    one = optax.clip_by_global_norm(most)
    return optax.stateless(lambda grads, _: {name: one.update(g, optax.EmptyState())[0] for name, g in grads.items()})
