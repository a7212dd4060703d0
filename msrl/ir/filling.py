"""Counts the inserts before each sample of a buffer that takes a certain number of them, from the graph alone.

In: a graph, such a buffer and the number that it takes. Out: the first sample that has another number before it; None
if all that can be counted is right. What depends on values is not counted: inside a branch, after one whose sides
differ, and after a loop of unknown length.
"""

from dataclasses import dataclass

from msrl.ir.graph import Call, For, Graph, If, Node, Stretch, While, calls


class Miscount(Exception):
    """A sample that has another number of inserts before it than its buffer takes."""

    def __init__(self, sample: Call, inserts: int):
        super().__init__(sample, inserts)
        self.sample, self.inserts = sample, inserts


def find_miscount(graph: Graph, buffer: str, length: int) -> Miscount | None:
    try:
        _Count(buffer, length).block(graph.nodes, 0)
    except Miscount as found:
        return found
    return None


@dataclass(frozen=True)
class _Count:
    """`count`: the inserts since the last sample; None if they are not known."""

    buffer: str
    length: int

    def block(self, nodes: tuple[Node, ...], count: int | None) -> int | None:
        for node in nodes:
            if self.touches(node):
                count = self.node(node, count)
        return count

    def node(self, node: Node, count: int | None) -> int | None:
        match node:
            case Call(method="insert"):
                return None if count is None else count + 1
            case Call(method="sample"):
                if count is not None and count != self.length:
                    raise Miscount(node, count)
                return 0
            case For() | While():
                return self.loop(node, count)
            case If():
                # It need not be this pass on which a side is taken.
                sides = {self.block(side, None) if self.touches(*side) else count for side in (node.then, node.orelse)}
                return sides.pop() if len(sides) == 1 else None
            case Stretch():
                return self.block(node.nodes, count)
        return count

    def loop(self, node: For | While, count: int | None) -> int | None:
        """All passes are alike after a sample, and without one each adds as many."""
        trips = node.trips if isinstance(node, For) else None
        if trips == 0:
            return count
        test = node.test if isinstance(node, While) else ()
        first = self.block((*test, *node.body), count)
        if any(call.method == "sample" for call in calls(node.body) if call.component == self.buffer):
            if trips == 1:
                return first
            last = self.block((*test, *node.body), first)
            return last if trips is not None or first == last == count else None
        if first == count:
            return count
        return None if None in (first, count, trips) else count + (first - count) * trips  # type: ignore[operator]

    def touches(self, *nodes: Node) -> bool:
        return any(call.component == self.buffer and call.method in ("insert", "sample") for call in calls(nodes))
