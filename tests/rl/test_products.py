"""Rows times weights: the values and gradients of a plain product, and no product of the kind that XLA is slow at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.algorithms.networks import dense
from msrl.rl import rows_times_weights

SHAPES = [((16,), 4, 64), ((16,), 64, 2), ((16,), 64, 1), ((16,), 64, 64), ((3, 5), 7, 6), ((), 4, 3), ((8,), 200, 150)]


def inputs(lead, a, b):
    keys = jax.random.split(jax.random.key(0), 3)
    return (jax.random.normal(keys[0], (*lead, a)), jax.random.normal(keys[1], (a, b)),
            jax.random.normal(keys[2], (*lead, b)))


def weighted(product):
    return lambda rows, weights, by: (jnp.tanh(product(rows, weights)) * by).sum()


@pytest.mark.parametrize(("lead", "a", "b"), SHAPES)
def test_values_and_gradients_are_those_of_a_plain_product(lead, a, b):
    rows, weights, by = inputs(lead, a, b)
    np.testing.assert_allclose(rows_times_weights(rows, weights), rows @ weights, rtol=1e-5, atol=1e-5)
    ours, plain = (jax.jit(jax.grad(weighted(product), (0, 1)))(rows, weights, by)
                   for product in (rows_times_weights, jnp.matmul))
    for mine, other in zip(ours, plain, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("lead", "a", "b"), SHAPES)
def test_several_at_once(lead, a, b):
    rows, weights, by = (jnp.stack([x, 2 * x]) for x in inputs(lead, a, b))
    ours, plain = (jax.jit(jax.vmap(jax.grad(weighted(product), 1)))(rows, weights, by)
                   for product in (rows_times_weights, jnp.matmul))
    np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


def test_twice():
    rows, weights, by = inputs((6,), 4, 3)

    def squared(product):
        return lambda weights: jnp.square(jax.grad(weighted(product), 1)(rows, weights, by)).sum()

    np.testing.assert_allclose(jax.grad(squared(rows_times_weights))(weights), jax.grad(squared(jnp.matmul))(weights),
                               rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("a", "b", "slow"), [(4, 64, False), (64, 2, False), (64, 64, False), (200, 150, True)])
def test_the_narrower_side_is_turned_round(a, b, slow):
    """What is compiled for the gradient: a product along the first dimension of both is left only of two wide ones."""
    rows, weights, by = inputs((2048,), a, b)
    text = jax.jit(jax.grad(weighted(rows_times_weights), 1)).lower(rows, weights, by).compile().as_text()
    assert ("lhs_contracting_dims={0}, rhs_contracting_dims={0}" in text) == slow


def test_layers_of_networks_use_it():
    layer, rows = dense(64, 1.0), jnp.ones((2048, 4))
    params = layer.init(jax.random.key(0), rows)
    text = jax.jit(jax.grad(lambda params: jnp.tanh(layer.apply(params, rows)).sum())).lower(params).compile().as_text()
    assert "lhs_contracting_dims={0}, rhs_contracting_dims={0}" not in text
