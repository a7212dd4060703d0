"""What a buffer accepts: one record of B environments, of the same fields, shapes and dtypes every time.

In: the record that `init` or `insert` was given. Out: its B and its leaves' shapes, or a TypeCheckError that names the
field. Always: dtypes are compared as JAX holds them, so a float64 of NumPy's is the float32 that it becomes.
"""

from typing import Any

import jax
import numpy as np

from msrl.api import Buffer, Record
from msrl.errors import TypeCheckError, UsageError

WHERE = ("auto", "device", "host")


def check_options(name: str, where: str, **at_least_one: int) -> None:
    """The options that every buffer has: where it lives, and counts that start at 1."""
    if where not in WHERE:
        raise UsageError(f"{name}: where={where!r} is not a place for a buffer.",
                         instead='Use where="auto", where="device" or where="host".')
    for option, value in at_least_one.items():
        if value < 1:
            raise UsageError(f"{name}: {option}={value} leaves nothing to store or to sample.",
                             instead=f"Use {option}=1 or more.")


def share(name: str, count: int, **options: int) -> dict[str, int]:
    """Each option's part, for one of `count` learners."""
    for option, value in options.items():
        if value % count:
            raise UsageError(f"{name}: {option}={value} cannot be divided among {count} learners.",
                             why="Each has the same part of the store and of every batch.",
                             instead=f"Use a multiple of {count}, or fewer learner shards.")
    return {option: value // count for option, value in options.items()}


def aval(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array, a tracer or a ShapeDtypeStruct."""
    dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.canonicalize_dtype(dtype))


def traced_shape(buffer: Buffer, method: str, item: Record, *args: Any) -> Any:
    """What a method of a traceable buffer returns to the loop, as shapes; a buffer on the host asks its twin."""
    state = jax.eval_shape(buffer.init, item)
    return jax.eval_shape(getattr(buffer, method), state, jax.eval_shape(lambda: jax.random.key(0)), *args)[1]


def show(leaf: jax.ShapeDtypeStruct) -> str:
    return f"{leaf.dtype.name}[{', '.join(map(str, leaf.shape))}]"


def check_first(name: str, item: Record) -> tuple[Record, int]:
    """The record that a buffer is made for: (its shapes, B)."""
    shapes = jax.tree.map(aval, item)
    leaves = named_leaves(shapes)
    if not leaves:
        raise TypeCheckError(f"{name} is given a record without arrays.",
                             why="There would be nothing to store.",
                             instead="Insert at least one field: replay_buffer_insert(obs=obs, ...).")
    first_field, first = next((each for each in leaves if each[1].shape), leaves[0])
    for field, leaf in leaves:
        if not leaf.shape or leaf.shape[0] != first.shape[0]:
            raise TypeCheckError(
                f"{name}: field {field} is {show(leaf)}, and field {first_field} is {show(first)}.",
                why="The first dimension of every field is the number of environments, and has to be the same.",
                instead=f"Give {field} one entry per environment.")
    return shapes, first.shape[0]


def check_next(name: str, expected: Record, item: Record, lead: int = 0) -> None:
    """Raises unless `item` has the fields and shapes of `expected`: shapes, as `check_first` gave them, or arrays with
    so many dimensions before those."""
    found_leaves, found_tree = jax.tree.flatten(item)
    expected_leaves, expected_tree = jax.tree.flatten(expected)
    if found_tree != expected_tree:
        raise TypeCheckError(
            f"{name} is given other fields than it was made for.\n"
            f"  made for: {', '.join(field for field, _ in named_leaves(expected))}\n"
            f"  given:    {', '.join(field for field, _ in named_leaves(item))}",
            why="One buffer holds records of one kind.",
            instead="Insert the same fields everywhere, or use a second buffer.")
    for i, (before, leaf) in enumerate(zip(expected_leaves, found_leaves)):
        wanted = before.shape[lead:], before.dtype
        if (getattr(leaf, "shape", None), getattr(leaf, "dtype", None)) == wanted:
            continue  # as nearly always; what is below takes Python longer than all else that an insert does
        now = aval(leaf)
        if (now.shape, now.dtype) != wanted:
            raise TypeCheckError(
                f"{name}: field {named_leaves(expected)[i][0]} was {show(jax.ShapeDtypeStruct(*wanted))} when the "
                f"buffer was made, and is {show(now)} now.",
                why="A buffer's arrays are laid out once, for one shape and dtype per field.",
                instead="Insert the same shapes everywhere, or use a second buffer.")


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """(name, leaf) pairs: `obs`, or `obs['image']` inside a field that is itself a tree."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in paths]
