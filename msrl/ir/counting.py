"""How many environment steps come before a learn, told from the graph alone.

In: a graph and the number of a learn, from 1. Out: how often each environment has been stepped by then, in the order
of the loop; None where that depends on values. It always holds that the answer is the same for every deployment.
"""

from collections.abc import Iterator

from msrl.ir.graph import Call, For, Graph, If, Node, Stretch, While, calls

STEP, LEARN = ("env", "step"), ("learner", "learn")


class Found(Exception):
    """The learn has been reached."""


class Unknown(Exception):
    """It depends on values."""


def steps_before(graph: Graph, learn: int) -> int | None:
    count = _Count(learn)
    try:
        count.block(graph.nodes)
    except Found:
        return count.steps
    except Unknown:
        pass
    return None


class _Count:
    def __init__(self, learn: int):
        self.left, self.steps = learn, 0

    def block(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case Call() if (node.component, node.method) == STEP:
                    self.steps += 1
                case Call() if (node.component, node.method) == LEARN:
                    self.left -= 1
                    if not self.left:
                        raise Found
                case For():
                    self.loop(node)
                case While() | If() if any(counted(node)):
                    raise Unknown
                case Stretch():
                    self.block(node.nodes)

    def loop(self, node: For) -> None:
        if not any(counted(node)):
            return
        if node.trips is None:
            raise Unknown
        if not node.trips:
            return
        left, steps = self.left, self.steps
        self.block(node.body)
        # All passes are alike: those that end before the learn need not be gone through one by one.
        learns, steps = left - self.left, self.steps - steps
        more = min(node.trips - 1, (self.left - 1) // learns) if learns else node.trips - 1
        self.left, self.steps = self.left - more * learns, self.steps + more * steps
        if more < node.trips - 1:
            self.block(node.body)  # it is in this one


def counted(node: Node) -> Iterator[bool]:
    return ((call.component, call.method) in (STEP, LEARN) for call in calls((node,)))
