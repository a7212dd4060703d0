"""JAX's random generator in straight lines, as programs for the CPU compile sooner and run faster with it.

`straighten` makes every program draw by it that this process compiles for a CPU from then on. What always holds: the
numbers are, to the bit, those of JAX's own Threefry (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011).

On CPUs JAX writes Threefry as a loop of five passes over arrays. XLA compiles such a loop as a pair of functions for
every draw of every shape, and fuses nothing into it. Twenty rounds without a loop are an expression like any other: the
draw of a (64, 4) array compiles in an eighth of the time, and PPO's whole loop in six sevenths.
"""

import jax
import numpy as np
from jax import lax
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # what the third word of a key's schedule makes of the other two


def threefry(key_0: jax.Array, key_1: jax.Array, x_0: jax.Array, x_1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds: two words of a key and two of a counter in, two random words out. `lax` and not
    operators: every draw of every program is traced, and operators on arrays take three times as long for that."""
    keys = key_0, key_1, lax.bitwise_xor(lax.bitwise_xor(key_0, key_1), np.uint32(PARITY))
    x_0, x_1 = lax.add(x_0, keys[0]), lax.add(x_1, keys[1])
    for number in range(5):
        for distance in ROTATIONS[number % 2]:
            x_0 = lax.add(x_0, x_1)
            x_1 = lax.bitwise_xor(x_0, _rotate(x_1, distance))
        x_0 = lax.add(x_0, keys[(number + 1) % 3])
        x_1 = lax.add(x_1, lax.add(keys[(number + 2) % 3], np.uint32(number + 1)))
    return x_0, x_1


def _rotate(x: jax.Array, distance: int) -> jax.Array:
    return lax.bitwise_or(lax.shift_left(x, np.uint32(distance)), lax.shift_right_logical(x, np.uint32(32 - distance)))


def straighten() -> None:
    rule = mlir.lower_fun(threefry, multiple_results=True)
    mlir.register_lowering(threefry2x32_p, rule, platform="cpu")
