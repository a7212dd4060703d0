"""coalesce-moves: local programs → local programs. What can leave together is one message.

Within a block, values for the same fragment are held until the sender may wait or be busy for long: until its next
receive, loop, learning, or the block's end; then they leave together (`Flush`). What is sent in a loop is held until
after the loop if, inside the loop, nothing that its receiver sends leads back to the sender, so that nobody waits in a
circle: of a loop that fills a replay, one message remains. Who receives takes what came together at one place.

This trades memory, and work that could overlap, for messages, so it has a bound: a worker that holds more than a few
megabytes for a fragment (msrl/backends/outbox.py) lets them go at once. Values and their order do not change.

Why nobody waits for ever: all programs follow one order, that of the loop. A sender waits for a value made at some
place of it only after the receive that stands there, and before that receive it has let go of everything from earlier
places, except what it holds for those that can have no part in the value.
"""

from collections.abc import Mapping
from dataclasses import replace

from msrl.ir.graph import Call, Flush, For, If, Node, Recv, Send, While, blocks, is_resource, walk
from msrl.ir.placed import LocalProgram, Move

Edges = frozenset[tuple[str, str]]  # (source, target)


def coalesce_moves(programs: Mapping[str, LocalProgram], moves: Mapping[str, Move]) -> dict[str, LocalProgram]:
    loops: dict[str, Edges] = {}
    for program in programs.values():
        for node in walk(program.nodes):
            if isinstance(node, (For, While)):
                found = {(move.source, move.target) for each in walk((node,)) for move in _sent(each, moves)}
                loops[_key(node)] = loops.get(_key(node), frozenset()) | found
    groups: dict[str, int] = {}
    held = {name: replace(program, nodes=_Sender(name, loops, moves, groups).block(program.nodes, ())[0])
            for name, program in programs.items()}
    return {name: replace(program, nodes=_received(program.nodes, groups)) for name, program in held.items()}


def _sent(node: Node, moves: Mapping[str, Move]) -> list[Move]:
    """What leaves by a node itself; where learners agree, that is within an op."""
    match node:
        case Send():
            return [moves[node.move]]
        case Call():
            return [move for move in moves.values() if move.agrees and move.value in node.writes]
    return []


def _key(loop: For | While) -> str:
    """What names the loop in every program."""
    return loop.index if isinstance(loop, For) else loop.condition


def reaches(start: str, goal: str, edges: Edges) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for source, target in edges:
            if source == here and target == goal:
                return True
            if source == here and target not in seen:
                seen.add(target)
                waiting.append(target)
    return False


class _Sender:
    """One fragment's sends. `groups` gains, for every move that leaves with others, the number of their group."""

    def __init__(self, fragment: str, loops: Mapping[str, Edges], moves: Mapping[str, Move], groups: dict[str, int]):
        self.fragment, self.loops, self.moves, self.groups = fragment, loops, moves, groups

    def block(self, nodes: tuple[Node, ...], around: tuple[str, ...]) -> tuple[tuple[Node, ...], set[str]]:
        """The block, and the fragments for which something is still held at its end. `around`: the loops."""
        kept: list[Node | None] = []  # None where a send was that is held further down
        waiting: dict[str, list[int]] = {}  # fragment → where in `kept` its sends stand, since the last flush
        inside: dict[str, None] = {}  # fragments for which a loop has left something held
        escaping: dict[str, list[int]] = {}  # the same as `waiting`, of what is held beyond this block

        def flush() -> None:
            for target in dict.fromkeys((*waiting, *inside)):
                if self.together(kept, waiting.get(target, []), target in inside):
                    kept.append(Flush(target))
            waiting.clear()
            inside.clear()

        for node in nodes:
            if self.waits(node):
                flush()
            if isinstance(node, (For, While, If)):
                node, still = self.within(node, around)
                inside.update((target, None) for target in sorted(still) if not self.escapes(target, around))
                escaping.update((target, escaping.get(target, [])) for target in still if self.escapes(target, around))
            elif isinstance(node, Send) and self.moves[node.move].target != self.fragment:
                target = self.moves[node.move].target
                (escaping if self.escapes(target, around) else waiting).setdefault(target, []).append(len(kept))
            kept.append(node)
        flush()
        for positions in escaping.values():
            self.together(kept, positions, more=True)
        return tuple(node for node in kept if node is not None), set(escaping)

    def together(self, kept: list[Node | None], positions: list[int], more: bool) -> bool:
        """Lets the sends at these places be held, at the end of what is kept; a resource stays, where its copy is
        taken before it is written over. One send alone is left as it is."""
        if len(positions) == 1 and not more:
            return False
        number = len(self.groups)
        for at in positions:
            send = kept[at]
            assert isinstance(send, Send)
            self.groups[send.move] = number
            if is_resource(send.value):
                kept[at] = replace(send, held=True)
            else:
                kept[at] = None
                kept.append(replace(send, held=True))
        return True

    def within(self, node: For | While | If, around: tuple[str, ...]) -> tuple[Node, set[str]]:
        if isinstance(node, If):
            (then, one), (orelse, two) = self.block(node.then, around), self.block(node.orelse, around)
            return replace(node, then=then, orelse=orelse), one | two
        around = (*around, _key(node))
        body, still = self.block(node.body, around)
        if isinstance(node, For):
            return replace(node, body=body), still
        test, more = self.block(node.test, around)
        return replace(node, test=test, body=body), still | more

    def escapes(self, target: str, around: tuple[str, ...]) -> bool:
        """Can what is sent there be held until after the innermost loop?"""
        return bool(around) and not reaches(target, self.fragment, self.loops[around[-1]])

    def waits(self, node: Node) -> bool:
        match node:
            case Recv() | For() | While():
                return True
            case Call():
                return (node.component, node.method) == ("learner", "learn")
            case If():
                return any(isinstance(inner, (Send, Recv, For, While)) for inner in walk((node,)))
        return False


def _received(nodes: tuple[Node, ...], groups: Mapping[str, int]) -> tuple[Node, ...]:
    """The block with all of a group received where the first of it is, so that what follows is not cut in two; what
    nothing follows stays."""
    last = max((at for at, node in enumerate(nodes) if not isinstance(node, (Recv, Send, Flush))), default=-1)
    together: dict[int, list[Node]] = {}
    for node in nodes[:last + 1]:
        if isinstance(node, Recv) and node.move in groups:
            together.setdefault(groups[node.move], []).append(node)
    found: list[Node] = []
    for at, node in enumerate(nodes):
        inner = [_received(block, groups) for block in blocks(node)]
        match node:
            case Recv(move=move) if move in groups and at < last:
                found += together.pop(groups[move], [])
            case For():
                found.append(replace(node, body=inner[0]))
            case While():
                found.append(replace(node, test=inner[0], body=inner[1]))
            case If():
                found.append(replace(node, then=inner[0], orelse=inner[1]))
            case _:
                found.append(node)
    return tuple(found)
