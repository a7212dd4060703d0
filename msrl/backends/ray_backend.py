"""The ray backend: one process per instance, on one machine or on the hosts of a cluster. The only file that knows Ray.

In: the coordinator's workers, which here only mirror those at work, and an assignment for each. Out: the looks of the
instances, as from the other backends. Messages go straight from worker to worker (`mail.py`).
It always holds that resources are checked before anything is placed, that a worker which dies ends the run with an
error that names it, and that nothing is left behind: actors and their placement group go with the run, and so does Ray
itself if it was started here.
"""

import contextlib
import logging
import os
import secrets
import socket
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray import _raylet
from ray._private import ray_constants, utils
from ray._private import worker as worker_module
from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from msrl.backends.heartbeat import BEAT_SECONDS, TIMEOUT, Head, Heartbeats, lost_worker, refused
from msrl.backends.mail import Address, Mailbox
from msrl.backends.mirrors import Seat, Where, mirror, seats_of
from msrl.backends.remote import Assignment, RemoteLook, Report, Station, environment, failure, told
from msrl.backends.schedule import Point
from msrl.backends.wire import Message
from msrl.backends.worker import Look, Worker
from msrl.engines.group import join_processes
from msrl.errors import LostError, RoomError, UsageError
from msrl.runtime import cache
from msrl.runtime.chaos import Fault, Killed
from msrl.runtime.interrupts import end_keeping_signals, signals_kept
from msrl.runtime.leftovers import DeadSockets, Session, kill_all, logs_of
from msrl.runtime.tracing import Trace

CPUS = 0.5  # per worker: instances wait for one another most of the time
PLACE_SECONDS = 60.0  # for a cluster to set aside what it has, if others hold it
NEWS_SECONDS = 5.0  # until a process that died is known to have died
TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")  # where Ray looks for it
# What Ray raises where a token is missing or wrong; older versions have no such thing.
REFUSED: tuple[type[Exception], ...] = tuple(filter(None, [getattr(ray.exceptions, "AuthenticationError", None)]))
OWN = "MSRL_OWN_TOKEN"  # that the above are ours to take away
SOME = 0.001  # of a host's own resource, of which there is 1: enough to be placed there
_session: Session | None = None  # of a cluster that was started here
_dead = DeadSockets()


@ray.remote(max_restarts=0, concurrency_groups={"reports": 1, "control": 1, "heartbeat": 1})
class Host:
    """The actor around a station. Each group of methods has a thread of its own, so that the coordinator can ask for
    something while it waits for a report."""

    def __init__(self) -> None:
        self.station: Station | None = None

    @ray.method(concurrency_group="control")
    def open(self, key: bytes) -> Where:
        """Opens the mailbox. Nothing comes before all have settled."""
        address = ray.util.get_node_ip_address()
        self.mailbox = Mailbox(address, key, lambda message: self.station.deliver(message))
        with socket.socket() as probe:
            probe.bind((address, 0))
            port = probe.getsockname()[1]
        return Where(self.mailbox.address, port, os.getpid())

    @ray.method(concurrency_group="control")
    def settle(self, assignment: Assignment, others: dict[tuple[str, int], Address], group: Seat | None
               ) -> Report | None:
        """Makes the worker; a report if that fails."""

        def post(fragment: str, instances: Sequence[int], message: Message) -> None:
            self.mailbox.send(message, [others[fragment, instance] for instance in instances])

        cache.enable()
        try:
            if group is not None:  # before JAX looks for devices
                join_processes(group.address, group.size, group.number, self.mailbox.address[0])
            self.station = Station(assignment, post, group is not None)
        except BaseException as problem:
            return failure(problem)
        return None

    @ray.method(concurrency_group="control")
    def start(self) -> None:
        assert self.station is not None
        self.station.start()

    @ray.method(concurrency_group="control")
    def fetch(self, name: str) -> Any:
        assert self.station is not None
        return self.station.fetch(name)

    @ray.method(concurrency_group="control")
    def ahead(self) -> Point:
        """Where it is on its way to."""
        assert self.station is not None
        return self.station.worker.schedule.ahead

    @ray.method(concurrency_group="control")
    def ask_at(self, point: Point) -> bool:
        assert self.station is not None
        return self.station.worker.schedule.ask_at(point)

    @ray.method(concurrency_group="control")
    def call(self) -> None:
        assert self.station is not None
        self.station.worker.schedule.call()

    @ray.method(concurrency_group="control")
    def trace(self) -> Trace | None:
        """What it did so far, if that is asked for."""
        assert self.station is not None
        return self.station.worker.trace

    @ray.method(concurrency_group="heartbeat")
    def beat(self) -> None:
        """Answered whatever else it does (msrl/backends/heartbeat.py)."""

    @ray.method(concurrency_group="reports")
    def next(self) -> Report:
        assert self.station is not None
        return self.station.next()


