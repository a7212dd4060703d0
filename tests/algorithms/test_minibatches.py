"""Epochs in minibatches: which rows a step sees, in what order steps are taken, and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.algorithms.minibatches import learn_in_minibatches
from msrl.api import LearnerState


@pytest.mark.parametrize(("rows", "minibatches", "size"), [(12, 3, 4), (11, 3, 3), (5, 5, 1), (7, 1, 7)])
def test_rows_are_taken_at_most_once_per_epoch(rows, minibatches, size):
    """The loss is linear, so that its gradient, which `apply` keeps, says which rows a step saw."""
    def loss(params, chosen):
        assert chosen["mark"].shape == (size, rows)
        return (params * chosen["mark"].sum(0)).sum(), {"mean": chosen["number"].mean()}

    def apply(params, opt, grads):
        history, at = opt
        return params, (history.at[at].set(grads), at + 1)

    epochs = 3
    state = LearnerState(jnp.zeros(rows), (jnp.zeros((epochs * minibatches, rows)), 0), extra="kept")
    data = {"mark": jnp.eye(rows), "number": jnp.arange(rows, dtype=jnp.float32)}
    new, metrics = learn_in_minibatches(state, jax.random.key(3), data, loss=loss, apply=apply, epochs=epochs,
                                        minibatches=minibatches)
    history, steps = new.opt
    assert steps == epochs * minibatches and new.extra == "kept"
    np.testing.assert_array_equal(history.sum(1), size)
    for epoch in np.asarray(history).reshape(epochs, minibatches, rows):
        assert set(epoch.sum(0)) <= {0.0, 1.0}
    assert not np.array_equal(history[:minibatches], history[minibatches:2 * minibatches]) or minibatches == 1
    assert float(metrics["mean"]) == pytest.approx(float((history @ data["number"]).mean()) / size, rel=1e-5)
