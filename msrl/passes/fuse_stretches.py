"""fuse-stretches: LocalProgram → LocalProgram. Consecutive nodes that can be traced are marked as one compiled call.

In every block, what can be traced is gathered into `Stretch` nodes, loops and branches included; ops on the host, moves
and the loops around them stay as they are, and are gone into. A loop of the outermost block is a stretch of its own,
so that the host can look between its chunks; if the whole of it can be traced, it runs as compiled chunks of passes.
Expressions of loop indices, and mere selections (`act.action`, `step.obs`) of what is already at hand, are not worth a
compiled call and stay outside. Nodes keep their order, but for selections that go before the stretch they stand in.

Whoever runs the program compiles what is marked, and runs the rest node by node.
"""

import ast
from collections.abc import Callable, Container
from dataclasses import replace
from functools import cache

from msrl.ir.graph import For, If, Node, Pure, Stretch, While, definitions, free, nexts, uses, walk
from msrl.ir.placed import LocalProgram


def fuse_stretches(program: LocalProgram, traceable: Callable[[Node], bool], tabular: Container[str]) -> LocalProgram:
    """`traceable` of a node, those inside it apart; `tabular`: names that are computed from loop indices alone."""
    nodes = _Fusion(traceable, tabular).block(program.nodes, program.results, top=True)
    return replace(program, nodes=nodes)


class _Fusion:
    def __init__(self, traceable: Callable[[Node], bool], tabular: Container[str]):
        self.traceable, self.tabular = traceable, tabular

    def block(self, nodes: tuple[Node, ...], tail: tuple[str, ...], top: bool = False) -> tuple[Node, ...]:
        """`tail`: the names that are read at the block's end."""
        groups = self.groups(nodes, top)
        found: list[Node] = []
        for at, (compiled, members) in enumerate(groups):
            if compiled:
                later = free(tuple(node for _, group in groups[at + 1:] for node in group), tail)
                outputs = tuple(name for node in members for name in definitions(node) if name in later)
                found.append(Stretch(outputs, tuple(members), members[0].span))
            else:
                found.extend(self.inside(node) for node in members)
        return tuple(found)

    def groups(self, nodes: tuple[Node, ...], top: bool) -> list[tuple[bool, list[Node]]]:
        """The block in order, as (compiled?, nodes)."""
        order: list[tuple[bool, list[Node]]] = []
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
            if isinstance(node, Pure) and node.out in self.tabular:
                order.append((False, [node]))
            elif isinstance(node, Pure) and is_selection(node) and not any(name in made for name in uses(node)):
                order.append((False, [node]))  # before the open stretch: what it reads is there already
            elif not all(self.traceable(inner) for inner in walk((node,))):
                close()
                order.append((False, [node]))
            elif top and isinstance(node, (For, While)):
                close()
                order.append((True, [node]))
            else:
                stretch.append(node)
                made.update(definitions(node))
        close()
        return order

    def inside(self, node: Node) -> Node:
        match node:
            case For():
                return replace(node, body=self.block(node.body, nexts(node)))
            case While():
                read = free(node.body, nexts(node))  # the body may read what the test made
                return replace(node, test=self.block(node.test, (node.condition, *read)),
                               body=self.block(node.body, nexts(node)))
            case If():
                return replace(node, then=self.block(node.then, tuple(merge.then for merge in node.merges)),
                               orelse=self.block(node.orelse, tuple(merge.orelse for merge in node.merges)))
        return node


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