class RayBackend:
    def __init__(self, workers: list[Worker], assignments: list[Assignment], address: str | None = None,
                 hosts: tuple[str, ...] = (), timeout: int | None = None):
        """`timeout`: seconds of silence after which a worker counts as lost."""
        self.workers, self.assignments, self.address, self.hosts = workers, assignments, address, hosts
        self.timeout = TIMEOUT if timeout is None else timeout
        self.head: Head | None = None
        self.heartbeats: Heartbeats | None = None
        self.processes: list[int] = []  # of workers on this machine, in a cluster that was started here
        self.actors: list[Any] = []
        self.doomed: dict[int, Fault] = {}  # by number of the worker, what it dies of

    def prepare(self) -> None:
        """Nothing here: what a process runs, it compiles."""

    def ask(self) -> bool:
        """Asks for a checkpoint as soon as can be. Workers go on meanwhile, so that a point may be behind one of them
        by the time it is proposed."""
        loops, _, unordered = self.assignments[0].saved
        if not loops or not self.actors:
            return False
        asked = {number: self.actors[number] for number, assignment in enumerate(self.assignments)
                 if assignment.lead or not unordered}
        margin = 1
        while True:
            ahead = [(number, actor.ahead.remote()) for number, actor in asked.items()]
            loop, passes = max(self._get(ref, number) for number, ref in ahead)
            agreed = [(number, actor.ask_at.remote((loop, passes + margin))) for number, actor in asked.items()]
            if all([self._get(ref, number) for number, ref in agreed]):
                return True
            margin *= 2

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (mirror, look) wherever the host may look; the leading worker goes on when the host asks for more."""
        began = time.perf_counter()
        ours = join_cluster(self.address, len(self.workers))
        actors = self.actors = []
        group, mourned = None, False
        try:
            group = set_aside(len(self.workers), self.hosts)
            actors += [self._host(group, number) for number in range(len(self.workers))]
            yield from self._supervise(actors, began)
        except LostError as lost:
            mourned = not isinstance(lost, Killed)
            raise
        finally:
            if self.head is None or not self.head.is_gone():  # else Ray would wait for ever
                for actor in actors:
                    ray.kill(actor)
                if group is not None:
                    remove_placement_group(group)
            kill_all(self.processes)  # those that have frozen, or whose cluster is gone, do not hear of it
            if ours:
                leave_cluster(keep_logs=mourned)

    def _host(self, group: Any, number: int) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        return Host.options(num_cpus=CPUS, runtime_env={"env_vars": environment()}, scheduling_strategy=place).remote()

    def _supervise(self, actors: list[Any], began: float) -> Iterator[tuple[Worker, Look]]:
        key = secrets.token_bytes(32)
        self.head = make_head()
        self.heartbeats = Heartbeats(len(actors), lambda number: actors[number].beat.remote(),
                                     lambda ref: bool(ray.wait([ref], timeout=0)[0]), self.timeout)
        found = [self._get(ref, number) for number, ref in enumerate([actor.open.remote(key) for actor in actors])]
        others = {(worker.program.fragment.name, worker.instance): where.mailbox
                  for worker, where in zip(self.workers, found, strict=True)}
        self.processes = [where.process for where in found] if self.address is None and _session else []
        seats = seats_of(self.workers, self.assignments, found)
        settling = [actor.settle.remote(assignment, others, seats.get(number))
                    for number, (actor, assignment) in enumerate(zip(actors, self.assignments, strict=True))]
        for number, ref in enumerate(settling):
            report = self._get(ref, number)
            if report is not None:
                raise told(report, self.assignments[number].title)
        for number, ref in enumerate([actor.start.remote() for actor in actors]):
            self._get(ref, number)
        self.ready_seconds = time.perf_counter() - began
        look: RemoteLook | None = None  # the last of the one that leads
        asked = {actor.next.remote(): number for number, actor in enumerate(actors)}
        while asked:
            ready = self._wait(list(asked))
            number = asked.pop(ready)
            worker, report = self.workers[number], self._get(ready, number)
            if report.kind == "doomed":
                self.doomed[number] = report.fault
                asked[actors[number].next.remote()] = number
                continue
            if report.kind == "failed":
                if seats:
                    self._bereaved(asked)
                raise told(report, self.assignments[number].title)
            mirror(worker, report, self.ready_seconds)
            if report.share is not None and self.assignments[number].saved[2] and self.assignments[number].lead:
                for other in actors:
                    other.call.remote()
            if report.kind == "end":
                if look is not None and self.assignments[number].lead:
                    look.keep(report.resources)
                continue
            this = RemoteLook(report, lambda name, number=number: self._get(actors[number].fetch.remote(name), number))
            if self.assignments[number].lead:
                look = this
            try:
                yield worker, this
            except GeneratorExit:
                with contextlib.suppress(LostError):  # who leaves because one is gone asks the rest in vain
                    if look is this:  # all that the host will have of the run
                        look.keep()
                    self._trace(actors)
                raise
            asked[actors[number].next.remote()] = number

    def _bereaved(self, asked: dict[Any, int]) -> None:
        """Raises a loss if there is one: to those of a group, another's death is a failure of their program."""
        gone, _ = ray.wait(list(asked), num_returns=len(asked), timeout=NEWS_SECONDS)
        for ref in gone:
            self._get(ref, asked[ref])

    def _trace(self, actors: list[Any]) -> None:
        """Of a run that is stopped, asks for the traces: those that ended have sent theirs."""
        for number, worker in enumerate(self.workers):
            if worker.trace is not None:
                worker.trace = self._get(actors[number].trace.remote(), number)

    def _wait(self, refs: list[Any]) -> Any:
        """The first that is ready. Raises a loss if a worker has frozen or the cluster's head has died: nothing that
        they were asked for would ever come."""
        while True:
            ready, _ = ray.wait(refs, num_returns=1, timeout=BEAT_SECONDS)
            if self.head is not None:
                self.head.check()
            for number in self.heartbeats.listen() if self.heartbeats is not None else ():
                raise self.heartbeats.lost(number, self.assignments[number].title)
            if ready:
                return ready[0]

    def _get(self, ref: Any, number: int) -> Any:
        try:
            return ray.get(self._wait([ref]))
        except (RayActorError, ObjectLostError, OutOfMemoryError) as died:
            for victim, fault in self.doomed.items():  # others may go with it, and be missed first
                raise Killed(fault, self.assignments[victim].title) from died
            raise lost_worker(self.assignments[number].title, logs_of(_session)) from died


