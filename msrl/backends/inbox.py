"""What an instance has been sent: taken at its first use, and until then a `Pending` stands for it among the names.

So an instance that has sent what others wait for goes on to all that it can do without their answer. Values of one move
are taken in the order in which they were sent. Where first come is first served, a value is taken where it is received,
since that point decides which one it is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msrl.ir.graph import For, If, Node, Recv, Stretch, While, free, uses, walk
from msrl.ir.interp import Names
from msrl.runtime.channels import Exchange


class Pending:
    """A value that was received and not yet taken."""

    __slots__ = ("move", "there", "value")

    def __init__(self, move: str):
        self.move, self.there, self.value = move, False, None


class Closed(Exception):
    """The run is over while this one waits or works on; `names` is what it has."""

    def __init__(self, names: Names):
        super().__init__()
        self.names = names


class Inbox:
    """One instance's. Its generators yield `None` wherever they wait for a message; `go_on` may end the wait, and
    `taken` is told of every message."""

    def __init__(self, exchange: Exchange, instance: int, go_on: Callable[[Names], None], taken: Callable[[], None]):
        self.exchange, self.instance, self.go_on, self.taken = exchange, instance, go_on, taken
        self.due: dict[str, deque[Pending]] = {}  # by move, in the order in which they were sent

    def receive(self, node: Recv, names: Names) -> Iterable[None]:
        names[node.out] = pending = Pending(node.move)
        due = self.due.setdefault(node.move, deque())
        due.append(pending)
        if self.exchange.unordered:
            return self.force(names, (node.out,))
        while due and self.exchange.ready(node.move, self.instance):  # what is here already need not wait
            self.take(node.move)
        return ()

    def force(self, names: Names, wanted: Iterable[str]) -> Iterator[None]:
        """Puts these names' values in the place of what stands for them."""
        for name in wanted:
            value = names[name]
            if isinstance(value, Pending):
                while not value.there:
                    yield from self.wait(value.move, names)
                    self.take(value.move)
                names[name] = value.value

    def drain(self) -> Iterator[None]:
        """Takes what nobody has asked for: it is on its way all the same."""
        for move, due in self.due.items():
            while due:
                yield from self.wait(move, {})
                self.take(move)

    def wait(self, move: str, names: Names) -> Iterator[None]:
        while not self.exchange.ready(move, self.instance):
            self.go_on(names)
            yield None

    def take(self, move: str) -> None:
        """The next value of a move, for the one that has waited longest."""
        pending = self.due[move].popleft()
        pending.value, pending.there = self.exchange.receive(move, self.instance), True
        self.taken()


def reads_at_once(part: tuple[Node, ...] | Node) -> Iterable[str]:
    """What it reads when its turn comes. A loop or branch that others take part in hands the rest on."""
    match part:
        case tuple():
            return free(part)
        case For():
            return [bound for bound in (part.start, part.stop, part.step) if isinstance(bound, str)]
        case While():
            return ()
        case Stretch():
            return free((part,))
    return uses(part)


def may_wait(nodes: tuple[Node, ...]) -> set[str]:
    """The names that may stand for what is still on its way: received, or handed on by loops and branches."""
    late = {node.out for node in walk(nodes) if isinstance(node, Recv)}
    while True:
        found = set(late)
        for node in walk(nodes):
            match node:
                case For() | While():
                    for carry in node.carries:
                        if carry.init in found or carry.next in found or carry.phi in found:
                            found |= {name for name in (carry.phi, carry.out) if name}
                case If():
                    found |= {merge.out for merge in node.merges if merge.then in found or merge.orelse in found}
        if found == late:
            return late
        late = found
