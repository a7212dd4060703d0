"""A reference machine that writes down what it sees: for every call of every op, checksums of what went in and out.

In: the ops, as for `Reference`. Out: the same bits, and `entries`, in the order in which they happened. A call is known
by (component, method, shard, how often that was called), which is how its random numbers are known too, so that the
same call has the same name wherever it runs. Learners that agree with others have an entry for every stretch between
two agreements.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Record
from msrl.engines.cut import Steps
from msrl.engines.library import Ops
from msrl.engines.reference import Reference
from msrl.errors import Span
from msrl.ir.graph import Call, For, Node, While
from msrl.ir.interp import Names


class Occasion(NamedTuple):
    """One call of an op, for one shard or learner."""

    component: str
    method: str
    shard: int
    call: int  # from 0
    agreement: int = 0  # how many its learner has reached within the call


@dataclass(frozen=True)
class Entry:
    given: Any  # trees of checksums
    made: Any
    update: int  # the pass of the top-level loop that it happened in, from 1; 0 before any
    span: Span | None


class Witness(Reference):
    """`nodes` are those of the whole graph, if it is to count the passes of its loops."""

    def __init__(self, ops: Ops, root: jax.Array, items: Mapping[str, Record], nodes: tuple[Node, ...] = ()):
        super().__init__(ops, root, items)
        self.entries: dict[Occasion, Entry] = {}
        self.calls: Counter[tuple[str, str, int]] = Counter()
        self.update = 0
        self.span: Span | None = None
        # The block that begins each pass of a top-level loop; the nodes are kept, so that no others take their place.
        self.heads = {id(head): head for node in nodes if isinstance(node, (For, While))
                      for head in [node.body if isinstance(node, For) else node.test]}
        self.passes: Counter[int] = Counter()

    def block(self, nodes: tuple[Node, ...], names: Names, tail: tuple[str, ...]) -> None:
        if id(nodes) in self.heads:
            self.passes[id(nodes)] += 1
            self.update = self.passes[id(nodes)]
        super().block(nodes, names, tail)

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        self.span = node.span
        return super().call(node, args, kwargs, reads)

    def occasion(self, component: str, method: str, shard: int) -> Occasion:
        self.calls[component, method, shard] += 1
        return Occasion(component, method, shard, self.calls[component, method, shard] - 1)

    def note(self, occasion: Occasion, given: Any, made: Any) -> None:
        """`given` is already checksums, as what an op replaces may be gone by the time it returns."""
        self.entries[occasion] = Entry(given, checksums(made), self.update, self.span)

    def alone(self, component: str, method: str) -> Callable[..., tuple[Any, tuple]]:
        run = super().alone(component, method)

        def watched(root, shard, count, states, args, fields):
            occasion = self.occasion(component, method, int(shard))
            given = checksums({"resources": states, "arguments": args, "fields": fields})
            out, after = run(root, shard, count, states, args, fields)
            self.note(occasion, given, {"value": out, "written": after})
            return out, after

        return watched

    def learning(self, *given: Any) -> Steps:
        _, learner, _, states, args = given
        occasion, steps = self.occasion("learner", "learn", int(learner)), super().learning(*given)
        seen, agreed = checksums({"resources": states, "arguments": args}), None
        while True:
            try:
                meeting = steps.send(agreed)
            except StopIteration as end:
                out, after = end.value
                self.note(occasion, seen, {"value": out, "written": after})
                return end.value
            self.note(occasion, seen, {"brought": meeting.brought})
            agreed = yield meeting
            occasion = occasion._replace(agreement=occasion.agreement + 1)
            seen = checksums({"agreed": agreed})

    def report(self, method: str, args: tuple, kwargs: dict[str, Any], reads: tuple) -> int:
        if method != "init":
            self.note(self.occasion("metrics", method, 0), checksums({"arguments": args, "fields": kwargs}), {})
        return super().report(method, args, kwargs, reads)

    def new_buffer(self, component: str) -> Any:
        state, over = super().new_buffer(component), self.world.over(component)
        if state is None:
            return None
        for number, mine in zip(self.world.span(over), state if over else (state,), strict=True):
            self.note(self.occasion(component, "init", number), {}, {"written": (mine,)})
        return state


def checksums(tree: Any) -> Any:
    return jax.tree.map(checksum, tree)


def checksum(leaf: Any) -> int:
    """Whole numbers count by value: how wide they are is no matter of bits that were computed."""
    array = plain(leaf)
    array = array.astype(np.int64) if np.issubdtype(array.dtype, np.signedinteger) else array
    return zlib.crc32(array.tobytes(), zlib.crc32(f"{array.dtype} {array.shape}".encode()))


def plain(leaf: Any) -> np.ndarray:
    """A leaf as an array. Of what lives on the host, random generators show their state, and handles nothing."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, np.random.Generator):
        leaf = np.frombuffer(repr(leaf.bit_generator.state).encode(), np.uint8)
    return np.asarray(leaf) if isinstance(leaf, (bool, int, float, np.ndarray, np.generic, jax.Array)) else np.zeros(0)