def join_cluster(address: str | None, workers: int) -> bool:
    """Connects to Ray; True if that was done here, and is ours to undo."""
    if ray.is_initialized():
        joined = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", joined):
            raise UsageError(f"This process cannot join the Ray cluster at {address}.",
                             why=f"It has joined the one at {joined}, and Ray allows one at a time.",
                             instead="Call ray.shutdown() first, or leave the address out.")
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    with warnings.catch_warnings(), signals_kept(utils):
        # JAX warns of forks. Those of Ray become other programs at once, and never get as far as JAX.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        if address is None:
            start_cluster(max(os.cpu_count() or 1, int(workers * CPUS + 1)), quiet)
            return True
        try:
            ray.init(address, **quiet)
        except (ConnectionError, *REFUSED) as problem:
            if any(isinstance(each, REFUSED) for each in (problem, problem.__cause__)):
                raise refused(address) from problem
            raise UsageError(f"There is no Ray cluster at {address}.", why=str(problem).strip(),
                             instead="Start one with `ray start --head`, or leave the address out.") from problem
    return True


def leave_cluster(keep_logs: bool = False) -> None:
    """`keep_logs`: of a cluster that was started here, which else leaves nothing."""
    global _session
    end_keeping_signals(ray.shutdown)
    _dead.sweep()
    if _session is not None and not keep_logs:
        _session.remove()
    _session = None
    if os.environ.pop(OWN, None):
        for name in TOKEN:
            del os.environ[name]
        read_token()


