"""One instance of a fragment at work: steps its local program.

`run` is a generator. It yields `None` where it waits for a message that is not there yet, and the live resources at
points where the host may look (between chunks of a top-level loop). It must not be resumed before the looker is done,
as the next chunk overwrites them in place.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.backends.agreeing import learn, serve
from msrl.backends.foresight import foreseen
from msrl.backends.inbox import Closed, Inbox, Pending, may_wait, reads_at_once
from msrl.backends.outbox import Outbox
from msrl.backends.schedule import Schedule
from msrl.backends.snapshots import Share, begin, key, loop_name, take
from msrl.engines.filling import check_samples
from msrl.engines.group import Group
from msrl.engines.host import HostEngine
from msrl.engines.library import Ops
from msrl.engines.ops import strong
from msrl.engines.reference import Reference
from msrl.engines.shapes import Shapes
from msrl.engines.xla import Chunk, no_metrics, zeros
from msrl.ir.graph import Call, Carry, Flush, For, If, Node, Recv, Send, Stretch, While, base, is_resource, walk
from msrl.ir.interp import Names
from msrl.ir.placed import PARAMETERS, LocalProgram
from msrl.runtime.channels import Exchange, Line
from msrl.runtime.ending import process_ends
from msrl.runtime.tracing import Trace, at_work

LOOKS = 200  # how often a loop of known length lets the host look, at most
PIECE_SECONDS = 0.2  # how long a compiled loop should run without a word from the host, at least; up to four times that

LEARNT = ("$learner", "$weights")

Look = Names | None
Part = tuple[tuple[Node, ...] | Node, tuple[str, ...]]


class Worker:
    """One run; or several at once through one program, if `root` is an array of keys."""

    def __init__(self, program: LocalProgram, instance: int, shapes: Shapes, ops: Ops, root: jax.Array, strict: bool,
                 exchange: Exchange | Line):
        self.program, self.instance, self.exchange = program, instance, exchange
        self.shapes, self.ops, self.root, self.strict = shapes, ops, root, strict
        self.seeds = root.shape[0] if root.ndim else None
        self.engine = Reference(ops, root, shapes.items) if strict else \
            HostEngine(ops, shapes, root, self.count_compiling)
        self.compile_seconds = 0.0
        self.resources: Names = {}  # as of the last look
        self.at: tuple[str, int] | None = None  # the loop and pass of that look: the same for all that take part in it
        self.messages, self.told_skipped = 0, None  # sent and received, so far; `skipped` of one at work elsewhere
        self.counted = 0  # steps of each environment, as of the last trajectory sent
        self.own = {base(result) for result in program.results}
        self.late = may_wait(program.nodes)
        self.inbox = Inbox(exchange, instance, self.go_on, self.count_message)
        self.outbox = Outbox(exchange, instance, self.count_message)
        self.divided: Mapping[str, int] = {}  # the names of which it has a part, and on which dimension
        self.order: Mapping[str, int] = {}  # where loops and names stand in the graph
        self.schedule = Schedule(())  # when to put down what it has
        self.share: Share | None = None  # what it has put down last
        self.given: Share | None = None  # what it is to go on from
        self.handed: Names = {}  # of that, what the loop that it begins with has handed on
        self.trace: Trace | None = None  # what it did and when, if that is asked for (msrl/backends/profiling.py)
        self.labels: dict[str, str] = {}  # by move, what the user calls its value; known to those who trace
        self.group: Group | None = None  # learners of several instances in one program, this one's among them
        self.pulled: dict[tuple[str, int], list[Any]] = {}  # (move, site) → the parameters last taken from their place
        # By identity, which is cheap; the nodes are kept, so that no others can take their place in memory.
        self._parts: dict[int, tuple[tuple[Node, ...], list[Part]]] = {}
        self._counters: dict[int, tuple[Node, str | None]] = {}  # by node, the name that counts the environments' steps
        self._chunks: dict[int, Chunk] | None = None  # by the identity of their loops

    def run(self) -> Iterator[Look]:
        names: Names = {}
        nodes, began, before = self.program.nodes, time.perf_counter(), self.compile_seconds
        self.prepare()
        if self.given:
            nodes, names, self.handed = begin(self, self.given)
        # All of it is getting ready; what the engine has counted of it already is not counted twice.
        self.count_compiling(time.perf_counter() - began - (self.compile_seconds - before))
        try:
            yield from self.block(nodes, names, top=True)
            self.engine.settle()
            yield from self.inbox.force(names, self.program.results)
            yield from self.inbox.drain()
            self.resources = {base(result): self.each(names[result]) for result in self.program.results}
            check_samples(self.ops.world, self.resources)
        except Closed as stop:
            self.resources = {base(name): value for name, value in stop.names.items()
                              if is_resource(name) and not isinstance(value, Pending)}
        if self.leads:
            self.exchange.close(self.instance)
        yield self.resources

    @property
    def shards(self) -> range:
        """Of what its fragment is replicated over."""
        return self.ops.world.span("agent" if self.program.fragment.axis == "agent" else "shard")

    @property
    def skipped(self) -> Any:
        """Learns so far that were not applied; of several seeds, of each."""
        before = np.asarray(self.given.skipped) if self.given else 0
        return self.engine.skipped + before if self.told_skipped is None else self.told_skipped

    @property
    def leads(self) -> bool:
        """Does the run end when this one does?"""
        return "learner" in self.program.fragment.components

    @property
    def endless(self) -> bool:
        """Does it go on until it is told to stop?"""
        return self.exchange.unordered and not self.leads

    @property
    def released(self) -> bool:
        """Has it been told to stop? It finishes its pass, so that there is something to go on from; nobody listens."""
        return self.endless and self.exchange.closed

    def go_on(self, names: Names) -> None:
        if self.released:
            raise Closed(names)

    # -- compiling ahead -----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Begins to compile, in the background, the programs that the run starts with: blocks and loops of its top
        level, up to the first of which the shapes cannot be known before it runs. May be called before `run`."""
        if self._chunks is not None:
            return
        self._chunks = {}
        ahead = isinstance(self.engine, HostEngine) and not self.ops.devices and not self.given
        programs = foreseen(self) if ahead else []
        for program in reversed(programs):  # the loop that trains takes longest to compile, and comes last
            assert program.ahead
            program.ahead.begin()

    # -- blocks --------------------------------------------------------------------------------------------------------

    def block(self, nodes: tuple[Node, ...], names: Names, top: bool = False) -> Iterator[Look]:
        for part, wanted in self.parts(nodes, top):
            if wanted:
                yield from self.inbox.force(names, wanted)
            if self.exchange.untold and not isinstance(part, (Send, Recv, Flush)):
                self.exchange.tell_now()
            match part:
                case Send():
                    self.engine.settle()
                    while self.exchange.full(part.move, self.instance) and not self.released:
                        yield None
                    steps = self.count_steps(part, names) if part.move == self.exchange.lead else 0
                    if not self.released:
                        self.outbox.send(part, names[part.value], steps)
                case Flush():
                    if not self.released:
                        self.outbox.flush(part.target)
                case Recv():
                    yield from self.inbox.receive(part, names)
                case For() | While():
                    yield from self.stepped(part, names, top)
                case If():
                    yield from self.branch(part, names)
                case Stretch(nodes=(For() | While() as loop,)):
                    yield from self.compiled(loop, names)
                case Call():
                    yield from serve(self, part) if part.component == PARAMETERS else learn(self, part, names)
                case _:
                    assert isinstance(part, tuple)
                    self.compute(part, names, top)

    def parts(self, nodes: tuple[Node, ...], top: bool) -> list[Part]:
        """The block cut at moves, and at loops and branches that hold some or that the host may look into; each part
        with what it reads at once, of the names that may still be on their way."""
        if id(nodes) not in self._parts:
            parts: list[tuple[Node, ...] | Node] = []
            pending: list[Node] = []
            for node in nodes:
                if self.moves(node) or (top and self.looked_into(node)):
                    parts += [tuple(pending)] if pending else []
                    parts.append(node)
                    pending = []
                else:
                    pending.append(node)
            parts += [tuple(pending)] if pending else []
            self._parts[id(nodes)] = nodes, [(part, tuple(name for name in reads_at_once(part) if name in self.late))
                                             for part in parts]
        return self._parts[id(nodes)][1]

    def looked_into(self, node: Node) -> bool:
        """Is it a loop between whose chunks the host looks? With a number of passes of its own for each seed, all of
        them are one program."""
        match node:
            case Stretch(nodes=(For() as loop,)) if self.seeds:
                return loop.trips is not None
            case For() | While() | Stretch(nodes=(For() | While(),)):
                return True
        return False

    def compute(self, nodes: tuple[Node, ...], names: Names, top: bool) -> None:
        began, before = time.perf_counter(), self.compile_seconds
        once = {"once": top} if isinstance(self.engine, HostEngine) else {}
        self.engine.block(nodes, names, (), **once)
        if top:  # runs once, so all of it is getting ready: what the engine compiled in it is not counted twice
            self.compile_seconds = before + time.perf_counter() - began

    def count_message(self) -> None:
        self.messages += 1

    def count_compiling(self, seconds: float) -> None:
        self.compile_seconds += seconds
        if self.trace is not None:
            self.trace.compiled(seconds)

    def count_steps(self, node: Node, names: Names) -> int:
        """The environment steps since they were last counted, as the node is reached."""
        if id(node) not in self._counters:
            newest = next((name for name in reversed(names) if base(name) == "#env.step"), None)
            self._counters[id(node)] = node, newest
        newest = self._counters[id(node)][1]
        count = int(np.max(np.asarray(names[newest]))) if newest else 0
        steps, self.counted = (count - self.counted) * self.ops.world.num_envs, count
        return steps

    def moves(self, node: Node) -> bool:
        """Does it hold anything that other instances take part in? Devices do so within one program."""
        return self.ops.devices is None and any(
            isinstance(inner, (Send, Recv, Flush))
            or (isinstance(inner, Call) and any(name in self.exchange.among for name in inner.writes))
            for inner in walk((node,)))

    def branch(self, node: If, names: Names) -> Iterator[Look]:
        taken = bool(names[node.condition])
        here = dict(names)
        picks = tuple(merge.then if taken else merge.orelse for merge in node.merges)
        yield from self.block(node.then if taken else node.orelse, here)
        names.update((merge.out, here[pick]) for merge, pick in zip(node.merges, picks, strict=True))

    # -- loops ---------------------------------------------------------------------------------------------------------

    def chunk(self, node: For | While, total: int | None) -> Chunk:
        assert self._chunks is not None and isinstance(self.engine, HostEngine)
        if id(node) not in self._chunks:
            self._chunks[id(node)] = Chunk(node, chunk_size(total) if total else 1, self.ops, self.shapes, self.seeds,
                                           self.engine.calls)
        return self._chunks[id(node)]

    def carries(self, node: For | While, names: Names) -> tuple:
        return tuple(self.enter(names[c.init], c) if c.init else self.blank(c.out) for c in node.carries)

    def stepped(self, node: For | While, names: Names, top: bool) -> Iterator[Look]:
        """Pass by pass on the host."""
        number, handed = self.handed_on(node)
        carried = {c.phi: handed[c.phi] if handed else names[c.init] for c in node.carries if c.phi and c.init}
        indices = self.indices(node, names) if isinstance(node, For) else None
        size = chunk_size(len(indices)) if indices is not None else 1
        endless = top and self.endless and node is self.last_loop
        here: Names = {**names, **{c.next: handed[c.out] for c in node.carries if c.out in handed}}
        begun = number

        def save(last: bool) -> Iterator[None]:
            carries = {key(c): carried[c.phi] if c.phi else here[c.next] for c in node.carries}
            return take(self, node, number, names, carries, last)

        while indices is None or number < len(indices) or endless:
            if endless and self.released:
                if number > begun and self.schedule.due_at_end(self, loop_name(node)):
                    yield from save(last=True)
                raise Closed(here)
            before, here = here, {**names, **carried}
            if isinstance(node, While):
                yield from self.block(node.test, here)
                yield from self.inbox.force(here, (node.condition,))
                if not bool(here[node.condition]):
                    here = before
                    if top and number > begun and self.schedule.due_at_end(self, loop_name(node)):
                        yield from save(last=True)
                    break
            elif indices is not None:
                here[node.index] = indices[min(number, len(indices) - 1)]
            if top:
                self.schedule.passes(loop_name(node), number, 1)
            yield from self.block(node.body, here)
            carried.update({carry.phi: here[carry.next] for carry in node.carries if carry.phi})
            number += 1
            last = indices is not None and number == len(indices)
            due = top and self.schedule.due(self, loop_name(node), number, self.leads, last)
            if top and (number % size == 0 or due):
                for mine in (names, carried):
                    yield from self.inbox.force(mine, [n for n in mine if n in self.late and base(n) in self.own])
                if due:
                    yield from save(last)
                self.at = loop_name(node), number
                yield self.look(names, carried)
                self.forget_metrics(names)
                self.forget_metrics(carried)
        for carry in node.carries:
            names[carry.out] = carried[carry.phi] if carry.phi else here[carry.next]

    def handed_on(self, node: For | While) -> tuple[int, Names]:
        """The passes that were made of a loop before this worker began, and what they have handed on."""
        if self.given is None or self.given.loop != loop_name(node):
            return 0, {}
        return self.given.passes, self.handed

    def indices(self, node: For, names: Names) -> range:
        return range(*(int(names[b]) if isinstance(b, str) else b for b in (node.start, node.stop, node.step)))

    def compiled(self, node: For | While, names: Names) -> Iterator[Look]:
        """Chunk by chunk in one compiled program."""
        total = len(self.indices(node, names)) if isinstance(node, For) else None
        done, handed = self.handed_on(node)
        assert isinstance(self.engine, HostEngine)
        chunk, run = self.chunk(node, total), None
        carried = tuple(handed[key(c)] if key(c) in handed else self.blank(c.out) for c in node.carries) if handed \
            else self.carries(node, names)
        most = 1  # how long a pass takes is not known yet, so that the clock decides: who is asked to stop has seconds
        while total is None or done < total:
            count = self.schedule.passes(loop_name(node), done, most if total is None else min(
                most, total - done, chunk.size - done % chunk.size))
            given = chunk.enter(carried), self.wide(names, chunk.constants), done, count, self.root
            if run is None:
                began = time.perf_counter()
                run = self.engine.watched(chunk.learns, lambda guards, given=given: chunk.ready(
                    chunk.arguments(*given, guards)))
                self.count_compiling(time.perf_counter() - began)
            began = time.perf_counter()
            with at_work(self.trace, node) as ready:
                *carried, passes, guards = ready(run(*chunk.arguments(*given, self.engine.guards(chunk.learns))))
            self.engine.take_back(chunk.learns, guards)
            done += (passes := int(np.asarray(passes).max()))
            carried = chunk.leave(carried)
            phis = {key(c): value for c, value in zip(node.carries, carried, strict=True)}
            last = passes < count if total is None else done == total
            if total is None and last:
                if done and self.schedule.due_at_end(self, loop_name(node)):
                    yield from take(self, node, done, names, phis, last)
                    carried = tuple(phis.values())
                break
            seconds = time.perf_counter() - began
            most = most * 2 if seconds < PIECE_SECONDS else most if seconds < 4 * PIECE_SECONDS else -(-most // 2)
            if due := self.schedule.due(self, loop_name(node), done, self.leads, last):
                yield from take(self, node, done, names, phis, last)
            if total is not None and done < total and done % chunk.size and not due and not process_ends():
                self.engine.settle()
                carried = tuple(phis.values())
                continue
            self.at = loop_name(node), done
            yield self.look(names, phis)
            self.forget_metrics(names)
            self.forget_metrics(phis)
            carried = tuple(phis.values())
        names.update(zip((c.out for c in node.carries), carried, strict=True))

    # -- values on their way into a compiled loop ------------------------------------------------------------------

    def enter(self, value: Any, carry: Carry) -> Any:
        """A carry's first value. The loop will write over it, so what others may still read is copied."""
        value = jax.tree.map(self.widen, strong(value))
        if is_resource(carry.out) and base(carry.out) == base(carry.init or ""):
            return value
        return jax.tree.map(lambda x: x if isinstance(x, jax.ShapeDtypeStruct) else jnp.array(x), value)

    def blank(self, name: str) -> Any:
        return jax.tree.map(lambda x: self.widen(x, always=True), zeros(self.shapes.names[name]))

    def widen(self, x: Any, always: bool = False) -> Any:
        """A host value once per seed, if there are several."""
        host = always or isinstance(x, (bool, int, float, np.generic))
        return np.broadcast_to(strong(x), (self.seeds, *np.shape(x))) if self.seeds and host else x

    def wide(self, names: Names, wanted: tuple[str, ...]) -> Names:
        return {**names, **{name: jax.tree.map(self.widen, names[name]) for name in wanted}} if self.seeds else names

    @cached_property
    def last_loop(self) -> Node | None:
        """The loop that trains: those before it warm up."""
        return next((node for node in reversed(self.program.nodes) if isinstance(node, (For, While))), None)

    # -- looks ---------------------------------------------------------------------------------------------------------

    def forget_metrics(self, names: Names) -> None:
        """Metrics start from zero after each look."""
        for name in names:
            if base(name) == "$metrics" and not self.strict:
                names[name] = jax.tree.map(lambda x: self.widen(x, always=True), no_metrics(self.shapes))

    def look(self, names: Names, carried: Names) -> Names:
        """All resources as they are now. Of those that live elsewhere, what has not arrived yet is left out."""
        self.engine.settle()
        live = {base(name): value for name, value in names.items() if is_resource(name)}
        live.update({base(name): value for name, value in carried.items() if name and is_resource(name)})
        taken = {name: value.value if isinstance(value, Pending) else value for name, value in live.items()
                 if not isinstance(value, Pending) or value.there}
        self.resources = {name: self.each(value) for name, value in taken.items()}
        check_samples(self.ops.world, self.resources)
        return self.resources

    def each(self, value: Any) -> Any:
        """A resource for the one who looks: once per seed, even if the program has not touched it yet."""
        return jax.tree.map(self.widen, value) if self.seeds else value


def leader(workers: Sequence[Worker]) -> Worker:
    """The one whose looks count: it learns or, where learners are replicated over agents, it has the metrics."""
    by_agent = any("learner" in w.program.fragment.components and w.program.fragment.axis == "agent" for w in workers)
    return next(w for w in workers if ("metrics" if by_agent else "learner") in w.program.fragment.components)


def chunk_size(passes: int) -> int:
    return max(1, -(-passes // LOOKS))
