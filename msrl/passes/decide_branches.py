"""decide-branches: Graph → Graph. An `if` that goes the same way on every pass is replaced by the side it takes.

`if i % train_every == 0:` with a `train_every` of 1 is no question. A compiled branch hands on copies of all that its
sides could have changed, a learner's state among them, and where fragments are apart both sides are looked at by all of
them. What depends on loop indices alone is known before anything runs. Ops, their order and their counters stay as they
are on the path that is taken.
"""

from collections.abc import Callable
from dataclasses import replace

from msrl.ir.graph import For, Graph, If, Node, While
from msrl.ir.simplify import simplify, substitute, substitute_inside


def decide_branches(graph: Graph, decided: Callable[[str], bool | None]) -> Graph:
    """`decided`: of a condition's name, whether it is true or false on every pass; None if that differs or is not
    known."""

    def block(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], dict[str, str]]:
        """The nodes, and what to call the names that branches defined."""
        done: list[Node] = []
        rename: dict[str, str] = {}
        for node in nodes:
            node = substitute_inside(substitute(node, rename), rename)
            match node:
                case If() if (way := decided(node.condition)) is not None:
                    side, names = block(node.then if way else node.orelse)
                    taken = {merge.out: merge.then if way else merge.orelse for merge in node.merges}
                    rename.update({out: names.get(name, name) for out, name in taken.items()})
                    done.extend(side)
                    continue
                case If():
                    (then, in_then), (orelse, in_orelse) = block(node.then), block(node.orelse)
                    node = replace(node, then=then, orelse=orelse, merges=tuple(
                        replace(m, then=in_then.get(m.then, m.then), orelse=in_orelse.get(m.orelse, m.orelse))
                        for m in node.merges))
                case For() | While():
                    body, inside = block(node.body)
                    node = replace(substitute_inside(replace(node, body=()), inside), body=body)
            done.append(node)
        return tuple(done), rename

    nodes, rename = block(graph.nodes)
    return simplify(replace(graph, nodes=nodes, results=tuple(rename.get(name, name) for name in graph.results)))
