"""A graph with places: which fragment computes what, and what moves between them.

A `PlacedGraph` says for every name in which fragments it is computed, and lists the moves. A `LocalProgram` is one
fragment's part: the same loops and branches, its own ops and expressions, and `Send` and `Recv` where values cross.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from msrl.errors import Span
from msrl.ir.graph import Call, For, Graph, If, Node, Pure, While, base, is_resource

PARAMETERS = "parameters"
"""What a fragment has instead of components, if it keeps the parameters of all learners and applies their gradients."""


Axis = Literal["env"]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Components that live together; with an axis, the fragment is replicated over it."""

    name: str
    components: tuple[str, ...]
    axis: Axis | None = None


Kind = Literal["send", "broadcast", "scatter", "gather", "allgather", "allreduce"]


@dataclass(frozen=True, slots=True)
class Move:
    """A name that is computed in `source` and needed in `target`. `dim` is the dimension its shards lie on, if it has
    any: a gather joins on it, a scatter divides. Among the instances of one fragment, an allgather gives each the whole
    of what all have a part of, and an allreduce is where learners agree. Where one place keeps their parameters, they
    agree there: of `$learner`, a gather brings gradients to it and a broadcast takes parameters back."""

    value: str
    source: str
    target: str
    kind: Kind
    dim: int | None
    span: Span | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        return f"{self.value}:{self.source}>{self.target}"

    @property
    def agrees(self) -> bool:
        """Does it carry what learners bring to an agreement, or take away? How often, their program says."""
        return base(self.value) == "$learner"


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    graph: Graph
    fragments: tuple[Fragment, ...]
    moves: tuple[Move, ...]
    computed: tuple[tuple[str, tuple[str, ...]], ...]  # name → the fragments that compute it
    axes: tuple[tuple[str, int], ...]

    def fragment(self, name: str) -> Fragment:
        return next(fragment for fragment in self.fragments if fragment.name == name)


@dataclass(frozen=True, slots=True)
class LocalProgram:
    fragment: Fragment
    nodes: tuple[Node, ...]
    results: tuple[str, ...]  # of the graph's results, those that live here
    parts: tuple[tuple[str, str, int], ...] = ()  # (name, of which whole value, on which dimension it was cut)
    batched: bool = False  # do the shards of an instance run as one batch?


def restrict(node: Node, computed: Container[str]) -> Node:
    """A loop or branch with what it hands on of these names only."""
    match node:
        case For() | While():
            return replace(node, carries=tuple(c for c in node.carries if c.phi in computed or c.out in computed))
        case If():
            return replace(node, merges=tuple(merge for merge in node.merges if merge.out in computed))
    return node


def wanted_whole(node: Node, axes: Mapping[str, int], divided: Container[str]) -> tuple[str, ...]:
    """Of the names that are divided among shards, those that a node takes the whole of. `divided`: the components that
    have a state per shard; an op of these takes its part."""
    match node:
        case Call(component=component):
            takes_part = component in divided or component in ("actor", "learner")
            names = () if takes_part else (*node.args, *(value for _, value in node.kwargs))
        case Pure(out=out):
            names = () if out in axes else tuple(value for _, value in node.inputs)
        case For() | While():
            names = tuple(c.init for c in node.carries if c.init and c.phi not in axes)
        case _:
            names = ()
    return tuple(name for name in dict.fromkeys(names) if name in axes and not is_resource(name))


def wanted_at_end(node: Node, axes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """The same of what the blocks of a loop or branch hand on."""
    match node:
        case For() | While():
            pairs = [[(carry.out, carry.next) for carry in node.carries]]
        case If():
            pairs = [[(m.out, m.then) for m in node.merges], [(m.out, m.orelse) for m in node.merges]]
        case _:
            pairs = []
    return tuple(tuple(dict.fromkeys(name for out, name in pair if out not in axes and name in axes
                                     and not is_resource(name))) for pair in pairs)
