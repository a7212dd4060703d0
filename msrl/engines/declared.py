"""Holds what a component on the host returns against what it declared.

What follows it was compiled for the tree, shapes and dtypes of `output_shape`. A number of another dtype is converted
where that loses nothing (rounding a double to a float counts as nothing); all else is an error. So every mode of
execution goes on with the same values.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from msrl.errors import RunError

DOCS = "docs/loop-language.md#components-of-ones-own"


class Declared:
    """What one method declares, asked for once for each form of its arguments."""

    def __init__(self, owner: str, method: str, ask: Callable[..., Any]):
        """`ask` is given the arguments' shapes."""
        self.title, self.ask = f"{owner}.{method}", ask
        self._known: dict[Any, Any] = {}

    def parts(self, returned: Any) -> tuple[Any, Any]:
        """The state and the value of a call."""
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise RunError(f"`{self.title}` returns {_kind(returned)}.", docs=DOCS,
                           why="A method of a component takes (state, key, ...) and returns two: (state, value).",
                           instead="Write `return state, value`; a method without a value returns (state, None).")
        return returned

    def fit(self, value: Any, args: tuple) -> Any:
        """The value as declared."""
        leaves, form = jax.tree.flatten(args)
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(leaf), np.result_type(leaf) if not hasattr(leaf, "dtype")
                                            else leaf.dtype) for leaf in leaves)
        known = form, tuple((shape.shape, shape.dtype) for shape in shapes)
        if known not in self._known:
            self._known[known] = self.ask(*jax.tree.unflatten(form, shapes))
        declared = self._known[known]
        found, tree = jax.tree_util.tree_flatten_with_path(value)
        wanted, declared_tree = jax.tree.flatten(declared)
        if tree != declared_tree:
            raise self.error(_describe(declared), _describe(value))
        return jax.tree.unflatten(tree, [self._leaf(leaf, want, jax.tree_util.keystr(path))
                                         for (path, leaf), want in zip(found, wanted, strict=True)])

    def _leaf(self, leaf: Any, want: Any, path: str) -> Any:
        where = f" in {path}" if path else ""
        wanted = f"{want.dtype}{list(want.shape)}{where}"
        if np.shape(leaf) != want.shape:
            raise self.error(wanted, _describe(leaf))
        if not isinstance(want.dtype, np.dtype):  # random keys, which are what they are
            if getattr(leaf, "dtype", None) != want.dtype:
                raise self.error(wanted, _describe(leaf))
            return leaf
        dtype = jax.dtypes.canonicalize_dtype(want.dtype)
        if getattr(leaf, "dtype", None) == dtype:
            return leaf
        array = np.asarray(leaf)
        if lost := _loss(array, dtype):
            raise self.error(wanted, f"{_describe(leaf)}{lost}")
        return array.astype(dtype)

    def error(self, declared: str, found: str) -> RunError:
        return RunError(f"`{self.title}` does not return what it declares.", docs=DOCS,
                        why=f"Its `output_shape` says {declared}, for which the loop was compiled, and it returned "
                            f"{found}.",
                        instead="Let it return that, or say in `output_shape` what it returns.")


def _loss(array: np.ndarray, dtype: np.dtype) -> str:
    """What would be lost if it had the other dtype; nothing if nothing."""
    whole = jax.dtypes.issubdtype(dtype, np.integer)
    if array.dtype.kind == "b":
        return ""
    if array.dtype.kind in "iu" and whole:
        limits = np.iinfo(dtype)
        fits = not array.size or (int(array.min()) >= limits.min and int(array.max()) <= limits.max)
        return "" if fits else f", of which {_extreme(array)} does not fit"
    if array.dtype.kind in "iu" and jax.dtypes.issubdtype(dtype, np.inexact):
        exact = np.asarray(array.astype(dtype).astype(object) == array.astype(object)).all()
        return "" if exact else f", of which {_extreme(array)} has too many digits"
    if all(jax.dtypes.issubdtype(each, np.floating) for each in (array.dtype, dtype)):
        with np.errstate(over="ignore"):
            kept = np.isfinite(array.astype(dtype).astype(float)) | ~np.isfinite(array.astype(float))
        return "" if kept.all() else f", of which {_extreme(array)} does not fit"
    return ", which cannot be converted without loss"


def _extreme(array: np.ndarray) -> Any:
    return max(array.ravel().tolist(), key=abs)


def _describe(tree: Any) -> str:
    """`float32[4, 2]`, or a tree of such."""
    if tree is None:
        return "None"
    return str(jax.tree.map(_form, tree)).replace("'", "")


def _form(leaf: Any) -> str:
    if not hasattr(leaf, "dtype"):
        return f"{leaf!r} ({type(leaf).__name__})" if isinstance(leaf, (bool, int, float)) else type(leaf).__name__
    return f"{leaf.dtype}{list(leaf.shape)}"


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else "None" if value is None else \
        f"a {type(value).__name__}"
