"""Losses and temporal-difference errors.

In: arrays of one stream, or one transition where it says so. Out: one loss or error per entry; the caller takes means
and stops gradients. What always holds: no function looks at a random number, a device or a parameter tree, `polyak`
aside.
"""

from typing import Any

import jax
import jax.numpy as jnp

from msrl.rl.ranks import check_ranks


def clipped_surrogate(log_prob, old_log_prob, advantage, *, clip: float) -> jax.Array:
    """PPO's policy loss (Schulman et al., 2017): (T,). The ratio earns nothing by leaving [1 - clip, 1 + clip]."""
    check_ranks("clipped_surrogate", 1, log_prob=log_prob, old_log_prob=old_log_prob, advantage=advantage)
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def clipped_value_loss(value, old_value, target, *, clip: float) -> jax.Array:
    """Half the squared error, (T,), or that of the value kept within `clip` of the old one, whichever is worse."""
    check_ranks("clipped_value_loss", 1, value=value, old_value=old_value, target=target)
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near - target))


def huber(error, *, delta: float = 1.0) -> jax.Array:
    """Half the square up to `delta`, linear beyond, elementwise."""
    size = jnp.abs(error)
    inner = jnp.minimum(size, delta)
    return 0.5 * inner * inner + delta * (size - inner)


def q_error(q_tm1, a_tm1, r_t, discount_t, q_t, selector_t) -> jax.Array:
    """The error of Q-learning on one transition: r + discount q_t[argmax selector_t] - q_tm1[a_tm1].

    With the online network's values as the selector this is double Q-learning (van Hasselt et al., 2016); with `q_t`
    itself, plain Q-learning. No gradient flows into the target.
    """
    check_ranks("q_error", 1, q_tm1=q_tm1, q_t=q_t, selector_t=selector_t)
    check_ranks("q_error", 0, a_tm1=a_tm1, r_t=r_t, discount_t=discount_t)
    target = r_t + discount_t * pick(q_t, jnp.argmax(selector_t))
    return jax.lax.stop_gradient(target) - pick(q_tm1, a_tm1)


def pick(values, index) -> jax.Array:
    """values[..., index] by a masked sum: its gradient is a product, where that of a gather would be a scatter."""
    chosen = jnp.arange(values.shape[-1]) == jnp.expand_dims(index, -1)
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)


def polyak(target: Any, online: Any, *, tau: float) -> Any:
    """The target parameters, moved by `tau` towards the online ones."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), target, online)
