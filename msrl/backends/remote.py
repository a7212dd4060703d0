"""An instance at work in a process of its own, whatever that process is.

The coordinator makes an `Assignment` for each instance: all that it takes to make the world again, its local program as
text, its shards and the seed. In the other process, `Station` turns it into executables, runs them in a thread and
hands out reports, one per look. A look of the one that leads is held until the next report is asked for, so that the
coordinator can fetch what it wants of it; the others go on at once. Nothing here knows how processes are started or
how messages travel.
"""

import copy
import dataclasses
import os
import platform
import signal
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Literal

import cloudpickle
import jax

from msrl import loading
from msrl.api import Env, Trainer
from msrl.backends.injecting import Trouble, doom, trouble, victims
from msrl.backends.profiling import steps, watch
from msrl.backends.schedule import Schedule
from msrl.backends.snapshots import Share, order_of
from msrl.backends.switchboard import make_worker
from msrl.backends.wire import Message, Post, RemoteExchange, portable
from msrl.backends.wire_unordered import RemoteUnordered
from msrl.backends.worker import LEARNT, Worker, leader
from msrl.engines.devices import use_devices
from msrl.engines.group import GroupOfProcesses
from msrl.engines.host import filled_by_calls
from msrl.engines.library import make_ops
from msrl.engines.ops import roots
from msrl.engines.parts import part_of
from msrl.engines.reference import Reference
from msrl.engines.shapes import find_shapes
from msrl.engines.world import make_world
from msrl.errors import MsrlError, RunError, UsageError, located
from msrl.ir.interp import Names
from msrl.ir.placed import PARAMETERS, Move, PlacedGraph
from msrl.ir.text import parse, parse_local, show, show_local
from msrl.runtime import strict as surroundings
from msrl.runtime.chaos import Chaos, Fault, Link
from msrl.runtime.delayed import Courier, nbytes
from msrl.runtime.ledger import Ledger
from msrl.runtime.store import Store
from msrl.runtime.tracing import Trace

ALWAYS = ("$env", "$metrics")  # what every look brings along, with the counters


@dataclass(frozen=True)
class Assignment:
    files: tuple[loading.Source, ...]  # of the user's
    world: bytes  # (trainer class, configuration, environment), pickled
    graph: str
    program: str
    moves: tuple[Move, ...]
    divided: dict[str, int]  # the names of which it has a part
    sizes: dict[str, tuple[int, ...]]  # as in Exchange
    lead_move: str | None  # as Exchange.lead
    unordered: bool  # the same goes for these
    lockstep: bool
    max_lag: int | None
    instance: int
    shards: range  # of the environments; of a fragment over agents, of the agents
    seed: int
    seeds: int
    lead: bool
    devices: int  # that its programs run on
    record: dict[str, Any] | None  # in strict mode: what the bits depend on
    saved: tuple[tuple[str, ...], int, bool]  # as in Schedule: loops, every, unordered
    given: Share | None  # as Worker.given
    ledger: dict[str, Any]  # the accounts so far
    profile: int | None  # as in Program
    kills: tuple[Fault, ...]  # what it is to die of
    trouble: Trouble  # what its environments will go through
    link: Link  # what its messages go over
    non_finite: str  # as in Ops
    stream: int  # as in roots

    @property
    def title(self) -> str:
        return f"instance {self.instance} of fragment {parse_local(self.program).fragment.name}"


@dataclass(frozen=True)
class Report:
    """`look`: resources that the coordinator always wants, and the names of the others; `end`: all resources; `failed`:
    what happened, and the traceback; `doomed`: it dies as soon as this is known, of `fault`."""

    kind: Literal["look", "end", "failed", "doomed"]
    resources: Names = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    rows: tuple[dict[str, float], ...] = ()  # reports since the last look, in strict mode
    compile_seconds: float = 0.0
    messages: int = 0
    at: tuple[str, int] | None = None  # as Worker.at
    ledger: Ledger | None = None  # of the one that keeps accounts
    share: Share | None = None  # as Worker.share
    skipped: Any = 0  # as Worker.skipped
    problem: MsrlError | None = None
    trace: str = ""
    profile: Trace | None = None  # at the end: as Worker.trace
    fault: Fault | None = None


# -- in the coordinator ----------------------------------------------------------------------------------------------


