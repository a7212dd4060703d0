"""Values as plain arrays, each known by its path, and back.

In: a tree with arrays, random keys, numbers and handles. Out: a `Packed`, which has nothing but NumPy arrays, each with
the kind of thing that it was. It always holds that `unpack(form, pack(tree))` is the tree again, to the bit and to the
type, for any tree of the same form; and that what was packed does not change with what it was made of.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api.handle import Handle
from msrl.errors import RunError, UsageError

NUMBERS = {"bool": bool, "int": int, "float": float}
LEAF_KINDS = ("jax", "numpy", "scalar", "key", *NUMBERS, "handle")


@dataclass(frozen=True)
class Leaf:
    kind: str  # jax, numpy (an array), scalar (one of NumPy's), key, one of NUMBERS, or handle
    array: np.ndarray


Packed = dict[str, Leaf]  # by path: names joined by /; a value that is one leaf has the path ""


def pack(tree: Any, what: str) -> Packed:
    """`what` names the tree in an error."""
    found: Packed = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = path_name(path)
        if isinstance(leaf, Handle):
            found |= {f"{name}/{part}": Leaf("handle", np.array(array)) for part, array in leaf.save().items()}
        else:
            found[name] = _pack(leaf, what)
    return found


def _pack(leaf: Any, what: str) -> Leaf:
    match leaf:
        case np.ndarray() | np.generic():  # first: some of NumPy's scalars are Python's numbers, too
            return Leaf("numpy" if isinstance(leaf, np.ndarray) else "scalar", np.array(leaf))
        case bool() | int() | float():
            return Leaf(type(leaf).__name__, np.array(leaf))
        case jax.Array():
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return Leaf("key", np.array(jax.random.key_data(leaf)))
            return Leaf("jax", np.array(leaf))
    raise RunError(f"{what} cannot be saved.", why=f"It holds a {type(leaf).__qualname__}, which is no array.",
                   instead="Keep arrays and numbers only, or make it a msrl.api.Handle, which says how to save it.")


def unpack(form: Any, packed: Packed, what: str) -> Any:
    """A tree of this form. Handles in it are restored where they are; its other leaves may be anything, and what was an
    array is JAX's or NumPy's as it is in the form: a buffer may have been elsewhere."""
    if "" in packed:
        return _unpack(packed[""], form)
    taken: set[str] = set()

    def find(path: tuple, leaf: Any) -> Any:
        name = path_name(path)
        if isinstance(leaf, Handle):
            parts = {key.removeprefix(f"{name}/"): each.array for key, each in packed.items()
                     if key.startswith(f"{name}/")}
            taken.update(f"{name}/{part}" for part in parts)
            leaf.restore(parts)
            return leaf
        if name not in packed:
            raise other_form(what, f"It has no {name}.")
        taken.add(name)
        here, there = getattr(leaf, "shape", None), packed[name].array.shape
        if packed[name].kind in ("jax", "numpy", "scalar") and here not in (None, there):
            raise other_form(what, f"{name} has the shape {list(there)} there, and {list(here)} here.")
        return _unpack(packed[name], leaf)

    tree = jax.tree_util.tree_map_with_path(find, form)
    if left := set(packed) - taken:
        raise other_form(what, f"It has a {sorted(left)[0]}, which is not known here.")
    return tree


def _unpack(leaf: Leaf, form: Any = None) -> Any:
    if leaf.kind in NUMBERS:
        return NUMBERS[leaf.kind](leaf.array)
    kind = leaf.kind
    if kind in ("jax", "numpy") and isinstance(form, (jax.Array, np.ndarray)):
        kind = "jax" if isinstance(form, jax.Array) else "numpy"
    match kind:
        case "key":
            return jax.random.wrap_key_data(jnp.asarray(leaf.array))
        case "jax":
            return jnp.array(leaf.array)
        case "scalar":
            return leaf.array[()]
    return np.array(leaf.array)


def other_form(what: str, why: str) -> UsageError:
    return UsageError(f"{what} in the checkpoint is not what it is here.", why=why,
                      instead="Use the algorithm's source, the settings and the environment of the run.")


def path_name(path: tuple) -> str:
    return "/".join(jax.tree_util.keystr((entry,), simple=True) for entry in path)
