"""PPO on CartPole as a fused JAX script usually is: the manner that PureJaxRL made known.

What tells it from hand_ppo.py: actor and critic are one module, which gives an action's value at every step of the
rollout; the end of an episode is its end, whatever the reason; whole batches are shuffled by `jax.random.permutation`,
which sorts, and copied; one norm cuts the gradients of both networks; the value loss is clipped; layers are flax's own.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from benchmarks.hand_ppo import MLP, Settings
from msrl.envs.cartpole import CartPole
from msrl.envs.wrappers import EpisodeStats


class Both(nn.Module):
    @nn.compact
    def __call__(self, obs):
        actor, critic = MLP(2, 0.01, jax.lax.dot_general), MLP(1, 1.0, jax.lax.dot_general)
        return jax.nn.log_softmax(actor(obs)), critic(obs)[..., 0]


def make(s: Settings):
    """(init, update): update is one iteration, donated state in, state and metrics out."""
    env, network = EpisodeStats(CartPole()), Both()
    rate = optax.linear_schedule(s.learning_rate, 0.0, s.updates * s.epochs * s.minibatches)
    optimiser = optax.chain(optax.clip_by_global_norm(s.max_grad_norm), optax.adam(rate, eps=1e-5))
    total = s.envs * s.rollout

    def init(key):
        n, e, r = jax.random.split(key, 3)
        params = network.init(n, jnp.zeros((1, 4)))
        env_state, obs = env.reset(env.init(e, s.envs), r)
        return params, optimiser.init(params), env_state, obs, key

    def loss_of(params, rows):
        obs, action, old_log_prob, old_value, advantage, target = rows
        logits, value = network.apply(params, obs)
        log_prob = jnp.take_along_axis(logits, action[:, None], -1)[:, 0]
        near = old_value + jnp.clip(value - old_value, -s.clip, s.clip)
        value_loss = 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near - target)).mean()
        ratio = jnp.exp(log_prob - old_log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - s.clip, 1 + s.clip) * advantage).mean()
        entropy = -(jnp.exp(logits) * logits).sum(-1).mean()
        loss = policy + s.value_coef * value_loss - s.entropy_coef * entropy
        return loss, jnp.stack([loss, policy, value_loss, entropy])

    def update(state):
        params, opt, env_state, obs, key = state

        def step(carry, _):
            env_state, obs, key = carry
            key, act, move = jax.random.split(key, 3)
            logits, value = network.apply(params, obs)
            action = jax.random.categorical(act, logits).astype(jnp.int32)
            log_prob = jnp.take_along_axis(logits, action[:, None], -1)[:, 0]
            env_state, out = env.step(env_state, action, move)
            return (env_state, out.obs, key), (obs, action, log_prob, value, out.reward, out.done)

        (env_state, obs, key), batch = jax.lax.scan(step, (env_state, obs, key), None, s.rollout)
        b_obs, action, log_prob, value, reward, done = batch
        last = network.apply(params, obs)[1]

        def backwards(carry, now):
            later, next_value = carry
            value, reward, going = now
            later = reward + s.gamma * next_value * going - value + s.gamma * s.lam * going * later
            return (later, value), later

        _, advantage = jax.lax.scan(backwards, (jnp.zeros_like(last), last), (value, reward, 1.0 - done), reverse=True,
                                    unroll=16)
        rows = jax.tree.map(lambda x: x.reshape(total, *x.shape[2:]),
                            (b_obs, action, log_prob, value, advantage, advantage + value))

        def minibatch(carry, rows):
            params, opt = carry
            grads, metrics = jax.grad(loss_of, has_aux=True)(params, rows)
            changes, opt = optimiser.update(grads, opt, params)
            return (optax.apply_updates(params, changes), opt), metrics

        def epoch(carry, key):
            order = jax.random.permutation(key, total)
            shuffled = jax.tree.map(lambda x: x[order].reshape(s.minibatches, -1, *x.shape[1:]), rows)
            return jax.lax.scan(minibatch, carry, shuffled)

        key, shuffle = jax.random.split(key)
        (params, opt), metrics = jax.lax.scan(epoch, (params, opt), jax.random.split(shuffle, s.epochs))
        return (params, opt, env_state, obs, key), metrics.mean((0, 1))

    return jax.jit(init), jax.jit(update, donate_argnums=0)