def take_token() -> None:
    """Gives the cluster that is started next a token of its own, unless the user has said how to do without."""
    if TOKEN[0] not in os.environ and hasattr(_raylet, "AuthenticationTokenLoader"):  # which older versions have not
        os.environ.update({OWN: "1", TOKEN[0]: "token", TOKEN[1]: secrets.token_hex(32)})
        read_token()


def read_token() -> None:
    """Ray has read these variables when it was imported."""
    _raylet.AuthenticationTokenLoader.instance().reset_cache()
    _raylet.Config.initialize("")


def start_cluster(cpus: int, quiet: dict[str, Any]) -> None:
    """One for this process only. It listens on loopback and asks for a token, since whoever reaches a cluster can run
    code in it."""
    global _session
    take_token()
    _session = Session()
    # Ray replaces loopback by an address that others can reach, unless it is told that there is no cluster.
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        # "local", as the environment may name a cluster to join. No stock of processes: ours are not like others.
        ray.init("local", num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1",
                 _temp_dir=str(_session.path), _system_config={"prestart_worker_first_driver": False}, **quiet)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def make_head() -> Head:
    """That of the cluster that this process has joined."""
    node = worker_module._global_node
    own = _session is not None and node is not None
    return Head(ray.get_runtime_context().gcs_address, (lambda: [name for name, _ in node.dead_processes()]) if own
                else None, logs_of(_session))


def set_aside(workers: int, hosts: tuple[str, ...]) -> Any:
    """A placement group with a bundle per worker: on the hosts in turn, or spread over all there are."""
    there = ray.cluster_resources()
    need, total = workers * CPUS, there.get("CPU", 0.0)
    if total < need:
        raise RoomError(f"The cluster has {total:g} CPUs, and {workers} workers need {need:g}.",
                        why=f"Each instance has a process of its own, for which {CPUS:g} CPUs are set aside.",
                        instead="Use fewer --actors or --learners, or add hosts.")
    known = sorted(name.removeprefix("node:") for name in there if name.startswith("node:") and "__" not in name)
    for host in hosts:
        if host not in known:
            raise RoomError(f"The cluster has no host {host}.", why=f"It has {', '.join(known)}.",
                            instead="Use these addresses, or leave the hosts out.")
    bundles = [{"CPU": CPUS, **({f"node:{hosts[number % len(hosts)]}": SOME} if hosts else {})}
               for number in range(workers)]
    group, began = placement_group(bundles, strategy="SPREAD"), time.perf_counter()
    while not group.wait(min(1.0, PLACE_SECONDS)):
        left = ray.cluster_resources().get("CPU", 0.0) < need
        if left or time.perf_counter() - began > PLACE_SECONDS:
            remove_placement_group(group)
            raise LostError("A host left while others were waited for." if left else
                            f"The cluster did not set {need:g} CPUs aside within {PLACE_SECONDS:g} seconds.",
                            why="" if left else "It has as many, but others hold them.",
                            instead="Wait until others have finished, add hosts, or use fewer --actors or --learners.")
    return group


def joined() -> bool:
    return bool(ray.is_initialized())


def rooms(address: str | None) -> dict[str, int]:
    """By host of the cluster, how many workers it can have, whoever holds its CPUs at present."""
    ours = join_cluster(address, 0)
    try:
        found: Counter[str] = Counter()  # a host may have several of Ray's nodes
        for node in ray.nodes():
            found[node["NodeManagerAddress"]] += int(node["Resources"].get("CPU", 0.0) / CPUS) if node["Alive"] else 0
        return +found
    finally:
        if ours:
            leave_cluster()
