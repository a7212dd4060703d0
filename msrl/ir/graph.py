"""The fragmented dataflow graph: a trainer's loop as structured SSA.

Names are `base.version`, each defined once. Values are named after the user's variables (`obs.2`). Resources are names
too: `$env.3` is a state of the environment, `#env.step.2` is how often that method has been called (which keys its
random numbers). Since resources are ordinary names, loops carry them and branches merge them like any value, and the
order of effects is the order of versions. docs/ir.md has one row per kind of node.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msrl.errors import Span


@dataclass(frozen=True, slots=True)
class Call:
    """One op: a method of a component, applied to values and resources."""

    out: str | None
    component: str
    method: str
    args: tuple[str, ...]
    kwargs: tuple[tuple[str, str], ...]  # (field, value), in the order written
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    partition: tuple[str, ...] = ()  # annotations that hold here, outermost first: "together.1", "apart.2"
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Pure:
    """A pure expression over values, as Python source. `scope` is the trainer's method whose globals it sees."""

    out: str
    expr: str
    inputs: tuple[tuple[str, str], ...]  # (name in the expression, value)
    scope: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Carry:
    """A name that a loop hands from pass to pass: `phi` is it at the head, `next` at the end, `out` after the loop.

    `init` is None for a name first made inside the loop and read after it; `phi` is then None as well.
    """

    phi: str | None
    init: str | None
    next: str
    out: str


@dataclass(frozen=True, slots=True)
class For:
    """`for index in range(start, stop, step)`; a bound is a number or the name of a value."""

    index: str
    start: int | str
    stop: int | str
    step: int | str
    carries: tuple[Carry, ...]
    body: tuple["Node", ...]
    span: Span | None = field(default=None, compare=False)

    @property
    def trips(self) -> int | None:
        """The number of passes if the bounds are numbers, else None."""
        match self.start, self.stop, self.step:
            case int(start), int(stop), int(step):
                return len(range(start, stop, step))
        return None


@dataclass(frozen=True, slots=True)
class While:
    """`test` is run at the head of every pass and makes `condition`."""

    carries: tuple[Carry, ...]
    test: tuple["Node", ...]
    condition: str
    body: tuple["Node", ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Merge:
    """After a branch, `out` is `then` or `orelse`."""

    out: str
    then: str
    orelse: str


@dataclass(frozen=True, slots=True)
class If:
    condition: str
    then: tuple["Node", ...]
    orelse: tuple["Node", ...]
    merges: tuple[Merge, ...]
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Send:
    """In a local program: hands a name to another fragment. `move` identifies the channel. What is `held` leaves with
    the next `Flush` to the same fragment, in one message with all else that is held for it."""

    move: str
    value: str
    span: Span | None = field(default=None, compare=False)
    held: bool = False


@dataclass(frozen=True, slots=True)
class Recv:
    """In a local program: takes a name that another fragment made."""

    out: str
    move: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Flush:
    """In a local program: what is held for the fragment `target` leaves now."""

    target: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Stretch:
    """In a local program: nodes that are compiled as one program. Of the names they make, `outputs` are read later."""

    outputs: tuple[str, ...]
    nodes: tuple["Node", ...]
    span: Span | None = field(default=None, compare=False)


Node = Call | Pure | For | While | If | Send | Recv | Flush | Stretch


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole trainer. `components` maps names to kinds (env, actor, learner, buffer, metrics, own); `results` are the
    resources as the run leaves them."""

    name: str
    components: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    results: tuple[str, ...]

    def kind(self, component: str) -> str:
        return dict(self.components)[component]


def base(name: str) -> str:
    """The name without its version: `$env.3` → `$env`."""
    return name.rpartition(".")[0]


def before(resource: str) -> str:
    """The name, version apart, of what a resource was a pass ago: `$weights` → `$weights.before`."""
    return f"{resource}.before"


def is_resource(name: str) -> bool:
    return name.startswith(("$", "#"))


def blocks(node: Node) -> tuple[tuple[Node, ...], ...]:
    """The blocks that a node holds, in the order in which they run."""
    match node:
        case For():
            return (node.body,)
        case While():
            return node.test, node.body
        case If():
            return node.then, node.orelse
        case Stretch():
            return (node.nodes,)
    return ()


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Every node, outer ones before what they hold."""
    for node in nodes:
        yield node
        for block in blocks(node):
            yield from walk(block)


def calls(nodes: tuple[Node, ...]) -> Iterator[Call]:
    return (node for node in walk(nodes) if isinstance(node, Call))


def uses(node: Node) -> Iterator[str]:
    """The names a node itself reads, those inside its blocks apart."""
    match node:
        case Call():
            yield from node.args
            yield from (value for _, value in node.kwargs)
            yield from node.reads
        case Pure():
            yield from (value for _, value in node.inputs)
        case For():
            yield from (bound for bound in (node.start, node.stop, node.step) if isinstance(bound, str))
            yield from (carry.init for carry in node.carries if carry.init)
        case While():
            yield from (carry.init for carry in node.carries if carry.init)
        case If():
            yield node.condition
        case Send():
            yield node.value


def definitions(node: Node) -> Iterator[str]:
    """The names a node makes for what follows it in the same block."""
    match node:
        case Call():
            yield from (node.out,) if node.out else ()
            yield from node.writes
        case Pure() | Recv():
            yield node.out
        case For() | While():
            yield from (carry.out for carry in node.carries)
        case If():
            yield from (merge.out for merge in node.merges)
        case Stretch():
            yield from node.outputs


def free(nodes: tuple[Node, ...], tail: tuple[str, ...] = ()) -> dict[str, None]:
    """The names that a block reads from outside itself, in order of first use; `tail` is read at its end."""
    made: set[str] = set()
    seen: dict[str, None] = {}

    def read(names: Iterator[str] | tuple[str, ...]) -> None:
        seen.update((name, None) for name in names if name not in made)

    for node in nodes:
        read(uses(node))
        match node:
            case For():
                inner = {node.index, *(carry.phi for carry in node.carries)}
                read(tuple(name for name in free(node.body, nexts(node)) if name not in inner))
            case While():
                inner = {carry.phi for carry in node.carries}
                read(tuple(name for name in free(node.test, (node.condition,)) if name not in inner))
                read(tuple(name for name in free(node.body, nexts(node)) if name not in inner))
            case If():
                read(tuple(free(node.then, tuple(merge.then for merge in node.merges))))
                read(tuple(free(node.orelse, tuple(merge.orelse for merge in node.merges))))
            case Stretch():
                read(tuple(free(node.nodes, node.outputs)))
        made.update(definitions(node))
    read(tail)
    return seen


def nexts(loop: For | While) -> tuple[str, ...]:
    return tuple(carry.next for carry in loop.carries)