def assign(workers: list[Worker], placed: PlacedGraph, trainer: Trainer, env: Env, *, seed: int, seeds: int,
           chaos: Chaos = Chaos(), stream: int = 0) -> list[Assignment]:  # noqa: B008 (frozen)
    """What each of the workers is to do elsewhere, in their order."""
    kills, troubled = victims(chaos, "ray", workers), trouble(chaos, workers[0])
    env.trouble(troubled)  # refuses what cannot be
    env.trouble(())  # it happens in another process
    first = next((w for w in workers if "env" in w.program.fragment.components), None)
    world = cloudpickle.dumps((type(trainer), trainer.config, env))
    # Those that the pickle speaks of; files of other programs may be gone by now.
    files = loading.sources(lambda name: name.encode() in world)
    graph = show(placed.graph)
    lead = leader(workers)
    return [Assignment(
        files, world, graph, show_local(worker.program), placed.moves, placed.divided(worker.program.fragment.name),
        worker.exchange.sizes, worker.exchange.lead, worker.exchange.unordered, worker.exchange.lockstep,
        worker.exchange.max_lag, worker.instance, worker.shards, seed, seeds, worker is lead,
        worker.ops.devices.mesh.size if worker.ops.devices else 1,
        surroundings.record() if worker.strict else None,
        (worker.schedule.loops, worker.schedule.every, worker.schedule.unordered), worker.given,
        worker.exchange.ledger.asdict(), worker.trace.limit if worker.trace else None,
        kills.get(number, ()), troubled if worker is first else (), chaos.link, worker.ops.non_finite, stream)
        for number, worker in enumerate(workers)]


def environment() -> dict[str, str]:
    """The variables that workers need before they start: JAX's settings, strict mode's pins among them, and the way to
    this package. They keep compiled programs if this process does, each on its own host."""
    chosen = {name: value for name, value in os.environ.items()
              if name.startswith(("JAX_", "MSRL_")) or name in ("XLA_FLAGS", *surroundings.VARIABLES)}
    package = str(Path(__file__).parents[2])
    if jax.config.jax_compilation_cache_dir is None:
        chosen["MSRL_CACHE_DIR"] = "off"
    return {**chosen, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))}


class RemoteLook(Mapping[str, Any]):
    """The resources at a look. What did not come along is fetched when it is asked for, while the worker holds."""

    def __init__(self, report: Report, fetch: Any):
        self.report, self.fetch = report, fetch
        self.found = dict(report.resources)

    def __getitem__(self, name: str) -> Any:
        if name not in self.found and name in self.report.kept:
            self.found[name] = self.fetch(name)
        return self.found[name]

    def keep(self, ended: Names | None = None) -> None:
        """Has all from now on, as it was at the run's end or else as it is: whoever could be asked is about to go."""
        self.found.update(ended if ended is not None else {name: self[name] for name in self})

    def __iter__(self) -> Iterator[str]:
        yield from self.report.resources
        yield from self.report.kept

    def __len__(self) -> int:
        return len(self.report.resources) + len(self.report.kept)


def told(report: Report, title: str) -> MsrlError:
    """A worker's failure as an error of the coordinator; its cause is the traceback over there."""
    problem = report.problem
    assert problem is not None
    error = located(problem, title)
    error.__cause__ = Traceback(f"\n{report.trace}")
    return error


class Traceback(Exception):
    """The text of a traceback of another process."""


# -- in the worker's process -----------------------------------------------------------------------------------------


def settle(assignment: Assignment, post: Post, grouped: bool = False) -> Worker:
    """Makes the world again, and in it the worker. `grouped`: it learns with all processes that JAX knows of."""
    check_surroundings(assignment)
    loading.provide(assignment.files)
    cls, config, env = cloudpickle.loads(assignment.world)
    env.trouble(assignment.trouble)
    program, graph = parse_local(assignment.program), parse(assignment.graph)
    batched = program.batched or assignment.record is not None  # strict mode fuses nothing, and has no use for it
    ops = make_ops(make_world(cls(config, env.spec), env), graph, batched, assignment.non_finite)
    shapes = find_shapes(graph, ops)
    use_devices(program, ops, shapes, assignment.moves, assignment.devices)
    mine, local = part_of(filled_by_calls(program, ops), shapes, program.fragment, assignment.divided,
                          assignment.shards)
    trees = {move.id: jax.tree.structure(shapes.names[move.value]) for move in assignment.moves}
    ends = assignment.moves, assignment.sizes, assignment.instance, trees, post
    if assignment.unordered:
        assert assignment.lead_move is not None
        exchange: RemoteExchange = RemoteUnordered(*ends, assignment.lead_move, assignment.max_lag)
    else:
        exchange = RemoteExchange(*ends)
    exchange.lead, exchange.lockstep = assignment.lead_move, assignment.lockstep
    exchange.agents = ops.agents.found
    if PARAMETERS in program.fragment.components:
        exchange.store = Store(exchange.ledger, exchange.changed, assignment.lockstep, assignment.max_lag,
                               watched=ops.non_finite != "ignore")
    root = roots(assignment.seed, assignment.seeds, assignment.stream)
    worker = make_worker(program, assignment.instance, local, mine, root, assignment.record is not None, exchange)
    worker.group = GroupOfProcesses(ops) if grouped else None
    worker.divided, worker.given, worker.schedule = assignment.divided, assignment.given, Schedule(*assignment.saved)
    worker.order = order_of(graph)
    exchange.ledger.restore(assignment.ledger)
    if assignment.profile is not None:
        watch(worker, graph, assignment.profile)
    return worker


