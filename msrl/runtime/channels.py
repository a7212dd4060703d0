"""What moves between the instances of fragments, within one process.

A channel is known by its move and the two instances it joins, and keeps order: what was sent first is received first.
A gather joins the parts of all source instances in the order of their shards, an allgather does so for each of them; a
scatter divides among the targets; a broadcast gives all the same. Where learners agree, a gather or an allreduce gives
the list of what the instances bring. Values are handed over without a copy, so whoever sends must not write over them.
"""

from collections import deque
from collections.abc import Mapping
from threading import Condition, get_ident
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.ir.placed import Move
from msrl.runtime.ledger import Ledger
from msrl.runtime.store import Store


class Exchange:
    """All channels of a run. `sizes` gives, for each fragment, how many environments each of its instances has; of one
    that is replicated over agents, how many agents."""

    unordered = False  # first come, first served?
    devices_differ = False  # has every instance one of its own?
    max_lag: int | None = None

    def __init__(self, moves: tuple[Move, ...], sizes: dict[str, tuple[int, ...]]):
        self.moves = {move.id: move for move in moves}
        self.sizes = sizes
        self.agents: Mapping[str, tuple[int, ...]] = {}  # by name: the dimension of each leaf that agents lie on, or -1
        self.channels: dict[tuple[str, int, int], deque[Any]] = {}
        # The same by move and one of the ends: which instance is at the other end, and the channel.
        self.leaving: dict[tuple[str, int], list[tuple[int, deque[Any]]]] = {}
        self.arriving: dict[tuple[str, int], list[tuple[int, deque[Any]]]] = {}
        self.changed = Condition()
        self.news = 0  # how often there was something to look at
        self.patient: dict[int, int] = {}  # thread that sends and tells nobody yet → how often
        self.untold = False  # is there news of such a thread?
        self.closed = False  # the learner is done: those who work for it may stop
        self.ended: list[int] = []  # instances of the learner's fragment, in the order in which they were done
        self.lead: str | None = None  # the move by which trajectories reach the learner, if there is one
        self.ledger = Ledger()
        self._steps: dict[int, deque[int]] = {}  # source → environment steps of its trajectories on their way
        self.store: Store | None = None  # the parameters, where one place keeps those of all learners
        self.lockstep = True  # do learners meet at every agreement?
        # How learners agree, by the state that they agree on: the move that brings, and the one that takes away. One
        # instance alone has nobody to ask.
        self.among: dict[str, tuple[str, str]] = {}
        for move in moves:
            if move.agrees and not (move.kind == "allreduce" and len(sizes[move.source]) == 1):
                first, _ = self.among.setdefault(move.value, (move.id, move.id))
                self.among[move.value] = first, move.id
        for move in moves:
            for source in range(len(sizes[move.source])):
                for target in range(len(sizes[move.target])):
                    channel = self.channels[move.id, source, target] = deque()
                    if self.joined(move, source, target):
                        self.leaving.setdefault((move.id, source), []).append((target, channel))
                        self.arriving.setdefault((move.id, target), []).append((source, channel))

    def send(self, move_id: str, source: int, value: Any, steps: int = 0, only: int | None = None) -> None:
        """`steps`: environment steps since the last message of the same move, if it is the one that leads. `only`: the
        instance that it is for, if it is not for all."""
        self.put(move_id, source, value, steps, only)
        with self.changed:
            self.tell()

    def send_together(self, source: int, held: list[tuple[str, Any, int]]) -> None:
        """Several values for one fragment as one message: (move, value, steps) of each."""
        for move_id, value, steps in held:
            self.put(move_id, source, value, steps)
        with self.changed:
            self.tell()

    def put(self, move_id: str, source: int, value: Any, steps: int, only: int | None = None) -> None:
        move = self.moves[move_id]
        if move_id == self.lead:
            self.enter(source, steps)
        parts = self.parts(move, value)
        for target, channel in self.leaving.get((move_id, source), ()):
            if only is None or only == target:
                channel.append(parts[target])

    def tell(self) -> None:
        """Wakes whoever waits. `changed` is held."""
        self.news += 1
        if (thread := get_ident()) in self.patient:
            self.patient[thread] += 1
            self.untold = True
        else:
            self.changed.notify_all()

    def tell_now(self) -> None:
        with self.changed:
            self.untold = False
            self.changed.notify_all()

    def wait(self, seen: int) -> int:
        """Sleeps until there is more news than was seen, and returns how much there is: what arrives between a look
        at the channels and this call is not slept through."""
        with self.changed:
            self.changed.wait_for(lambda: self.news != seen)
            return self.news

    def enter(self, source: int, steps: int) -> None:
        """Accounts for a trajectory on its way."""
        with self.changed:
            self.ledger.send(steps)
            self._steps.setdefault(source, deque()).append(steps)

    def full(self, move_id: str, source: int) -> bool:
        """Must the sender wait?"""
        return False

    def leave(self) -> None:
        """Nobody sends any more. Nothing is on its way here but what lies in the channels."""

    def close(self, instance: int = 0) -> None:
        with self.changed:
            self.closed = True
            self.ended.append(instance)
            self.tell()

    def joined(self, move: Move, source: int, target: int) -> bool:
        """Does this pair of instances have a message to pass?"""
        if move.kind == "send" and len(self.sizes[move.source]) > 1:
            # Between fragments replicated alike, each to its own; of a whole value, the first copy will do.
            return source == target if len(self.sizes[move.target]) > 1 else source == 0
        return True

    def parts(self, move: Move, value: Any) -> list[Any]:
        targets = self.sizes[move.target]
        if move.kind != "scatter" or len(targets) == 1:
            return [value] * len(targets)
        cuts = tuple(np.cumsum(targets)[:-1].tolist())

        def cut(x: Any, dim: int) -> list[Any]:
            if dim < 0:  # the same for all
                return [x] * len(targets)
            return np.split(x, cuts, axis=dim) if isinstance(x, np.ndarray) else _split(x, cuts, dim)

        leaves, tree = jax.tree.flatten(value)
        columns = list(map(cut, leaves, self.dims(move, leaves)))
        return [jax.tree.unflatten(tree, [column[number] for column in columns]) for number in range(len(targets))]

    def dims(self, move: Move, leaves: list[Any]) -> list[int]:
        """The dimension on which each leaf of a value is cut or joined; -1 if it is not."""
        if move.axis == "agent":
            return list(self.agents.get(move.value) or [-1] * len(leaves))
        assert move.dim is not None
        return [move.dim if np.ndim(leaf) > move.dim else -1 for leaf in leaves]

    def sources(self, move: Move, target: int, only: int | None = None) -> list[int]:
        """Whom the target is to hear of: all who have something for it, or the one that it asks for."""
        return [source for source, _ in self.arriving[move.id, target] if only is None or only == source]

    def ready(self, move_id: str, target: int, only: int | None = None) -> bool:
        for source, channel in self.arriving[move_id, target]:  # noqa: SIM110 (asked often, and `all` takes longer)
            if not channel and only in (None, source):
                return False
        return True

    def receive(self, move_id: str, target: int, only: int | None = None) -> Any:
        move = self.moves[move_id]
        parts = [channel.popleft() for source, channel in self.arriving[move_id, target] if only in (None, source)]
        if move_id == self.lead:
            with self.changed:
                for source in self.sources(move, target, only):
                    self.ledger.take(self._steps[source].popleft())
        if self.devices_differ and move.kind == "allgather":  # to where the receiver's own part is
            parts = [jax.tree.map(lambda x, own: jax.device_put(x, own.sharding) if isinstance(own, jax.Array) else x,
                                  part, parts[target]) for part in parts]
        return self.join(move, parts)

    def line(self, learner: int) -> "Line":
        return Line(self, learner)

    def join(self, move: Move, parts: list[Any]) -> Any:
        if move.agrees and move.kind in ("allreduce", "gather"):
            return parts
        if move.dim is None or move.kind not in ("gather", "allgather") or len(parts) == 1:
            return parts[0]

        def leaf(dim: int, *xs: Any) -> Any:
            return xs[0] if dim < 0 else (np if isinstance(xs[0], np.ndarray) else jnp).concatenate(xs, axis=dim)

        tree, leaves = jax.tree.structure(parts[0]), [jax.tree.leaves(part) for part in parts]
        return jax.tree.unflatten(tree, list(map(leaf, self.dims(move, leaves[0]), *leaves)))


# Compiled: JAX's operations outside of programs take some hundred microseconds, and a scatter may be made every step.
_split = jax.jit(jnp.split, static_argnums=(1, 2))


class Line:
    """The channels between the place that keeps parameters and one learner, for one who talks to that learner alone."""

    def __init__(self, exchange: Exchange, learner: int):
        self.exchange, self.learner = exchange, learner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def send(self, move_id: str, source: int, value: Any, steps: int = 0) -> None:
        self.exchange.send(move_id, 0, value, steps, self.learner)

    def ready(self, move_id: str, target: int) -> bool:
        return self.exchange.ready(move_id, 0, self.learner)

    def receive(self, move_id: str, target: int) -> Any:
        return self.exchange.receive(move_id, 0, self.learner)
