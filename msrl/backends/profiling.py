"""How an instance is watched: its engine, its ends of the channels and its waits tell its `Trace`.

In: a worker that has not run. Out: the same worker, which computes the same to the bit. It always holds that results
are waited for where they are computed, so that time is told where it is spent; a worker that nobody watches has none of
this around it.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from msrl.backends.watched import WatchedExchange
from msrl.backends.worker import Look, Worker
from msrl.engines.host import HostEngine, Step
from msrl.engines.reference import Agreeing, Reference
from msrl.ir.graph import Call, Graph, Node, Pure, definitions, walk
from msrl.ir.interp import Names
from msrl.ir.picture import label
from msrl.passes.fuse_stretches import is_selection
from msrl.runtime.tracing import LIMIT, Trace, at_work

LOOK = "wait for the host to look"
END: Any = object()


def watch(worker: Worker, graph: Graph, limit: int = LIMIT) -> None:
    """Lets the worker keep a trace of its run, of at most so many events. `graph` knows what its values are called."""
    makers = {name: node for node in walk(graph.nodes) for name in definitions(node)}
    worker.trace = Trace(limit)
    worker.labels = {move.id: label(move.value, makers.get(move.value)) for move in worker.exchange.moves.values()}
    worker.engine = WatchedReference(worker) if worker.strict else WatchedHost(worker)


def steps(worker: Worker) -> Iterator[Look]:
    """Its run, watched if it is to be."""
    return worker.run() if worker.trace is None else _watched(worker, worker.trace)


def _watched(worker: Worker, trace: Trace) -> Iterator[Look]:
    ends: Any = WatchedExchange(worker.exchange, worker.program.fragment.name, trace, worker.labels)
    worker.exchange = worker.inbox.exchange = worker.outbox.exchange = ends
    trace.began = time.perf_counter()
    looks = worker.run()
    try:
        while True:
            with trace.here():
                look = next(looks, END)
            if look is END:
                return
            start = time.perf_counter()
            yield look
            name, args = (f"wait for {ends.waiting[0]}", ends.waiting[1]) if look is None else (LOOK, None)
            trace.wait(name, start, args)
    finally:
        trace.ended = time.perf_counter()


class WatchedReference(Reference):
    def __init__(self, worker: Worker, fused: bool = False):
        super().__init__(worker.ops, worker.root, worker.shapes.items, fused)
        assert worker.trace is not None
        self.trace = worker.trace

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        with at_work(self.trace, node) as ready:
            return ready(super().call(node, args, kwargs, reads))

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        if is_selection(node) or not node.inputs:  # nothing is computed
            return super().pure(node, inputs)
        with at_work(self.trace, node) as ready:
            return ready(super().pure(node, inputs))

    def learn(self, *given: Any) -> Agreeing:
        """Up to an agreement, learners are at work; until it is reached, others are."""
        learning, reached = super().learn(*given), None
        while True:
            with at_work(self.trace, "learner.learn") as ready:
                try:
                    agreement = learning.send(reached)
                except StopIteration as end:
                    return ready(end.value)
                ready(agreement.brought)
            reached = yield dataclasses.replace(agreement, reach=self.reaching(agreement.reach))

    def reaching(self, reach: Callable[[list], Any]) -> Callable[[list], Any]:
        def reached(brought: list) -> Any:
            with at_work(self.trace, "learner.learn") as ready:
                return ready(reach(brought))

        return reached


class WatchedHost(HostEngine):
    def __init__(self, worker: Worker):
        super().__init__(worker.ops, worker.shapes, worker.root, worker.count_compiling)
        assert worker.trace is not None
        self.trace, self.reference = worker.trace, WatchedReference(worker, fused=True)

    def step(self, node: Node, once: bool) -> Step:
        step = super().step(node, once)
        if self.program(node, once) is None:  # Python's, which tells of the ops in it
            return step

        def watched(names: Names) -> None:
            # What runs once is compiled ahead, and nearly all of its time is waiting for the compiler.
            with self.trace.at("compile" if once else "compute", *self.trace.titled(node)):
                step(names)
                jax.block_until_ready([names[name] for name in definitions(node)])

        return watched
