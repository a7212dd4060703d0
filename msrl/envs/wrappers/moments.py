"""Running mean and variance, updated by batches and merged across shards by Chan's parallel formula.

Only arithmetic and array methods, so the same lines serve JAX and NumPy. It always holds that the moments of a union
are those of its parts merged, in whatever order, up to rounding.
"""

from collections.abc import Sequence
from functools import reduce
from types import ModuleType
from typing import Any

from flax import struct


@struct.dataclass
class Moments:
    # A float: past 2**24 it stops growing by ones, and old data fades slowly, where an integer would overflow.
    count: Any  # ()
    mean: Any  # (*shape)
    var: Any  # (*shape), of the population


def empty(xp: ModuleType, shape: tuple[int, ...]) -> Moments:
    return Moments(xp.zeros((), "float32"), xp.zeros(shape, "float32"), xp.zeros(shape, "float32"))


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both. `b` has data; `a` may be empty."""
    count = a.count + b.count
    share = b.count / count
    delta = b.mean - a.mean
    # As steps from a's values, so that a long history loses no digits to large sums.
    var = a.var + (b.var - a.var) * share + delta * delta * (share * (1 - share))
    return Moments(count, a.mean + delta * share, var)


def union(parts: Sequence[Moments]) -> Moments:
    """The moments of all parts. Where none has data, such as leave things as they are: mean 0 and variance 1."""
    full = [part for part in parts if part.count > 0]
    if full:
        return reduce(merge, full)
    return parts[0].replace(var=parts[0].var + 1)


def update(moments: Moments, batch: Any) -> Moments:
    """With a batch (B, *shape) more, float32."""
    count = moments.count.dtype.type(batch.shape[0])
    return merge(moments, Moments(count, batch.mean(0), batch.var(0)))
