"""What an instance has at the head of a loop's pass: taken from it, and given to one that goes on from there.

In: a worker between two passes of a top-level loop. Out: a `Share`: all names that the rest of its program reads, as
plain arrays; states by shard, so that they can go to any other instance. Names are those of the graph, which no
distribution changes. A worker that is given a share skips what comes before the loop, and the passes already made.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from msrl.engines.by_agent import cut_agents
from msrl.engines.host import HostEngine
from msrl.engines.xla import no_metrics
from msrl.errors import RunError
from msrl.ir.graph import (
    Call,
    Carry,
    For,
    Graph,
    Node,
    Send,
    Stretch,
    While,
    base,
    definitions,
    free,
    is_resource,
    nexts,
    walk,
)
from msrl.ir.interp import Names
from msrl.ir.placed import LocalProgram, same_form
from msrl.runtime.checkpoints import Parts
from msrl.runtime.ledger import Ledger
from msrl.runtime.packing import Leaf, Packed, other_form, pack, unpack
from msrl.runtime.tracing import at_work

if TYPE_CHECKING:
    from msrl.backends.worker import Worker

WHOLE = "all"  # in place of a shard's number: there is only one


@dataclass(frozen=True)
class Share:
    """What one instance has, or is to begin with."""

    loop: str
    passes: int
    parts: Parts
    counted: int = 0  # as Worker.counted
    ledger: Ledger | None = None  # as the instance knows it
    skipped: Any = 0  # as Worker.skipped
    last: bool = False  # has it made all passes of its last loop, so that nothing will change any more?
    problem: RunError | None = None  # why there is nothing


def loop_of(node: Node) -> For | While | None:
    """The loop that a node of the top level is, compiled or not."""
    match node:
        case For() | While():
            return node
        case Stretch(nodes=(For() | While() as loop,)):
            return loop
    return None


def loop_name(node: For | While) -> str:
    """By which all fragments know the loop."""
    return node.index if isinstance(node, For) else node.condition


def loops_of(program: LocalProgram) -> list[str]:
    return [loop_name(loop) for node in program.nodes if (loop := loop_of(node))]


def key(carry: Carry) -> str:
    """What a loop's name is called between two passes."""
    return carry.phi or carry.out


def order_of(graph: Graph) -> dict[str, int]:
    """By loop and by name, where it stands in the graph's top level."""
    found: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        found.update((name, at) for name in definitions(node))
        if isinstance(node, (For, While)):
            found[loop_name(node)] = at
    return found


def rest(worker: "Worker", loop: str) -> tuple[For | While | None, tuple[Node, ...]]:
    """The loop of that name in the worker's program, and all that follows it. The worker need not take part in it."""
    nodes, order = worker.program.nodes, worker.order
    for number, node in enumerate(nodes):
        mine = loop_of(node)
        if mine and loop_name(mine) == loop:
            return mine, nodes[number + 1:]
        names = [node.value] if isinstance(node, Send) else list(definitions(node))
        if any(order.get(same_form(name), -1) > order[loop] for name in names):
            return None, nodes[number:]
    return None, ()


def wanted(worker: "Worker", name: str) -> tuple[For | While | None, tuple[str, ...]]:
    """A loop of the worker's, and the names from before it that its later passes read, or what follows it."""
    loop, after = rest(worker, name)
    if loop is None:
        return None, tuple(free(after, worker.program.results))
    inside = {c.phi for c in loop.carries} | ({loop.index} if isinstance(loop, For) else set())
    bounds = (loop.start, loop.stop, loop.step) if isinstance(loop, For) else ()
    read = {name: None for name in bounds if isinstance(name, str)}
    for block, tail in ((loop.body, nexts(loop)),) if isinstance(loop, For) else (
            (loop.test, (loop.condition,)), (loop.body, nexts(loop))):
        read |= {name: None for name in free(block, tail) if name not in inside}
    made = {c.out for c in loop.carries}
    read |= {name: None for name in free(after, worker.program.results) if name not in made}
    return loop, tuple(read)


# -- taking ------------------------------------------------------------------------------------------------------------


def take(worker: "Worker", loop: For | While, passes: int, names: Names, carried: Names, ended: bool) -> Iterator[None]:
    """Leaves a `Share` in `worker.share`. `carried` has what the loop hands on, by `key`; `ended`: was it the loop's
    last pass? Yields while it waits for what was sent to it."""
    worker.engine.settle()
    _, live = wanted(worker, loop_name(loop))
    for mine, needed in ((names, live), (carried, tuple(carried))):
        yield from worker.inbox.force(mine, needed)
    found = {**{name: names[name] for name in live}, **carried}
    found = {name: value for name, value in found.items() if base(name) != "$metrics" or worker.strict}
    with worker.exchange.changed:
        ledger = copy.deepcopy(worker.exchange.ledger)
    try:
        with at_work(worker.trace, "checkpoint"):
            parts = {name: divided(worker, name, value) for name, value in found.items()}
    except RunError as problem:
        worker.share = Share(loop_name(loop), passes, {}, problem=problem)
    else:
        skipped, last = np.asarray(worker.skipped).tolist(), loops_of(worker.program)[-1] == loop_name(loop)
        worker.share = Share(loop_name(loop), passes, parts, worker.counted, ledger, skipped, last and ended)


