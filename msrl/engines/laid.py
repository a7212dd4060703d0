"""A tree of arrays as few of them: calling a compiled program costs a microsecond or two for every array.

Small leaves of one dtype are laid end to end in one vector. Large ones stay as they are, as to copy them would cost
more than it saves, and so do random keys.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

SMALL = 4096  # elements


@struct.dataclass
class Laid:
    vectors: dict[str, Any]  # by dtype
    others: list[Any]
    treedef: Any = struct.field(pytree_node=False)
    shapes: tuple[tuple[str | None, tuple[int, ...]], ...] = struct.field(pytree_node=False)  # None: one of the others


def lay(tree: Any) -> Laid:
    leaves, treedef = jax.tree.flatten(tree)
    shapes = tuple((_vector(leaf), tuple(leaf.shape)) for leaf in leaves)
    rows: dict[str, list[Any]] = {}
    for leaf, (dtype, _) in zip(leaves, shapes, strict=True):
        if dtype is not None:
            rows.setdefault(dtype, []).append(jnp.ravel(leaf))
    others = [leaf for leaf, (dtype, _) in zip(leaves, shapes, strict=True) if dtype is None]
    return Laid({dtype: jnp.concatenate(each) for dtype, each in rows.items()}, others, treedef, shapes)


def lift(laid: Laid) -> Any:
    others, at = iter(laid.others), dict.fromkeys(laid.vectors, 0)
    leaves = []
    for dtype, shape in laid.shapes:
        if dtype is None:
            leaves.append(next(others))
        else:
            begin, size = at[dtype], int(np.prod(shape))
            at[dtype] = begin + size
            leaves.append(laid.vectors[dtype][begin:begin + size].reshape(shape))
    return jax.tree.unflatten(laid.treedef, leaves)


def _vector(leaf: Any) -> str | None:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) or np.prod(leaf.shape) > SMALL:
        return None
    return str(np.dtype(leaf.dtype))
