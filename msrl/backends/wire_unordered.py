"""What moves between processes, first come, first served: one instance's ends of all channels.

The rules are those of `msrl.runtime.unordered`, which each process keeps for its own end: an actor's has the newest
weights, the learner's has the trajectories that arrived. Weights and trajectories carry their version. A learner tells
an actor of every trajectory that lies there no more, so that it knows when to wait, and all of the end.
"""

from dataclasses import replace
from typing import Any

import jax

from msrl.backends.wire import Message, Post, RemoteExchange, unpack
from msrl.ir.placed import Move
from msrl.runtime.unordered import QUEUE, UnorderedExchange

NOTE = Message("", 0, 0, ((), []))


class RemoteUnordered(RemoteExchange):
    unordered = True

    def __init__(self, moves: tuple[Move, ...], sizes: dict[str, tuple[int, ...]], instance: int,
                 trees: dict[str, Any], post: Post, lead: str, max_lag: int | None):
        super().__init__(moves, sizes, instance, trees, post)
        self.rules = UnorderedExchange(moves, sizes, max_lag)
        self.rules.lead = self.lead = lead
        self.rules.changed, self.rules.tell = self.changed, self.tell  # type: ignore[method-assign]
        self.rules.taken, self.ledger = self.release, self.rules.ledger
        self.untaken = 0  # of this actor's trajectories

    def send(self, move_id: str, source: int, value: Any, steps: int = 0, only: int | None = None) -> None:
        move = self.moves[move_id]
        with self.changed:
            if move.kind in ("broadcast", "scatter"):
                self.rules.version += move.value.startswith("$weights")
                self.version = self.rules.version
            else:
                self.version = self.rules.seen[source]
                self.untaken += move_id == self.lead
        super().send(move_id, source, value, steps, only)

    def deliver(self, message: Message) -> None:
        if not message.note:
            super().deliver(message)
            return
        with self.changed:
            if message.note == "taken":
                self.untaken -= 1
            else:
                self.closed = True
            self.tell()

    def accept(self, message: Message) -> None:
        value = jax.tree.unflatten(self.tree(message), unpack(message.leaves))
        if self.moves[message.move].kind in ("broadcast", "scatter"):
            self.rules.version = max(self.rules.version, message.version)
            self.rules.newest[message.move, self.instance] = value
        else:
            self.rules.seen[message.source] = message.version
            self.rules.send(message.move, message.source, value, message.steps)

    def full(self, move_id: str, source: int) -> bool:
        return move_id == self.lead and self.untaken >= QUEUE

    def ready(self, move_id: str, target: int, only: int | None = None) -> bool:
        return self.rules.ready(move_id, target)

    def receive(self, move_id: str, target: int, only: int | None = None) -> Any:
        return self.rules.receive(move_id, target)

    def release(self, actor: int) -> None:
        self.post(self.moves[str(self.lead)].source, [actor], replace(NOTE, note="taken"))

    def close(self, instance: int = 0) -> None:
        super().close(instance)
        learner = self.moves[str(self.lead)].target
        for fragment, sizes in self.sizes.items():
            if fragment != learner:
                self.post(fragment, range(len(sizes)), replace(NOTE, note="closed"))
