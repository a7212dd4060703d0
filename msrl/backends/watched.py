"""An instance's ends of the channels, watched: what it sends and takes is told to its trace, and what it waits for.

In: the channels and a trace. Out: the same channels. A message is known to both of its ends by its move, its two
instances and how many went before it on that way. Where first come is first served, weights are known by their version,
and of trajectories those are counted that were dropped, too.
"""

from collections import Counter
from typing import Any

import jax

from msrl.backends.wire_unordered import RemoteUnordered
from msrl.ir.placed import Move
from msrl.runtime.channels import Exchange, Line
from msrl.runtime.delayed import nbytes
from msrl.runtime.tracing import Key, Trace


class WatchedExchange:
    """`labels`: by move, what the user calls its value."""

    def __init__(self, exchange: Exchange, fragment: str, trace: Trace, labels: dict[str, str]):
        self.exchange, self.trace, self.labels = exchange, trace, labels
        self.rules: Any = exchange.rules if isinstance(exchange, RemoteUnordered) else exchange
        self.waiting: tuple[str, dict[str, Any]] = "its turn", {}  # for what, as of the last time that it was not there
        self.sent: Counter[Key] = Counter()  # by way: move, source, target
        self.received: Counter[Key] = Counter()
        self.turn: list[Key] = []  # the trajectories that were taken last, where the first to come are
        if exchange.unordered and exchange.moves[str(exchange.lead)].target == fragment:
            self.told, self.rules.taken = self.rules.taken, self.gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def line(self, learner: int) -> Line:
        return Line(self, learner)  # type: ignore[arg-type]

    def send(self, move_id: str, source: int, value: Any, steps: int = 0, *only: int | None) -> None:
        with self.trace.at("move", f"send {self.labels[move_id]}") as this:
            jax.block_until_ready(value)
            self.exchange.send(move_id, source, value, steps, *only)
            this.sent = self.leaving(self.exchange.moves[move_id], source, *only)
            this.args = self.about(this.sent, move_id, value)

    def send_together(self, source: int, held: list[tuple[str, Any, int]]) -> None:
        with self.trace.at("move", f"send {' + '.join(self.labels[move_id] for move_id, _, _ in held)}") as this:
            values = jax.block_until_ready([value for _, value, _ in held])
            self.exchange.send_together(source, held)
            this.sent = tuple(key for move_id, _, _ in held
                              for key in self.leaving(self.exchange.moves[move_id], source))
            this.args = self.about(this.sent, held[0][0], values)

    def leaving(self, move: Move, source: int, only: int | None = None) -> tuple[Key, ...]:
        """What has been sent, as both ends know it."""
        if self.exchange.unordered and move.kind in ("broadcast", "scatter"):
            return ((move.id, "version", self.rules.version),)
        ways = [(move.id, source, target) for target in range(len(self.exchange.sizes[move.target]))
                if self.exchange.joined(move, source, target) and only in (None, target)]
        self.sent.update(ways)
        return tuple((*way, self.sent[way]) for way in ways)

    def about(self, keys: tuple[Key, ...], move_id: str, value: Any) -> dict[str, Any]:
        target = self.exchange.moves[move_id].target
        instances = sorted({key[2] for key in keys if key[1] != "version"})
        return {"bytes": nbytes(value), "to": [f"{target} {number}" for number in instances] or [target]}

    def ready(self, move_id: str, target: int, *only: int | None) -> bool:
        found = self.exchange.ready(move_id, target, *only)
        if not found:
            move, channels = self.exchange.moves[move_id], self.exchange.channels
            sources = [] if self.exchange.unordered else self.exchange.sources(move, target, *only)
            self.waiting = f"{self.labels[move_id]} from {move.source}", {
                "from": [f"{move.source} {source}" for source in sources if not channels[move_id, source, target]]}
        return found

    def full(self, move_id: str, source: int) -> bool:
        found = self.exchange.full(move_id, source)
        if found:
            move = self.exchange.moves[move_id]
            self.waiting = f"{move.target} to take {self.labels[move_id]}", {}
        return found

    def receive(self, move_id: str, target: int, *only: int | None) -> Any:
        move = self.exchange.moves[move_id]
        with self.trace.at("move", f"receive {self.labels[move_id]}") as this:
            self.turn = [] if move_id == self.exchange.lead else self.turn
            value = jax.block_until_ready(self.exchange.receive(move_id, target, *only))
            this.taken = self.arriving(move, target, *only)
            this.args = {"bytes": nbytes(value), "from": [f"{move.source} {key[1]}" for key in this.taken
                                                        if key[1] != "version"] or [move.source]}
        return value

    def arriving(self, move: Move, target: int, only: int | None = None) -> tuple[Key, ...]:
        """What has been taken, as both ends know it."""
        if self.exchange.unordered:
            if move.kind in ("broadcast", "scatter"):
                return ((move.id, "version", self.rules.seen[target]),)
            return tuple(self.turn) if move.id == self.exchange.lead else ()
        ways = [(move.id, source, target) for source in self.exchange.sources(move, target, only)]
        self.received.update(ways)
        return tuple((*way, self.received[way]) for way in ways)

    def gone(self, source: int) -> None:
        """A trajectory lies here no more: taken, or dropped."""
        way = str(self.exchange.lead), source, 0
        self.received[way] += 1
        self.turn.append((*way, self.received[way]))
        self.told(source)
