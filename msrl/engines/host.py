"""The host engine: Python around compiled stretches.

A block is divided into parts. Consecutive traceable nodes are one `Stretch`, compiled on first use; ops of components
that live on the host run as Python, once per shard. Expressions of loop indices, and mere selections (`act.action`,
`step.obs`) of what is already at hand, are not worth a compiled call and are taken by Python.
"""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from msrl.engines.library import Ops
from msrl.engines.ops import strong
from msrl.engines.reference import Reference
from msrl.engines.shapes import Shapes
from msrl.engines.xla import Stretch
from msrl.ir.graph import Call, Node, Pure, Recv, Send, definitions, free, is_resource, uses, walk
from msrl.ir.interp import Host, Names, run_nodes


class HostEngine(Host):
    def __init__(self, ops: Ops, shapes: Shapes, root: jax.Array, compiled: Callable[[float], None]):
        """`compiled` is told the seconds that each compilation took."""
        self.ops, self.shapes, self.root, self.world, self.compiled = ops, shapes, root, ops.world, compiled
        self.reference = Reference(ops, root, shapes.items, fused=True)
        self.seeds = root.shape[0] if root.ndim else None
        # By identity, which is cheap; the nodes are kept, so that no others can take their place in memory.
        self._parts: dict[int, tuple[tuple[Node, ...], list[Stretch | Node]]] = {}

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        return self.reference.call(node, args, kwargs, reads)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        value = self.reference.pure(node, inputs)
        # A counter is a 32-bit number from the start, or the first call of a stretch would compile it twice.
        return np.int32(value) if is_resource(node.out) else value

    def block(self, nodes: tuple[Node, ...], names: Names, tail: tuple[str, ...], once: bool = False) -> None:
        for part in self.parts(nodes, tail, once):
            if isinstance(part, Stretch):
                names.update(part(self.wide(names, part.inputs), self.root))
            else:
                run_nodes((part,), names, self)

    def wide(self, names: Names, inputs: tuple[str, ...]) -> Names:
        """With several seeds, host numbers once per seed."""
        if not self.seeds:
            return names
        return {**names, **{name: jax.tree.map(self.widen, names[name]) for name in inputs}}

    def widen(self, x: Any) -> Any:
        host = isinstance(x, (bool, int, float, np.generic))
        return np.broadcast_to(strong(x), (self.seeds, *np.shape(x))) if host and self.seeds else x

    def parts(self, nodes: tuple[Node, ...], tail: tuple[str, ...], once: bool) -> list["Stretch | Node"]:
        if id(nodes) not in self._parts:
            self._parts[id(nodes)] = nodes, self.divide(nodes, tail, once)
        return self._parts[id(nodes)][1]

    def divide(self, nodes: tuple[Node, ...], tail: tuple[str, ...], once: bool) -> list["Stretch | Node"]:
        order: list[tuple[bool, list[Node]]] = []  # (compiled?, nodes)
        stretch: list[Node] = []
        made: set[str] = set()

        def close() -> None:
            nonlocal stretch
            rest: list[Node] = []
            while stretch and isinstance(stretch[-1], Pure) and is_selection(stretch[-1]):
                rest.insert(0, stretch.pop())
            if stretch:
                order.append((True, stretch))
            order.extend((False, [node]) for node in rest)
            stretch = []
            made.clear()

        for node in nodes:
            if isinstance(node, Pure) and node.out in self.shapes.tabular:
                order.append((False, [node]))
            elif isinstance(node, Pure) and is_selection(node) and not any(name in made for name in uses(node)):
                order.append((False, [node]))  # before the open stretch: what it reads is there already
            elif traceable(node, self.ops):
                stretch.append(node)
                made.update(definitions(node))
            else:
                close()
                order.append((False, [node]))
        close()
        parts: list[Stretch | Node] = []
        for at, (compiled, members) in enumerate(order):
            if compiled:
                later = free(tuple(n for _, group in order[at + 1:] for n in group), tail)
                outputs = tuple(n for member in members for n in definitions(member) if n in later)
                parts.append(Stretch(tuple(members), outputs, self.ops, self.shapes, self.seeds, once,
                                     self.compiled))
            else:
                parts.extend(members)
        return parts


def traceable(node: Node, ops: Ops) -> bool:
    """Can the node be part of a compiled program? Ops on the host cannot, and moves only among devices."""
    return all(ops.world.traceable(inner.component) if isinstance(inner, Call) else
               ops.devices is not None or not isinstance(inner, (Send, Recv)) for inner in walk((node,)))


def is_selection(node: Pure) -> bool:
    """Attributes, constant indices, tuples of names and unpacking: no arithmetic."""
    return _selects(node.expr)


@cache
def _selects(expr: str) -> bool:
    allowed = (ast.Expression, ast.Name, ast.Attribute, ast.Tuple, ast.Load, ast.Subscript, ast.Constant)
    if expr.startswith("unpack_("):
        return True
    tree = ast.parse(expr, mode="eval")
    # Indexing an array is work; `pair[0]` of a tuple is not, and stands for unpacking.
    return all(isinstance(node, allowed) for node in ast.walk(tree)) and not isinstance(tree.body, ast.Constant)
