"""Local programs cannot wait for one another in a circle: the check, and how many messages channels must hold.

Programs and moves go in; `check_deadlock` raises where fragments would wait for one another, naming the circle, and
`capacities` gives for every move the messages that its channels need room for.

Sends go to unbounded channels, so only receives wait. The actions are executed for a few passes of every loop, through
both sides of every branch; docs/ir.md#deadlock has the proof that this stands for all runs and any number of instances.
It supposes what `msrl.projection.verify` checks first: both ends of a move are in the same loops and branches.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msrl.errors import Span, VerifyError
from msrl.ir.graph import base
from msrl.ir.placed import LocalProgram, Move
from msrl.projection.actions import Action, Item, actions, unrolled

DOCS = "docs/ir.md#deadlock"


def check_deadlock(programs: Mapping[str, LocalProgram], moves: Iterable[Move]) -> None:
    """Raises VerifyError with a circle of fragments that wait for one another, if there can be one."""
    known = {move.id: move for move in moves}
    check_actions({name: actions(program, known) for name, program in programs.items()}, known)


def check_actions(items: Mapping[str, tuple[Item, ...]], moves: Mapping[str, Move]) -> None:
    """The same of what the programs send and receive."""
    stuck = run(items, moves, max(2, len(items)))
    if not stuck:
        return
    hops, closed = _circle(stuck, moves)
    spans: list[Span] = list(dict.fromkeys(action.span for _, action in hops if action.span))
    awaited = [f"{base(action.name)}{f' ({action.span})' if action.span else ''} of {moves[action.move].source}"
               for _, action in hops]
    raise VerifyError(
        "The fragments wait for one another." if closed else f"{hops[-1][0]} waits for a message that nobody sends.",
        span=spans[0] if spans else None, also=spans[1] if len(spans) > 1 else None,
        why=f"{hops[0][0]} waits for {', which waits for '.join(awaited)}{'' if closed else ', which is done'}.",
        docs=DOCS)


def _circle(stuck: Mapping[str, Action], moves: Mapping[str, Move]) -> tuple[list[tuple[str, Action]], bool]:
    """(who, waits for what), each for something of the next. Is the first one the last one's next? Else that is done,
    and what is waited for never comes."""
    order: list[str] = []
    at = next(iter(stuck))
    while at in stuck and at not in order:
        order.append(at)
        at = moves[stuck[at].move].source
    closed = at in stuck
    return [(name, stuck[name]) for name in (order[order.index(at):] if closed else order)], closed


@dataclass
class _Place:
    """How far a program has come."""

    left: list[Action]  # the next one last
    held: list[Action] = field(default_factory=list)
    posted: tuple[str, ...] | None = None  # by its next action, which waits for room


def run(items: Mapping[str, tuple[Item, ...]], moves: Mapping[str, Move], passes: int,
        room: Mapping[str, int] | None = None) -> dict[str, Action]:
    """Executes the actions as far as they go; returns what each program that is not done waits at.

    `room`: messages that the channels of a move hold; those of others have no bound. A send is over when there is room
    for its message, so with none when the message is received. Whoever can go on does: which one goes first makes no
    difference, since each channel has one sender and one receiver, and neither looks at any other.
    """
    places = {name: _Place(list(unrolled(mine, passes))[::-1]) for name, mine in items.items()}
    room = room or {}
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    moved = True
    while moved:
        moved = False
        for place in places.values():
            while place.left:
                action = place.left[-1]
                if action.kind == "recv":
                    if sent[action.move] <= received[action.move]:
                        break
                    received[action.move] += 1
                else:
                    if place.posted is None:
                        place.posted = _leaving(action, place, moves)
                        sent.update(place.posted)
                        moved = moved or bool(place.posted)
                    if any(move in room and received[move] < sent[move] - room[move] for move in place.posted):
                        break
                    place.posted = None
                place.left.pop()
                moved = True
    return {name: place.left[-1] for name, place in places.items() if place.left}


def _leaving(action: Action, place: _Place, moves: Mapping[str, Move]) -> tuple[str, ...]:
    """The moves of the messages that leave now."""
    if action.kind == "send":
        return (action.move,)
    if action.kind == "hold":
        place.held.append(action)
        return ()
    freed = [held for held in place.held if moves[held.move].target == action.name
             and held.path[:len(action.path)] == action.path]
    place.held = [held for held in place.held if held not in freed]
    return tuple(held.move for held in freed)


def capacities(programs: Mapping[str, LocalProgram], moves: Iterable[Move]) -> dict[str, int | None]:
    """For every move, how many messages each of its channels must hold so that the programs cannot get stuck: with one
    less for any of them, and the others as given, they can. 0: whoever sends may wait until it is received. None: no
    number will do for all runs, as it grows with the passes of a loop. Where either of two moves needs room, it is the
    later of them in `moves`."""
    known = {move.id: move for move in moves}
    items = {name: actions(program, known) for name, program in programs.items()}
    passes = 2 * max(2, len(items))
    least, more = (_least(items, known, passes + extra) for extra in (0, 1))
    return {move: least[move] if least[move] == more[move] else None for move in known}


def _least(items: Mapping[str, tuple[Item, ...]], moves: Mapping[str, Move], passes: int) -> dict[str, int]:
    count = Counter(action.move for mine in items.values() for action in unrolled(mine, passes)
                    if action.kind == "recv")
    room = {move: count[move] for move in moves}
    assert not run(items, moves, passes, room), "refused by check_deadlock"
    for move in moves:
        low, high = 0, room[move]
        while low < high:
            middle = (low + high) // 2
            if run(items, moves, passes, {**room, move: middle}):
                low = middle + 1
            else:
                high = middle
        room[move] = low
    return room