def check_surroundings(assignment: Assignment) -> None:
    """In strict mode, refuses to work where the bits would come out otherwise."""
    if assignment.record is None:
        return
    jax.devices()  # which flags matter is known once the backend runs, as it does in the coordinator
    here = surroundings.record()
    other = [f"{name} is {here[name]!r} there and {value!r} here" for name, value in assignment.record.items()
             if here[name] != value]
    if other:
        raise UsageError(f"Strict mode cannot use the worker on {platform.node()}.",
                         why=f"Results have equal bits only under equal settings: {'; '.join(other)}.",
                         instead="Use machines of one kind, with the same jaxlib; or leave out --strict.")


class Station:
    """Runs one assignment. `deliver`, `next`, `fetch` and `stop` may be called from any thread."""

    def __init__(self, assignment: Assignment, post: Post, grouped: bool = False):
        self.lead = assignment.lead
        self.reports: SimpleQueue[Report] = SimpleQueue()
        self.seen, self.stopped = Event(), Event()
        self.holding = False
        if assignment.link:
            post = later(post, Courier(assignment.link))
        self.worker = settle(assignment, post, grouped)
        doom(self.worker, assignment.kills, self._die)
        self.dying = False
        assert isinstance(self.worker.exchange, RemoteExchange)
        self.exchange = self.worker.exchange
        # Accounts are kept where steps are learnt from: by the one that leads, or where the parameters are.
        self.accounts = self.lead if self.exchange.lockstep else self.exchange.store is not None
        self.deliver = self.exchange.deliver
        self.thread = Thread(target=self._work, name=assignment.title, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def next(self) -> Report:
        """The next report; a look that is held is let go first."""
        if self.holding:
            self.holding = False
            self.seen.set()
        if self.dying:  # and the coordinator knows it
            os.kill(os.getpid(), signal.SIGKILL)
        report = self.reports.get()
        self.dying = report.kind == "doomed"
        self.holding = self.lead and report.kind == "look"
        return report

    def fetch(self, name: str) -> Any:
        """A resource of the look that is held."""
        return portable(self.worker.resources[name])

    def stop(self) -> None:
        self.stopped.set()
        self.seen.set()
        with self.exchange.changed:
            self.exchange.tell()

    def _die(self, fault: Fault) -> None:
        self.reports.put(Report("doomed", fault=fault))
        self.stopped.wait()  # for the end, which comes from outside

    def _work(self) -> None:
        try:
            ahead: Names | None = None
            seen = 0
            for look in steps(self.worker):
                if self.stopped.is_set():
                    return
                if look is None:
                    seen = self.exchange.wait(seen)
                    continue
                ahead = look
                self.reports.put(self._look(look))
                if self.lead:
                    self.seen.wait()
                    self.seen.clear()
            assert ahead is not None
            self.reports.put(dataclasses.replace(self._look({}), kind="end", resources=portable(ahead),
                                                 profile=self.worker.trace))
        except BaseException as problem:
            self.reports.put(failure(problem))

    def _look(self, look: Names) -> Report:
        rows: tuple[dict[str, float], ...] = ()
        if isinstance(self.worker.engine, Reference):
            rows, self.worker.engine.reports = tuple(self.worker.engine.reports), []
        # Of learners that are replicated over agents, only all together have what was learnt.
        always = (*ALWAYS, *LEARNT) if self.worker.program.fragment.axis == "agent" else ALWAYS
        share, self.worker.share = self.worker.share, None
        along = {name: portable(value) for name, value in look.items() if name in always or name.startswith("#")}
        return Report("look", along, tuple(name for name in look if name not in along), rows,
                      self.worker.compile_seconds, self.worker.messages, self.worker.at,
                      copy.deepcopy(self.exchange.ledger) if self.accounts else None, share, self.worker.skipped)


def later(post: Post, courier: Courier) -> Post:
    def size(message: Message) -> int:
        return nbytes(message.leaves[1]) + sum(map(size, message.more))

    return lambda fragment, instances, message: courier.carry(
        lambda: post(fragment, instances, message), size(message) * len(instances))


def failure(problem: BaseException) -> Report:
    trace = "".join(traceback.format_exception(problem))
    if not isinstance(problem, MsrlError):
        problem = RunError(f"{type(problem).__name__}: {problem}")
    return Report("failed", problem=problem, trace=trace)