def divided(worker: "Worker", name: str, value: Any) -> dict[str, Packed]:
    """By shard, if it has one state for each of them."""
    what = f"`{base(name)}`"
    span = shards(worker, name)
    if span is None or value is None:  # a buffer that the loop does not use has no state
        return {WHOLE: pack(value, what)}
    if one_by_one(worker, name):
        return {str(number): pack(state, what) for number, state in zip(span, value, strict=True)}
    packed = pack(value, what)
    if len(span) == 1:
        return {str(span[0]): packed}
    dim = 1 if worker.seeds else 0
    return {str(number): {path: Leaf(leaf.kind, np.take(leaf.array, at, dim)) for path, leaf in packed.items()}
            for at, number in enumerate(span)}


def shards(worker: "Worker", name: str) -> range | None:
    """Those that this worker has of a resource; None if there is one for all."""
    over = worker.ops.world.over(component(name)) if name.startswith("$") else None
    return worker.ops.world.span(over) if over else None


def one_by_one(worker: "Worker", name: str) -> bool:
    """Are its shards' states kept as a tuple? Else they are stacked, if there are several."""
    what = component(name)
    return worker.strict or not worker.ops.world.traceable("learner" if what == "weights" else what)


def component(name: str) -> str:
    return base(name)[1:].removesuffix(".before")


# -- going on ----------------------------------------------------------------------------------------------------------


def begin(worker: "Worker", share: Share) -> tuple[tuple[Node, ...], Names, Names]:
    """The rest of the worker's program, from the loop on; the names from before it; and what the loop has handed on, by
    `key`."""
    loop, live = wanted(worker, share.loop)
    after = rest(worker, share.loop)[1]
    forms = _Forms(worker)
    names = {name: forms.restored(name, share.parts) for name in live}
    worker.counted = share.counted
    if loop is None:
        return after, names, {}
    # What is first made inside the loop is there once the loop has been run, and is not always of use.
    carried = {key(c): forms.restored(key(c), share.parts) for c in loop.carries if c.phi or key(c) in share.parts}
    at = len(worker.program.nodes) - len(after) - 1
    return worker.program.nodes[at:], names, carried


class _Forms:
    """Restores a worker's names in the form in which its engine keeps them."""

    def __init__(self, worker: "Worker"):
        self.worker = worker
        self.inits = {base(name): node for node in walk(worker.program.nodes)
                      if isinstance(node, Call) and node.method == "init" for name in node.writes}
        self.made: Names = {}

    def restored(self, name: str, parts: Mapping[str, Mapping[str, Packed]]) -> Any:
        worker, what = self.worker, f"`{base(name)}`"
        if base(name) == "$metrics" and not worker.strict:
            return jax.tree.map(lambda x: worker.widen(x, always=True), no_metrics(worker.shapes))
        if name not in parts:
            raise other_form(what, "The checkpoint has none.")
        if (span := shards(worker, name)) is not None and WHOLE not in parts[name]:
            return self.states(name, [parts[name][str(number)] for number in span], what)
        whole = unpack(self.form(name), parts[name][WHOLE], what)
        return whole if name != same_form(name) else self.part(name, whole)

    def states(self, name: str, each: list[Packed], what: str) -> Any:
        form, worker = self.form(name), self.worker
        if one_by_one(worker, name):
            forms = form if base(name) in self.made else (form,) * len(each)
            return tuple(unpack(one, packed, what) for one, packed in zip(forms, each, strict=True))
        if len(each) == 1:
            return unpack(form, each[0], what)
        dim = 1 if worker.seeds else 0
        stacked = {path: Leaf(leaf.kind, np.stack([packed[path].array for packed in each], dim))
                   for path, leaf in each[0].items()}
        return unpack(form, stacked, what)

    def form(self, name: str) -> Any:
        """A tree like it. What the worker itself begins with is made anew, since it may hold handles."""
        known = base(name)
        if known in self.inits and known.startswith("$"):
            if known not in self.made:
                call = self.inits[known]
                engine = self.worker.engine
                names = {read: np.int32(0) for read in call.reads if read.startswith("#")}
                if isinstance(engine, HostEngine):
                    engine.block((call,), names, once=True)
                else:
                    engine.block((call,), names, ())
                self.made.update((base(write), names[write]) for write in call.writes)
            return self.made[known]
        form = self.worker.shapes.names.get(same_form(name))
        return jax.tree.map(lambda leaf: 0, form)

    def part(self, name: str, whole: Any) -> Any:
        """Of a value that others have parts of, too, the worker's own."""
        worker = self.worker
        if name not in worker.divided or is_resource(name):
            return whole
        if worker.program.fragment.axis == "agent":
            return cut_agents(whole, worker.ops.agents.of(name), worker.ops.world)
        return worker.ops.world.cut(whole, worker.divided[name])
