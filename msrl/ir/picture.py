"""What there is to draw of a placed graph: fragments with their replicas, and moves with how often and how much.

In: a placed graph, its local programs, the number of instances of each fragment, and the size of every name in bytes
(found elsewhere, since shapes need JAX). Out: a `Picture`, which `drawing` and `page` show. It always holds that a move
is counted where its home sends it, in the loops of the local program that runs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msrl.ir.graph import Call, For, Node, Pure, Send, While, base, definitions, walk
from msrl.ir.placed import Fragment, LocalProgram, Move, PlacedGraph

Loops = tuple[For | While, ...]
_UNNAMED = "t"  # what the front end calls values that have no variable


@dataclass(frozen=True, slots=True)
class Arrow:
    """A move. `times` is how often it happens in one pass of the outermost loop: None if that is not known before the
    run. A move outside all loops happens `once`."""

    move: Move
    label: str  # what the user would call the value
    size: int | None  # bytes, each time
    depth: int  # loops around it
    times: int | None

    @property
    def when(self) -> str:
        return ("once", "per update", "per step")[min(self.depth, 2)]

    @property
    def per_update(self) -> int | None:
        """Bytes in one pass of the outermost loop."""
        if self.depth == 0:
            return 0
        return None if self.size is None or self.times is None else self.size * self.times


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    fragments: tuple[tuple[Fragment, int], ...]  # with the number of instances
    arrows: tuple[Arrow, ...]

    @property
    def per_update(self) -> int:
        """Bytes that are known to move in one pass of the outermost loop."""
        return sum(arrow.per_update or 0 for arrow in self.arrows)

    @property
    def open_ended(self) -> bool:
        """Is there more, in loops whose length is not known?"""
        return any(arrow.per_update is None for arrow in self.arrows)


def picture(title: str, placed: PlacedGraph, programs: Mapping[str, LocalProgram], instances: Mapping[str, int],
            sizes: Mapping[str, int]) -> Picture:
    makers = {name: node for node in walk(placed.graph.nodes) for name in definitions(node)}
    # What learners agree on is in no send of theirs: they do so where the state is written.
    agreed = {move.value: move.id for move in placed.moves if move.kind == "allreduce"}
    loops: dict[str, Loops] = {}
    for program in programs.values():
        for node, around in everywhere(program.nodes, ()):
            if isinstance(node, Send):
                loops[node.move] = around
            elif isinstance(node, Call):
                loops.update((agreed[name], around) for name in node.writes if name in agreed)

    def arrow(move: Move) -> Arrow:
        maker = makers.get(move.value)
        value: str | None = move.value
        if move.kind == "allreduce" and isinstance(maker, Call):
            value = maker.out if move.axis == "agent" else None  # by agent, they share what they return and no more
        size = sizes.get(value) if value else None
        return Arrow(move, label(move.value, maker), size, len(loops[move.id]), trips(loops[move.id][1:]))

    arrows = tuple(map(arrow, placed.moves))
    return Picture(title, tuple((fragment, instances[fragment.name]) for fragment in placed.fragments), arrows)


def everywhere(nodes: tuple[Node, ...], around: Loops) -> Iterator[tuple[Node, Loops]]:
    """Every node, with the loops around it, the outermost first."""
    for node in nodes:
        yield node, around
        match node:
            case For() | While():
                inner = node.body if isinstance(node, For) else (*node.test, *node.body)
                yield from everywhere(inner, (*around, node))
            case _:
                for block in (getattr(node, name, ()) for name in ("then", "orelse")):
                    yield from everywhere(block, around)


def trips(loops: Loops) -> int | None:
    """How often the innermost body runs in one pass of what is around them all."""
    total = 1
    for loop in loops:
        passes = loop.trips if isinstance(loop, For) else None
        if passes is None:
            return None
        total *= passes
    return total


def label(name: str, maker: Node | None) -> str:
    """A variable's name, or what made the value where it has none."""
    if base(name) != _UNNAMED:
        return base(name).removeprefix("$")
    match maker:
        case Call():
            return f"{maker.component}.{maker.method}"
        case Pure():
            return maker.expr
    return base(name)


def bytes_in_words(count: int | None) -> str:
    if count is None:
        return "?"
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"


def copies(fragment: Fragment, count: int) -> str:
    """`actor ×2`."""
    return f"{fragment.name} ×{count}" if fragment.axis and count > 1 else fragment.name
