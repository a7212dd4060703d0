"""A graph with places: which fragment computes what, and what moves between them.

A `PlacedGraph` says for every name in which fragments it is computed, and lists the moves. A `LocalProgram` is one
fragment's part: the same loops and branches, its own ops and expressions, and `Send` and `Recv` where values cross.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from msrl.errors import Span
from msrl.ir.graph import Call, For, Graph, If, Node, Pure, While, base, is_resource

PARAMETERS = "parameters"
"""What a fragment has instead of components, if it keeps the parameters of all learners and applies their gradients."""

Axis = Literal["env", "agent"]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Components that live together; with an axis, the fragment is replicated over it."""

    name: str
    components: tuple[str, ...]
    axis: Axis | None = None


@dataclass(frozen=True, slots=True)
class AgentAxis:
    """What is divided by agent, and what of it can be computed for some of the agents alone; and which arguments of
    actor and learner (positions) are to have all agents."""

    names: Mapping[str, int] = field(default_factory=dict)  # the (first) dimension of those that are divided
    alone: frozenset[str] = frozenset()
    sees_all: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


Kind = Literal["send", "broadcast", "scatter", "gather", "allgather", "allreduce"]


@dataclass(frozen=True, slots=True)
class Move:
    """A name that is computed in `source` and needed in `target`. `dim` is the dimension its shards lie on, if it has
    any, and `axis` whether these are of environments or of agents: a gather joins on it, a scatter divides. Among the
    instances of one fragment, an allgather gives each the whole of what all have a part of, and an allreduce is where
    learners agree. Where one place keeps their parameters, they agree there: of `$learner`, a gather brings gradients
    to it and a broadcast takes parameters back."""

    value: str
    source: str
    target: str
    kind: Kind
    dim: int | None
    span: Span | None = field(default=None, compare=False)
    axis: Axis = "env"

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
    axes: tuple[tuple[str, int], ...]  # by environment: name → dimension
    agents: AgentAxis = AgentAxis()
    wholes: tuple[tuple[str, str], ...] = ()  # (fragment over agents, a name of which it is sent the whole)

    def fragment(self, name: str) -> Fragment:
        return next(fragment for fragment in self.fragments if fragment.name == name)

    def divided(self, fragment: str) -> dict[str, int]:
        """The names of which an instance of the fragment has a part, with the dimension on which it was cut."""
        if self.fragment(fragment).axis != "agent":
            return dict(self.axes)
        return {name: dim for name, dim in self.agents.names.items() if (fragment, name) not in self.wholes}


@dataclass(frozen=True, slots=True)
class LocalProgram:
    fragment: Fragment
    nodes: tuple[Node, ...]
    results: tuple[str, ...]  # of the graph's results, those that live here
    parts: tuple[tuple[str, str, int | None], ...] = ()  # (name, of which whole value, on which dimension it was cut;
    # None if shapes say on which)
    batched: bool = False  # do the shards of an instance run as one batch?


def whole_name(name: str) -> str:
    """What an instance calls the whole of a name that it has a part of."""
    return f"whole_{name}"


def part_name(number: int, name: str) -> str:
    """What it calls its part of a name that it has the whole of; `number` tells cuts of one program apart."""
    return f"part_{number}_{name}"


def same_form(name: str) -> str:
    """The name of which this is the whole or a part, and which so has the same form."""
    return re.sub(r"^(whole_|part_\d+_)", "", name)


def restrict(node: Node, computed: Container[str]) -> Node:
    """A loop or branch with what it hands on of these names only."""
    match node:
        case For() | While():
            return replace(node, carries=tuple(c for c in node.carries if c.phi in computed or c.out in computed))
        case If():
            return replace(node, merges=tuple(merge for merge in node.merges if merge.out in computed))
    return node


def wanted_whole(node: Node, axes: Mapping[str, int], divided: Container[str],
                 sees_all: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> tuple[str, ...]:
    """Of the names that are divided among shards, those that a node takes the whole of. `divided`: the components that
    have a state per shard; an op of these takes its part, but for the arguments that it `sees_all` of."""
    match node:
        case Call(component=component):
            takes_part = component in divided or component in ("actor", "learner")
            names = tuple(node.args[at] for at in sees_all.get(component, ()) if at < len(node.args)) if takes_part \
                else (*node.args, *(value for _, value in node.kwargs))
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
