"""Channels of an asynchronous distribution: first come, first served.

Actors never wait for the learner's values: they take the newest there are. The learner takes the trajectories that
arrive first, whoever sends them, as many as a batch has parts. One that is more than `max_lag` updates older than the
weights is dropped where it is received. An actor whose trajectories lie untaken waits, so that memory is bounded.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from msrl.ir.placed import Move
from msrl.runtime.channels import Exchange

QUEUE = 2  # trajectories of one actor that may lie untaken


class UnorderedExchange(Exchange):
    unordered = True

    def __init__(self, moves: tuple[Move, ...], sizes: dict[str, tuple[int, ...]], max_lag: int | None):
        super().__init__(moves, sizes)
        self.max_lag = max_lag
        self.newest: dict[tuple[str, int], Any] = {}  # (move, target) → value
        self.version = 0  # how often weights were sent
        self.seen: Counter[int] = Counter()  # actor → the version it has
        self.tickets: dict[int, deque[tuple[int, int]]] = {}  # actor → (version, steps) of what lies untaken
        self.arrivals: deque[int] = deque()  # actors, in the order of their trajectories
        self.turn: list[int] = []  # whose parts make up the learner's present batch
        self.late: Counter[tuple[str, int]] = Counter()  # parts still to come of what was dropped
        self.taken: Callable[[int], None] = lambda actor: None  # is told whose trajectory lies here no more

    def send(self, move_id: str, source: int, value: Any, steps: int = 0) -> None:
        move = self.moves[move_id]
        with self.changed:
            if move.kind in ("broadcast", "scatter"):
                self.version += move.value.startswith("$weights")
                self.newest.update({(move_id, target): part for target, part in enumerate(self.parts(move, value))})
            else:
                self.channels[move_id, source, 0].append(value)
                if move_id == self.lead:
                    self.ledger.send(steps)
                    self.tickets.setdefault(source, deque()).append((self.seen[source], steps))
                    self.arrivals.append(source)
            self.tell()

    def full(self, move_id: str, source: int) -> bool:
        return move_id == self.lead and len(self.tickets.get(source, ())) >= QUEUE

    def ready(self, move_id: str, target: int) -> bool:
        move = self.moves[move_id]
        if move.kind in ("broadcast", "scatter"):
            return (move_id, target) in self.newest
        if move_id != self.lead:
            wanted = Counter(self.turn) if self.turn else Counter(self.sources(move, target))
            return all(len(self.channels[move_id, source, 0]) >= count + self.late[move_id, source]
                       for source, count in wanted.items())
        with self.changed:
            self.drop_late()
            return len(self.arrivals) >= len(self.sizes[move.source])

    def drop_late(self) -> None:
        """Looks at the oldest first: behind one that is fresh enough, all of the same actor are."""
        for source in list(self.arrivals):
            version, steps = self.tickets[source][0]
            if self.max_lag is not None and self.version - version > self.max_lag:
                self.tickets[source].popleft()
                self.arrivals.remove(source)
                self.channels[str(self.lead), source, 0].popleft()
                self.late.update((move.id, source) for move in self.moves.values()
                                 if move.kind == "gather" and move.id != self.lead)
                self.ledger.drop(steps, "lag")
                self.taken(source)
                self.tell()

    def receive(self, move_id: str, target: int) -> Any:
        move = self.moves[move_id]
        if move.kind in ("broadcast", "scatter"):
            with self.changed:  # the version is that of the weights, even if others are being sent
                if move.value.startswith("$weights"):
                    self.seen[target] = self.version
                return self.newest[move_id, target]
        with self.changed:
            if move_id == self.lead:
                self.turn = [self.arrivals.popleft() for _ in self.sizes[move.source]]
                for source in self.turn:
                    version, steps = self.tickets[source].popleft()
                    self.ledger.take(steps, self.version - version)
                    self.taken(source)
            parts = [self.take(move_id, source) for source in self.turn or self.sources(move, target)]
            self.tell()
        return self.join(move, parts)

    def take(self, move_id: str, source: int) -> Any:
        while self.late[move_id, source]:
            self.channels[move_id, source, 0].popleft()
            self.late[move_id, source] -= 1
        return self.channels[move_id, source, 0].popleft()
