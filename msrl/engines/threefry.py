"""JAX's random generator in straight lines, as programs for the CPU compile sooner and run faster with it.

`straighten` makes every program draw by it that this process compiles for a CPU from then on. What always holds: the
numbers are, to the bit, those of JAX's own Threefry (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011).

On CPUs JAX writes Threefry as a loop of five passes over arrays. XLA compiles such a loop as a pair of functions for
every draw of every shape, and fuses nothing into it. Twenty rounds without a loop are an expression like any other: the
draw of a (64, 4) array compiles in an eighth of the time, and PPO's whole loop in six sevenths. They are in StableHLO,
as PPO has twenty such draws when it starts: traced and lowered by JAX, each took 16 ms more.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # what the third word of a key's schedule makes of the other two


def threefry(context: mlir.LoweringRuleContext, *words: Any) -> Sequence[Any]:
    """Threefry-2x32 with 20 rounds: two words of a key and two of a counter in, two random words out."""
    shape = context.avals_out[0].shape
    kind = ir.RankedTensorType.get(shape, ir.IntegerType.get_unsigned(32))

    @cache
    def number(value: int) -> Any:
        return hlo.constant(ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, value)))

    def rotated(x: Any, distance: int) -> Any:
        return hlo.or_(hlo.shift_left(x, number(distance)), hlo.shift_right_logical(x, number(32 - distance)))

    def whole(word: Any) -> Any:
        """Scalars and, under vmap, dimensions of 1 as often as there are numbers to draw."""
        rank = ir.RankedTensorType(word.type).rank
        return word if word.type == kind else hlo.broadcast_in_dim(kind, word, range(len(shape) - rank, len(shape)))

    key_0, key_1, x_0, x_1 = map(whole, words)
    keys = key_0, key_1, hlo.xor(hlo.xor(key_0, key_1), number(PARITY))
    x_0, x_1 = hlo.add(x_0, key_0), hlo.add(x_1, key_1)
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x_0 = hlo.add(x_0, x_1)
            x_1 = hlo.xor(x_0, rotated(x_1, distance))
        x_0 = hlo.add(x_0, keys[(group + 1) % 3])
        x_1 = hlo.add(x_1, hlo.add(keys[(group + 2) % 3], number(group + 1)))
    return x_0, x_1


def straighten() -> None:
    mlir.register_lowering(threefry2x32_p, threefry, platform="cpu")
