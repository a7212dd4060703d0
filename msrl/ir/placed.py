"""A graph with places: which fragment computes what, and what moves between them.

A `PlacedGraph` says for every name in which fragments it is computed, and lists the moves. A `LocalProgram` is one
fragment's part: the same loops and branches, its own ops and expressions, and `Send` and `Recv` where values cross.
"""

from dataclasses import dataclass, field
from typing import Literal

from msrl.errors import Span
from msrl.ir.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Fragment:
    """Components that live together; with an axis, the fragment is replicated over it."""

    name: str
    components: tuple[str, ...]
    axis: Literal["env"] | None = None


Kind = Literal["send", "broadcast", "scatter", "gather"]


@dataclass(frozen=True, slots=True)
class Move:
    """A name that is computed in `source` and needed in `target`. `dim` is the dimension its shards lie on, if it has
    any: a gather joins on it, a scatter divides."""

    value: str
    source: str
    target: str
    kind: Kind
    dim: int | None
    span: Span | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        return f"{self.value}:{self.source}>{self.target}"


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
