"""call-back: LocalProgram → LocalProgram. Loops around environments on the host are marked as compiled.

A loop of which all can be traced but for ops on the host that a compiled program may call is one `Stretch`: XLA runs
it, and calls Python for those ops. Between two steps of such an environment there is then no call of a compiled
program, each of which costs more than what it does. Moves, and ops that may not be called from there, keep a loop in
Python; so does an op on the host in the test of a `while`, which a compiled loop evaluates twice.
"""

from collections.abc import Callable
from dataclasses import replace

from msrl.ir.graph import For, If, Node, Stretch, While, definitions, free, nexts, walk
from msrl.ir.placed import LocalProgram


def call_back(program: LocalProgram, traceable: Callable[[Node], bool], callable: Callable[[Node], bool]
              ) -> LocalProgram:
    """`traceable`, `callable`: of ops, expressions and moves; the second for ops on the host."""

    def compiles(loop: Node) -> bool:
        tests = [inner for node in walk((loop,)) if isinstance(node, While) for inner in walk(node.test)]
        return not any(map(callable, tests)) and all(
            isinstance(node, (For, While, If)) or traceable(node) or callable(node) for node in walk((loop,)))

    def block(nodes: tuple[Node, ...], tail: tuple[str, ...]) -> tuple[Node, ...]:
        """`tail`: the names that are read at the block's end."""
        found: list[Node] = []
        for at, node in enumerate(nodes):
            if isinstance(node, (For, While)) and any(map(callable, walk((node,)))) and compiles(node):
                later = free(nodes[at + 1:], tail)
                found.append(Stretch(tuple(name for name in definitions(node) if name in later), (node,), node.span))
            else:
                found.append(inside(node))
        return tuple(found)

    def inside(node: Node) -> Node:
        match node:
            case For():
                return replace(node, body=block(node.body, nexts(node)))
            case While():
                return replace(node, body=block(node.body, nexts(node)))
            case If():
                return replace(node, then=block(node.then, tuple(merge.then for merge in node.merges)),
                               orelse=block(node.orelse, tuple(merge.orelse for merge in node.merges)))
        return node

    return replace(program, nodes=block(program.nodes, program.results))
