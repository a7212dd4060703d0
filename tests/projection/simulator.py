"""Runs local programs for their sends and receives alone, one coroutine per instance: do they get stuck?

Written from the nodes and apart from the checker, which it is held against. How many passes a loop makes and which side
a branch takes is drawn, alike for all fragments, from the name that decides it and the passes of the loops around.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator

from msrl.ir.graph import Call, For, If, Node, Recv, Send, While
from msrl.ir.placed import LocalProgram, Move

Passes = Callable[[str], int]


def drawn(seed: int) -> Passes:
    """0 to 3, by what it is asked about."""
    return lambda about: random.Random(f"{seed} {about}").choice((0, 1, 1, 2, 3))


class Simulator:
    def __init__(self, programs: dict[str, LocalProgram], moves: tuple[Move, ...], passes: Passes,
                 room: dict[str, int | None] | None = None, instances: int = 2):
        self.moves = {move.id: move for move in moves}
        self.passes, self.room = passes, room or {}
        self.sizes = {name: instances if program.fragment.axis else 1 for name, program in programs.items()}
        self.queues: dict[tuple[str, int, int], int] = defaultdict(int)
        self.running = {(name, each): self.block(program.nodes, name, each, ())
                        for name, program in programs.items() for each in range(self.sizes[name])}

    def stuck(self, seed: int = 0) -> bool:
        """Steps whoever it is, in an order of its own, until nobody can go on. A step ends where it would wait."""
        order = random.Random(seed)
        while self.running:
            went_on = False
            for who in order.sample(sorted(self.running), len(self.running)):
                for ready in self.running[who]:
                    if not ready:
                        break
                    went_on = True
                else:
                    del self.running[who]
                    went_on = True
            if not went_on:
                return True
        return False

    def block(self, nodes: tuple[Node, ...], name: str, me: int, at: tuple) -> Iterator[bool]:
        """Yields whether it could go on."""
        for node in nodes:
            match node:
                case Send():
                    yield from self.send(node.move, me)
                case Recv():
                    yield from self.receive(node.move, me)
                case Call():
                    agreeing = [move for move in self.moves.values() if move.agrees and move.value in node.writes]
                    brings = [self.send(move.id, me) for move in agreeing if move.source == name]
                    takes = [self.receive(move.id, me) for move in agreeing if move.target == name]
                    for each in (*takes, *brings) if node.method == "serve" else (*brings, *takes):
                        yield from each
                case For():
                    for number in range(self.passes(f"{node.index} {node.start} {node.stop} {node.step} {at}")):
                        yield from self.block(node.body, name, me, (*at, node.index, number))
                case While():
                    passes = self.passes(f"{node.condition} {at}")
                    for number in range(passes + 1):
                        inside = (*at, node.condition, number)
                        yield from self.block(node.test, name, me, inside)
                        if number < passes:
                            yield from self.block(node.body, name, me, inside)
                case If():
                    side = node.then if self.passes(f"{node.condition} {at}") % 2 else node.orelse
                    yield from self.block(side, name, me, at)

    def joined(self, move: Move, source: int, target: int) -> bool:
        sources, targets = self.sizes[move.source], self.sizes[move.target]
        if move.kind == "send" and sources > 1:
            return source == target if targets > 1 else source == 0
        return True

    def send(self, move_id: str, me: int) -> Iterator[bool]:
        move = self.moves[move_id]
        mine = [(move_id, me, target) for target in range(self.sizes[move.target]) if self.joined(move, me, target)]
        for queue in mine:
            self.queues[queue] += 1
        yield True
        room = self.room.get(move_id)
        while room is not None and any(self.queues[queue] > room for queue in mine):
            yield False

    def receive(self, move_id: str, me: int) -> Iterator[bool]:
        move = self.moves[move_id]
        mine = [(move_id, source, me) for source in range(self.sizes[move.source]) if self.joined(move, source, me)]
        while not all(self.queues[queue] for queue in mine):
            yield False
        for queue in mine:
            self.queues[queue] -= 1
        yield True
