"""A local program's communication, and nothing else of it: what it sends and receives, in which loops and branches.

`actions` is the one place that says what a node communicates, and where: what a pass holds back is a `hold` where it is
made and a `flush` where it leaves. Everything without communication is left out. A `Nest` is known by its key alone: of
the loops and branches of two programs, those with equal keys make equal numbers of passes and equal decisions, since a
name has one value wherever it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from msrl.errors import Span
from msrl.ir.graph import Call, For, If, Node, Recv, Send, While
from msrl.ir.placed import PARAMETERS, LocalProgram, Move

Key = tuple[int | str, ...]
Path = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """`send` puts a message into the move's channel, `recv` waits for one and takes it. `hold` keeps one back until a
    `flush` to the fragment `name`, which sends all that was held for it in the flush's own block and those inside."""

    kind: Literal["send", "recv", "hold", "flush"]
    move: str  # of a flush: empty
    name: str  # what the value is called in the program
    path: Path  # the loops and branches it is in, outermost first
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop or branch that holds communication, and its sides. A pass of a loop goes through all of them; when a
    `while` ends, its first has been gone through once more."""

    key: Key
    sides: tuple[tuple["Item", ...], ...]


Item = Action | Nest
Agreed = dict[str, list[tuple[Literal["send", "recv"], str]]]  # state → what is done by which moves


def actions(program: LocalProgram, moves: Mapping[str, Move]) -> tuple[Item, ...]:
    """What the program sends and receives. `moves`, by id, say where learners agree, which is within an op: they bring
    something and take something, and whoever keeps their parameters first takes and then brings."""
    agreed: Agreed = {}
    own = program.fragment.name
    for kind in ("recv", "send") if PARAMETERS in program.fragment.components else ("send", "recv"):
        for move in moves.values():
            if move.agrees and own == (move.source if kind == "send" else move.target):
                agreed.setdefault(move.value, []).append((kind, move.id))
    return _block(program.nodes, agreed, ())


def _block(nodes: tuple[Node, ...], agreed: Agreed, path: Path) -> tuple[Item, ...]:
    items: list[Item] = []
    for node in nodes:
        match node:
            case Send():
                items.append(Action("send", node.move, node.value, path, node.span))
            case Recv():
                items.append(Action("recv", node.move, node.out, path, node.span))
            case Call():
                items += [Action(kind, move, name, path, node.span)
                          for name in node.writes for kind, move in agreed.get(name, ())]
            case For() | While() | If():
                key, sides = _sides(node)
                inner = tuple(_block(block, agreed, (*path, (*key, side))) for side, block in sides)
                items += [Nest(key, inner)] if any(inner) else []
    return tuple(items)


def _sides(node: For | While | If) -> tuple[Key, tuple[tuple[str, tuple[Node, ...]], ...]]:
    match node:
        case For():
            return ("for", node.index, node.start, node.stop, node.step), (("body", node.body),)
        case While():
            return ("while", node.condition), (("test", node.test), ("body", node.body))
        case If():
            return ("if", node.condition), (("then side", node.then), ("else side", node.orelse))


def flat(items: tuple[Item, ...]) -> Iterator[Action]:
    """Every action once, as the program has it."""
    return unrolled(items, 1, last_test=False)


def unrolled(items: tuple[Item, ...], passes: int, last_test: bool = True) -> Iterator[Action]:
    """The actions of a run in which every loop makes this number of passes, and of a branch both sides are taken, one
    after the other."""
    for item in items:
        if isinstance(item, Action):
            yield item
            continue
        for _ in range(1 if item.key[0] == "if" else passes):
            for side in item.sides:
                yield from unrolled(side, passes, last_test)
        if item.key[0] == "while" and last_test:
            yield from unrolled(item.sides[0], passes, last_test)


def show_path(path: Path) -> str:
    """In words: `the body of for i.1, the then side of if condition.2`."""
    return ", ".join(f"the {key[-1]} of {key[0]} {key[1]}" for key in path) or "no loop or branch"
