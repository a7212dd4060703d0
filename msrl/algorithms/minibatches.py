"""Several epochs of gradient steps on one batch, each in random minibatches.

In: a learner's state, and rows to learn from: leaves (N, ...). Out: the new state, and every metric's mean over all
steps. What always holds: in each epoch a row is in at most one minibatch, minibatches are of one size, and the fewer
than `minibatches` rows that do not divide evenly are left out at random.
"""

import jax
import jax.numpy as jnp

from msrl.api import LearnerState
from msrl.errors import UsageError
from msrl.rl import permutation


def check_minibatches(rows: int, minibatches: int) -> None:
    """There is at least a row for each minibatch."""
    if minibatches > rows:
        raise UsageError(f"minibatches is {minibatches}, and there are {rows} steps to divide.",
                         why="An update has num_envs * rollout steps, and a minibatch takes one at least.",
                         instead=f"Give --minibatches {rows} or less, or more --num-envs or --rollout (in Python: "
                                 "minibatches=, num_envs=, rollout=).")


def learn_in_minibatches(state: LearnerState, key: jax.Array, rows, *, loss, apply, epochs: int, minibatches: int):
    """(state, metrics). `loss(params, rows)` gives (loss, metrics); `apply(params, opt, grads)` gives (params, opt)."""
    count = jax.tree.leaves(rows)[0].shape[0]
    size = count // minibatches
    order = jax.vmap(lambda key: permutation(key, count))(jax.random.split(key, epochs))  # (epochs, N)
    order = order[:, : size * minibatches].reshape(-1, size)

    def step(carry, chosen):
        params, opt = carry
        grads, metrics = jax.grad(loss, has_aux=True)(params, jax.tree.map(lambda leaf: leaf[chosen], rows))
        return apply(params, opt, grads), metrics

    (params, opt), metrics = jax.lax.scan(step, (state.params, state.opt), order)
    return state.replace(params=params, opt=opt), jax.tree.map(jnp.mean, metrics)
