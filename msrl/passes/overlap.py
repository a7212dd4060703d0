"""overlap: Graph → Graph. Actors act on weights one pass old, so that they need not wait while the learner learns.

Every outermost loop that carries weights, and in which actors read them, gets a second carry, `$weights.before`: what
the weights were at the head of the pass before; in the first pass, what they were when the loop began. The loop's
actors read it in place of the weights. Nothing else changes, so the meaning of the new graph is as fixed as that of the
old one, and it is another: this pass is the only one that changes what is computed.
"""

from dataclasses import replace

from msrl.errors import UsageError
from msrl.ir.graph import Call, Carry, For, Graph, If, Node, While, base, before, calls

WEIGHTS = "$weights"


def overlap(graph: Graph) -> Graph:
    """Refuses a graph in which there is nothing to overlap."""
    actors = {name for name, kind in graph.components if kind == "actor"}
    nodes: list[Node] = []
    results = list(graph.results)
    found = 0
    for node in graph.nodes:
        carry = _weights(node, actors)
        if carry is None or not isinstance(node, (For, While)):
            nodes.append(node)
            continue
        phi, out = (f"{before(WEIGHTS)}.{2 * found + number}" for number in (1, 2))
        found += 1
        later = Carry(phi, carry.init, str(carry.phi), out)
        new = replace(node, carries=(*node.carries, later), body=_reading(node.body, actors, phi))
        if isinstance(new, While):
            new = replace(new, test=_reading(new.test, actors, phi))
        nodes.append(new)
        results = [name for name in results if base(name) != before(WEIGHTS)] + [out]
    if not found:
        raise UsageError(
            "There is nothing to overlap in this loop.",
            why="Overlap lets actors of one pass of the outermost loop work with the weights of the pass before, and "
                "no outermost loop here has both actors that act and a learner that learns.",
            instead="Leave out +overlap.", docs="docs/distributions.md#passes")
    return replace(graph, nodes=tuple(nodes), results=tuple(results))


def _weights(node: Node, actors: set[str]) -> Carry | None:
    """The loop's carry of the weights, if it has one and actors in the loop read it."""
    if not isinstance(node, (For, While)) or not any(_acts(call, actors) for call in calls((node,))):
        return None
    return next((carry for carry in node.carries if carry.phi and base(carry.phi) == WEIGHTS), None)


def _acts(call: Call, actors: set[str]) -> bool:
    return call.component in actors and any(base(name) == WEIGHTS for name in call.reads)


def _reading(nodes: tuple[Node, ...], actors: set[str], phi: str) -> tuple[Node, ...]:
    """The block with actors that read `phi` in place of the weights."""

    def rewritten(node: Node) -> Node:
        match node:
            case Call() if _acts(node, actors):
                return replace(node, reads=tuple(phi if base(name) == WEIGHTS else name for name in node.reads))
            case For():
                return replace(node, body=_reading(node.body, actors, phi))
            case While():
                return replace(node, test=_reading(node.test, actors, phi), body=_reading(node.body, actors, phi))
            case If():
                return replace(node, then=_reading(node.then, actors, phi), orelse=_reading(node.orelse, actors, phi))
        return node

    return tuple(rewritten(node) for node in nodes)
