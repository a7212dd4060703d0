"""Returns and advantages of one stream of T steps.

In: arrays (T,), where step t led from the state of `value[t]` to that of `next_value[t]`, which is the value of the
step's true last observation and not of the one after a reset. `terminated` says that this state is terminal (its value
is 0); `done` that the episode ended there, one way or the other, so that step t + 1 belongs to another episode.
Out: arrays (T,). What always holds: nothing of one episode reaches another, and a truncated one bootstraps.
Several streams: `jax.vmap(partial(gae, gamma=..., lam=...), 1, 1)` for leaves (T, B).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from msrl.rl.ranks import check_ranks

_UNROLL = 8  # steps per iteration of a compiled loop: the bodies are a few flops, the loop costs more than they do


def _accumulate(delta: jax.Array, decay: jax.Array) -> jax.Array:
    """x_t = delta_t + decay_t x_{t+1}, with x_T = 0."""

    def back(later, now):
        delta_t, decay_t = now
        x_t = delta_t + decay_t * later
        return x_t, x_t

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=_UNROLL)[1]


def gae(reward, value, next_value, terminated, done, *, gamma: float, lam: float) -> jax.Array:
    """Generalised advantage estimation (Schulman et al., 2016). The value target is the result plus `value`."""
    check_ranks("gae", 1, reward=reward, value=value, next_value=next_value, terminated=terminated, done=done)
    delta = reward + gamma * (1.0 - terminated) * next_value - value
    return _accumulate(delta, gamma * lam * (1.0 - done))


def discounted_returns(reward, next_value, terminated, done, *, gamma: float) -> jax.Array:
    """Discounted sums of the rewards to the end of each episode, or to the end of the stream; where that is not a
    terminal state, `next_value` stands for the rest."""
    check_ranks("discounted_returns", 1, reward=reward, next_value=next_value, terminated=terminated, done=done)
    cut = _cut(done)
    return _accumulate(reward + gamma * (1.0 - terminated) * cut * next_value, gamma * (1.0 - cut))


def n_step_returns(reward, next_value, terminated, done, *, gamma: float, n: int) -> jax.Array:
    """As discounted_returns, but of at most n rewards each."""
    check_ranks("n_step_returns", 1, reward=reward, next_value=next_value, terminated=terminated, done=done)
    cut, discount = _cut(done), gamma * (1.0 - terminated)
    returns = reward + discount * next_value
    for _ in range(n - 1):  # the k-step return is one reward and the (k-1)-step return after it
        later = jnp.concatenate([returns[1:], jnp.zeros_like(returns[:1])])
        returns = reward + discount * jnp.where(cut > 0, next_value, later)
    return returns


class VTrace(NamedTuple):
    target: jax.Array  # (T,) what the value is regressed on
    advantage: jax.Array  # (T,) what the policy's gradient is weighted by


def vtrace(reward, value, next_value, terminated, done, log_ratio, *, gamma: float, lam: float = 1.0,
           clip_rho: float = 1.0, clip_c: float = 1.0, clip_advantage: float = 1.0) -> VTrace:
    """V-trace (Espeholt et al., 2018): what a stream is worth to a policy other than the one that made it.
    `log_ratio` is log(pi / mu) of the actions taken."""
    check_ranks("vtrace", 1, reward=reward, value=value, next_value=next_value, terminated=terminated, done=done,
                log_ratio=log_ratio)
    ratio = jnp.exp(log_ratio)
    discount = gamma * (1.0 - terminated)
    delta = jnp.minimum(clip_rho, ratio) * (reward + discount * next_value - value)
    error = _accumulate(delta, gamma * (1.0 - done) * lam * jnp.minimum(clip_c, ratio))  # v_t - V(x_t)
    # The state after step t is worth its V-trace target, unless the stream does not go on from it.
    later = jnp.concatenate([error[1:], jnp.zeros_like(error[:1])])
    bootstrap = next_value + (1.0 - _cut(done)) * lam * later
    advantage = jnp.minimum(clip_advantage, ratio) * (reward + discount * bootstrap - value)
    return VTrace(value + error, advantage)


def _cut(done: jax.Array) -> jax.Array:
    """1 where the next step does not go on from this one: the episode's end, or the stream's."""
    return jnp.concatenate([done[:-1], jnp.ones_like(done[:1])]).astype(jnp.float32)
