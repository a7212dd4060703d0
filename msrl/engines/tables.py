"""Expressions of loop indices alone, computed by Python before they are needed.

`max(0.05, 1 - i / decay)` does not trace, and Python's 64-bit numbers are not traced 32-bit ones. So inside compiled
loops such an expression is a table, one entry per pass, made on the host. A name is *tabular* if it is the index of a
loop with known bounds, a literal, or an expression of tabular names only.
"""

import ast
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.engines.blame import title
from msrl.engines.ops import strong
from msrl.engines.scopes import Scopes
from msrl.errors import TypeCheckError
from msrl.ir.graph import For, Node, Pure, definitions, uses, walk


@dataclass
class Tabular:
    """What is known of a graph's tabular names: the loops each depends on, and the expressions that make them."""

    loops: dict[str, dict[str, For]] = field(default_factory=dict)  # name → the loops it depends on, by index
    makers: dict[str, Pure] = field(default_factory=dict)
    forms: dict[str, Any] = field(default_factory=dict)  # name → shapes and dtypes that hold all its values

    def __contains__(self, name: str) -> bool:
        return name in self.loops


def find_tabular(nodes: tuple[Node, ...]) -> Tabular:
    found = Tabular()
    for node in walk(nodes):
        match node:
            case For() if node.trips is not None:
                found.loops[node.index] = {node.index: node}
            case Pure() if (node.inputs and all(value in found.loops for _, value in node.inputs)) or _literal(node):
                found.loops[node.out] = {i: loop for _, value in node.inputs for i, loop in found.loops[value].items()}
                found.makers[node.out] = node
    return found


def _literal(node: Pure) -> bool:
    try:
        return not node.inputs and isinstance(ast.literal_eval(node.expr), (bool, int, float))
    except ValueError:
        return False


def decided(name: str, tabular: Tabular, scopes: Scopes, most: int = 1_000_000) -> bool | None:
    """Is it true on every pass of the loops that it depends on, or false on every one? None if it is neither, if it
    depends on more, or if that would take too long to find out."""
    if name not in tabular.makers:
        return None
    loops = list(tabular.loops[name].values())
    spans = [range(loop.start, loop.stop, loop.step) for loop in loops]  # type: ignore[arg-type]
    if math.prod(map(len, spans)) > most:
        return None
    node = tabular.makers[name]
    if loops and [value for _, value in node.inputs] == [loop.index for loop in loops]:
        values = itertools.starmap(scopes.function(node), itertools.product(*spans))  # soonest, and nearly always so
    else:
        values = (_entry(name, tabular, scopes, dict(zip((loop.index for loop in loops), at)))
                  for at in itertools.product(*spans))
    try:
        truths = map(bool, values)
        first = next(truths)
        return first if all(each is first for each in truths) else None
    except Exception:
        return None  # it is for the run to say what is wrong, on the pass on which it is


@dataclass(frozen=True)
class Table:
    """A tabular name that compiled nodes read: its own loops among theirs, outermost first."""

    name: str
    loops: tuple[For, ...]


def tables_of(nodes: tuple[Node, ...], tail: tuple[str, ...], tabular: Tabular) -> list[Table]:
    """The tables that compiled `nodes` need: tabular names read there by something that is not tabular itself."""
    inside = [node for node in walk(nodes) if isinstance(node, For)]
    read: dict[str, None] = dict.fromkeys(tail)
    for node in walk(nodes):
        if not (isinstance(node, Pure) and node.out in tabular):
            read.update(dict.fromkeys(uses(node)))
            read.update(dict.fromkeys(_ends(node)))
    made = {name for node in walk(nodes) for name in definitions(node)}
    return [Table(name, tuple(loop for loop in inside if loop.index in tabular.loops[name]))
            for name in read if name in tabular.makers and name in made]


def _ends(node: Node) -> Iterator[str]:
    """Names read at the ends of a node's blocks."""
    for carry in getattr(node, "carries", ()):
        yield carry.next
    for merge in getattr(node, "merges", ()):
        yield from (merge.then, merge.orelse)
    if condition := getattr(node, "condition", None):
        yield condition


def fill(table: Table, tabular: Tabular, scopes: Scopes, outer: dict[str, Any], ranges: dict[str, range]) -> Any:
    """The table's entries, one dimension per loop. `ranges` narrows a loop's indices; `outer` gives those outside."""
    spans = [ranges.get(loop.index) or range(loop.start, loop.stop, loop.step) for loop in table.loops]  # type: ignore[arg-type]
    rows = [_entry(table.name, tabular, scopes, {**outer, **dict(zip((loop.index for loop in table.loops), at))})
            for at in itertools.product(*spans)]
    shape = tuple(len(span) for span in spans)

    def stack(form: jax.ShapeDtypeStruct, *leaves: Any) -> np.ndarray:
        column = np.stack([fitting(leaf, form) for leaf in leaves])
        return column.reshape(shape + column.shape[1:])

    try:
        return jax.tree.map(stack, tabular.forms[table.name], *rows)
    except (KeyError, TypeError, ValueError) as problem:
        raise uneven(tabular.makers[table.name]) from problem


def uneven(node: Pure) -> TypeCheckError:
    return TypeCheckError(f"{title(node)} does not give numbers of one type and shape on every pass.", span=node.span,
                          why="It depends on loop indices only, and the compiler keeps its values in a table.",
                          instead="Let it give the same kind of number each time: `1.0` in place of `1`, if others are "
                                  "floats.", docs="docs/loop-language.md")


def fitting(leaf: Any, form: jax.ShapeDtypeStruct) -> np.ndarray:
    """An entry in the form that its column has."""
    found = np.asarray(strong(leaf))
    if found.shape != form.shape or not np.can_cast(found.dtype, form.dtype, "same_kind"):
        raise TypeError(f"{found.dtype}{list(found.shape)} does not fit {form.dtype}{list(form.shape)}")
    return found.astype(form.dtype)


def typical(name: str, tabular: Tabular, scopes: Scopes) -> Any:
    """The value on the first pass. `max(0, 1 - i / 9)` is a float on some passes and 0 on others, so the type is taken
    from several passes: the first, the last and one in the middle."""
    spans = {index: range(loop.start, loop.stop, loop.step) for index, loop in tabular.loops[name].items()}  # type: ignore[arg-type]
    values = [_entry(name, tabular, scopes, {index: span[int(part * (len(span) - 1))] for index, span in spans.items()})
              for part in ((0, 0.5, 1) if spans else (0,))]
    try:
        tabular.forms[name] = jax.tree.map(_promoted, *values)
    except (TypeError, ValueError):
        return values[0]  # not numbers, or of several forms: an error only if a compiled program is to read it
    return jax.tree.map(fitting, values[0], tabular.forms[name])


def _promoted(*leaves: Any) -> jax.ShapeDtypeStruct:
    arrays = [np.asarray(strong(leaf)) for leaf in leaves]
    if any(array.shape != arrays[0].shape or array.dtype.kind not in "biuf" for array in arrays):
        raise TypeError("no numbers of one shape")
    # JAX's rules, by which an int beside a float becomes a float of 32 bits; NumPy would make it a double.
    dtypes = [jax.dtypes.canonicalize_dtype(array.dtype) for array in arrays]
    return jax.ShapeDtypeStruct(arrays[0].shape, jnp.result_type(*dtypes))


def _entry(name: str, tabular: Tabular, scopes: Scopes, known: dict[str, Any]) -> Any:
    if name in known:
        return known[name]
    node = tabular.makers[name]
    return scopes.evaluate(node, {local: _entry(value, tabular, scopes, known) for local, value in node.inputs})
