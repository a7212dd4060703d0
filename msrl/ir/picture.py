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
            sizes: Mapping[str, int], agreed: Mapping[str, tuple[int, int]]) -> Picture:
    """`agreed`: of moves by which learners agree, how often in one update and how many bytes each time, if known."""
    loops = {move: around for program in programs.values() for move, around in sends(program.nodes, ())}
    loops.update((move.id, loops[move.value]) for move in placed.moves if move.agrees)
    makers = {name: node for node in walk(placed.graph.nodes) for name in definitions(node)}

    def arrow(move: Move) -> Arrow:
        around = loops[move.id]
        times, size = trips(around[1:]), sizes.get(move.value)
        if move.agrees:
            often, size = agreed.get(move.id, (None, None))
            times = None if often is None or times is None else times * often
        return Arrow(move, label(move.value, makers.get(move.value)), size, len(around), times)

    arrows = tuple(map(arrow, placed.moves))
    return Picture(title, tuple((fragment, instances[fragment.name]) for fragment in placed.fragments), arrows)


def sends(nodes: tuple[Node, ...], around: Loops) -> Iterator[tuple[str, Loops]]:
    """Every send's move, and the state that learners agree on in their op, with the loops around it, the outermost
    first."""
    for node in nodes:
        match node:
            case Send():
                yield node.move, around
            case Call(method="learn"):
                yield node.writes[0], around
            case For() | While():
                inner = node.body if isinstance(node, For) else (*node.test, *node.body)
                yield from sends(inner, (*around, node))
            case _:
                for block in (getattr(node, name, ()) for name in ("then", "orelse")):
                    yield from sends(block, around)


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
