"""What moves between the instances of fragments, across processes.

In: values, as trees of arrays and numbers. On the wire: their leaves, JAX arrays as NumPy's, and for each whether it
was JAX's. The tree is known to both ends from the shapes of the graph; of what learners bring to an agreement, and of
weights that strict mode keeps apart by agent shard, it goes along. Out: equal values of the same kinds, so that whoever
computes with them gets the same bits as in one process. A channel keeps order even if its messages arrive in another,
because they are numbered. Shards are cut and joined as NumPy arrays, which costs microseconds.
"""

import copyreg
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
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
    tree: bytes | None = None  # if the receiver cannot know it
    steps: int = 0  # environment steps that it is the outcome of
    version: int = 0  # of the weights, where they may be of any
    note: str = ""  # it carries no value, but tells something
    more: tuple["Message", ...] = ()  # what goes to the same instances along with it


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
    # Copies: what arrives may lie in memory shared with other processes, where nobody may write, and an op may be given
    # its arguments to keep.
    return [jnp.array(leaf) if ours else leaf.copy() if isinstance(leaf, np.ndarray) and not leaf.flags.writeable
            else leaf for ours, leaf in zip(*leaves, strict=True)]


@cache
def tree_bytes(tree: Any) -> bytes:
    """JAX does not pickle the trees of others' classes, but anybody can pickle such a tree with numbers for leaves."""
    return cloudpickle.dumps(jax.tree.unflatten(tree, range(tree.num_leaves)))


@cache
def tree_of(sent: bytes) -> Any:
    return jax.tree.structure(cloudpickle.loads(sent))


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
    """One instance's ends of all channels. `trees` has the tree of every move's value; a channel holds leaves."""

    def __init__(self, moves: tuple[Move, ...], sizes: dict[str, tuple[int, ...]], instance: int,
                 trees: dict[str, Any], post: Post):
        super().__init__(moves, sizes)
        self.instance, self.trees, self.post = instance, trees, post
        self.forms: dict[tuple[str, int, int], deque[tuple[tuple[bool, ...], Any]]] = {
            key: deque() for key in self.channels}  # kinds and tree of what a channel holds
        self.sent: dict[tuple[str, int | None], int] = {}  # messages so far, by move and whom they are for
        self.arrived: dict[tuple[str, int, int], int] = {}
        self.early: dict[tuple[str, int, int], dict[int, Message]] = {}
        self.version = 0  # put on messages

    def send(self, move_id: str, source: int, value: Any, steps: int = 0, only: int | None = None) -> None:
        move = self.moves[move_id]
        for targets, message in self.letters(move, source, value, steps, only):
            others = [target for target in targets if move.source != move.target or target != source]
            if others:
                self.post(move.target, others, message)
            if len(others) < len(targets):
                self.deliver(message)  # to oneself, last: the others have further to go

    def send_together(self, source: int, held: list[tuple[str, Any, int]]) -> None:
        letters: dict[tuple[str, tuple[int, ...]], list[Message]] = {}
        for move_id, value, steps in held:
            move = self.moves[move_id]
            for targets, message in self.letters(move, source, value, steps):
                letters.setdefault((move.target, tuple(targets)), []).append(message)
        for (fragment, targets), (first, *rest) in letters.items():
            self.post(fragment, targets, replace(first, more=tuple(rest)))

    def letters(self, move: Move, source: int, value: Any, steps: int, only: int | None = None
                ) -> Iterator[tuple[list[int], Message]]:
        """The messages of one value, each with the instances that it is for."""
        kinds, leaves = pack(value)
        form = jax.tree.structure(value)
        tree = None if not move.agrees and form == self.trees[move.id] else tree_bytes(form)
        number = self.sent[move.id, only] = self.sent.get((move.id, only), 0) + 1
        targets = [target for target in range(len(self.sizes[move.target]))
                   if self.joined(move, source, target) and only in (None, target)]
        if move.kind == "scatter":
            parts = self.parts(move, leaves)
            for target in targets:
                # A part is a view of the whole, and pickling one would take the whole along.
                mine = [np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x for x in parts[target]]
                yield [target], Message(move.id, source, number, (kinds, mine), tree, version=self.version)
        elif targets:
            yield targets, Message(move.id, source, number, (kinds, leaves), tree, steps, self.version)

    def deliver(self, message: Message) -> None:
        """Takes a message in; called by whichever thread received it."""
        for other in message.more:
            self.deliver(other)
        key = message.move, message.source, self.instance
        with self.changed:
            early = self.early.setdefault(key, {})
            early[message.number] = message
            while (number := self.arrived.get(key, 0) + 1) in early:
                self.arrived[key] = number
                self.accept(early.pop(number))
            self.tell()

    def accept(self, message: Message) -> None:
        """The next message of a channel; `changed` is held."""
        key = message.move, message.source, self.instance
        kinds, leaves = message.leaves
        if message.move == self.lead:
            self.enter(message.source, message.steps)
        self.forms[key].append((kinds, self.tree(message)))  # before the leaves, by which `ready` goes
        self.channels[key].append(leaves)

    def tree(self, message: Message) -> Any:
        return self.trees[message.move] if message.tree is None else tree_of(message.tree)

    def receive(self, move_id: str, target: int, only: int | None = None) -> Any:
        move = self.moves[move_id]
        sources = self.sources(move, target, only)
        forms = [self.forms[move_id, source, target].popleft() for source in sources]
        if move.agrees:
            brought = [self.channels[move_id, source, target].popleft() for source in sources]
            return self.join(move, [jax.tree.unflatten(tree, unpack((kinds, leaves)))
                                    for (kinds, tree), leaves in zip(forms, brought, strict=True)])
        (kinds, tree), *_ = forms
        return jax.tree.unflatten(tree, unpack((kinds, super().receive(move_id, target, only))))
