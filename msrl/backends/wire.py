"""What moves between the instances of fragments, across processes.

In: values, as trees of arrays and numbers. On the wire: their leaves, JAX arrays as NumPy's, and for each whether it
was JAX's; the tree is known to both ends from the shapes of the graph. Out: equal values of the same kinds, so that
whoever computes with them gets the same bits as in one process. A channel keeps order even if its messages arrive in
another, because they are numbered. Shards are cut and joined as NumPy arrays, which costs microseconds.
"""

import copyreg
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Record
from msrl.ir.placed import Move
from msrl.runtime.channels import Exchange

Leaves = tuple[tuple[bool, ...], list[Any]]  # was it JAX's?; the leaf


@dataclass(frozen=True)
class Message:
    """One value, or an instance's part of one, for a channel."""

    move: str
    source: int
    number: int
    leaves: Leaves


Post = Callable[[str, Sequence[int], Message], None]
"""(fragment, instances, message): hands a message to these instances, and need not wait for them."""


@dataclass(frozen=True)
class Elsewhere:
    """Stands for what cannot leave its process: a simulator's handle, say."""

    what: str


def pack(value: Any) -> Leaves:
    leaves = jax.tree.leaves(value)
    kinds = tuple(_ours(leaf) for leaf in leaves)
    return kinds, [np.asarray(leaf) if ours else leaf for ours, leaf in zip(kinds, leaves, strict=True)]


def unpack(leaves: Leaves) -> list[Any]:
    # A copy: what arrives may lie in memory shared with other processes, and an op may be given its arguments to keep.
    return [jnp.array(leaf) if ours else leaf for ours, leaf in zip(*leaves, strict=True)]


def _ours(leaf: Any) -> bool:
    """Is it JAX's, and all there is to it in its NumPy array? Keys and weakly typed numbers pickle as they are."""
    return isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) and not leaf.weak_type


def portable(tree: Any) -> Any:
    """The tree as it is now, with its arrays on the host; what cannot be pickled is named in its place."""

    def leaf(x: Any) -> Any:
        if isinstance(x, (bool, int, float, np.generic)):
            return x
        if isinstance(x, np.ndarray) or _ours(x):
            return np.array(x)  # a copy: the worker goes on, and writes over it
        try:
            return cloudpickle.loads(cloudpickle.dumps(x))
        except Exception:  # whatever a library raises of its handles
            return Elsewhere(type(x).__qualname__)

    return jax.tree.map(leaf, tree)


def _remake_record(fields: dict[str, Any]) -> Record:
    return Record(**fields)


copyreg.pickle(Record, lambda record: (_remake_record, (record.asdict(),)))  # type: ignore[arg-type]


class RemoteExchange(Exchange):
    """One instance's ends of all channels. `trees` has the tree of every move's value."""

    def __init__(self, moves: tuple[Move, ...], sizes: dict[str, tuple[int, ...]], instance: int,
                 trees: dict[str, Any], post: Post):
        super().__init__(moves, sizes)
        self.instance, self.trees, self.post = instance, trees, post
        self.kinds: dict[tuple[str, int, int], deque[tuple[bool, ...]]] = {key: deque() for key in self.channels}
        self.sent: dict[str, int] = {}  # messages so far, by move
        self.arrived: dict[tuple[str, int, int], int] = {}
        self.early: dict[tuple[str, int, int], dict[int, Leaves]] = {}

    def send(self, move_id: str, source: int, value: Any) -> None:
        move = self.moves[move_id]
        kinds, leaves = pack(value)
        number = self.sent[move_id] = self.sent.get(move_id, 0) + 1
        targets = [target for target in range(len(self.sizes[move.target])) if self.joined(move, source, target)]
        if move.kind == "scatter":
            parts = self.parts(move, leaves)
            for target in targets:
                # A part is a view of the whole, and pickling one would take the whole along.
                mine = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x for x in parts[target]]
                self.post(move.target, [target], Message(move_id, source, number, (kinds, mine)))
        elif targets:
            self.post(move.target, targets, Message(move_id, source, number, (kinds, leaves)))

    def deliver(self, message: Message) -> None:
        """Takes a message in; called by whichever thread received it."""
        key = message.move, message.source, self.instance
        with self.changed:
            early = self.early.setdefault(key, {})
            early[message.number] = message.leaves
            while (number := self.arrived.get(key, 0) + 1) in early:
                kinds, leaves = early.pop(number)
                self.arrived[key] = number
                self.kinds[key].append(kinds)  # before the leaves, by which `ready` goes
                self.channels[key].append(leaves)
            self.changed.notify_all()

    def receive(self, move_id: str, target: int) -> Any:
        kinds = [self.kinds[move_id, source, target].popleft() for source in self.sources(self.moves[move_id], target)]
        leaves = super().receive(move_id, target)
        return jax.tree.unflatten(self.trees[move_id], unpack((kinds[0], leaves)))
