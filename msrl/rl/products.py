"""Rows times weights, with the gradient of the weights computed in the way that CPUs are fast at.

In: rows (..., a) and weights (a, b). Out: their product (..., b). What always holds: values and gradients are those of
`rows @ weights`, up to the order of summation.

The gradient of the weights is rows^T grad, a product that runs along the first dimension of both. XLA has fast kernels
for CPUs if one of the two lies the other way round in memory; else it leaves the product to a library that takes up to
six times as long where either is narrow, as in the first and the last layer of a policy. So the narrower of the two is
copied into that form first, which XLA would undo, hence the barriers. Two wide ones are better left alone.

A custom rule for the gradient rules out forward-mode differentiation (`jax.jvp`); take `jax.grad` twice instead.
"""

from typing import Any

import jax
import jax.numpy as jnp

_WIDE = 128  # where copying costs more than it saves


def rows_times_weights(rows: jax.Array, weights: jax.Array, dimension_numbers: Any = None, precision: Any = None
                       ) -> jax.Array:
    """Can be the `dot_general` of a flax layer, whose `dimension_numbers` say the same as the shapes."""
    return _product(rows, weights) if precision is None else jnp.matmul(rows, weights, precision=precision)


@jax.custom_vjp
def _product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    return rows @ weights


def _forwards(rows: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rows @ weights, (rows, weights)


def _backwards(kept: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, weights = kept
    flat = rows.reshape(-1, rows.shape[-1]), grad.reshape(-1, grad.shape[-1])  # (R, a), (R, b)
    sums = jax.lax.platform_dependent(*flat, cpu=_sum_of_outer_products, default=lambda rows, grad: rows.T @ grad)
    return grad @ weights.T, sums  # the platform is known once it is compiled, and asking would start JAX's backend


def _sum_of_outer_products(rows: jax.Array, grad: jax.Array) -> jax.Array:
    """rows^T grad: (R, a), (R, b) → (a, b)."""
    a, b = rows.shape[1], grad.shape[1]
    if min(a, b) > _WIDE:
        return rows.T @ grad
    if a <= b:
        return jax.lax.optimization_barrier(rows.T) @ grad
    return jax.lax.optimization_barrier(jax.lax.optimization_barrier(grad.T) @ rows).T


_product.defvjp(_forwards, _backwards)
