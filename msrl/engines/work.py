"""What the ops of a program have to do, and how much of it in large pieces, before anything is compiled.

Work is counted in multiplications: those of a product or convolution, and for every number that anything else computes
as many as take that long. What only moves numbers, like the rows of a replay's store, counts for nothing. A piece is
one equation of an op: roughly a kernel of XLA, which it may divide among threads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.extend.core import Jaxpr

from msrl.engines.cut import subprograms

LARGE = 2 ** 23  # what is worth dividing: a third of a millisecond on one core
NUMBER = 64  # multiplications of a product that take as long as one number of, say, a tanh
MOVES = {"broadcast_in_dim", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice", "gather", "iota", "pad",
         "reshape", "rev", "scatter", "slice", "squeeze", "stack", "transpose"}


@dataclass(order=True)
class Work:
    total: int = 0
    large: int = 0  # of these, in large pieces

    def __add__(self, other: "Work") -> "Work":
        return Work(self.total + other.total, self.large + other.large)

    def __mul__(self, times: int) -> "Work":
        return Work(self.total * times, self.large * times)


class Tracing:
    """`jax.eval_shape`, with an eye to the work."""

    def __init__(self) -> None:
        self.work = Work()

    def shape(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.trace(function, *args).out_info

    def trace(self, function: Callable[..., Any], *args: Any) -> jax.stages.Traced:
        traced = jax.jit(partial(function)).trace(*args)
        self.work += work_of(traced.jaxpr.jaxpr)
        return traced


def work_of(jaxpr: Jaxpr) -> Work:
    """Of one run; a loop that goes on until something happens counts as one pass, and of branches the one with the most
    to do."""
    return sum(map(_piece, jaxpr.eqns), Work())


def _piece(equation: Any) -> Work:
    within = list(map(work_of, subprograms(equation)))
    match equation.primitive.name:
        case "cond":
            return max(within)
        case _ if within:
            return sum(within, Work()) * equation.params.get("length", 1)
        case "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            size = equation.outvars[0].aval.size * math.prod(left[at] for at in contracted)
        case "conv_general_dilated":
            kernel, features = equation.invars[1].aval, equation.params["dimension_numbers"].rhs_spec[0]
            size = equation.outvars[0].aval.size * kernel.size // kernel.shape[features]
        case name:
            numbers = max((math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars), default=0)
            size = 0 if name in MOVES else NUMBER * numbers
    return Work(size, size if size >= LARGE else 0)
