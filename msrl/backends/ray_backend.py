"""The ray backend: one process per instance, on one machine or on the hosts of a cluster. The only file that knows Ray.

In: the coordinator's workers, which here only mirror those at work, and an assignment for each. Out: the looks of the
instances, as from the other backends. Messages go from worker to worker as actor calls, never through the coordinator.
It always holds that resources are checked before anything is placed, that a worker which dies ends the run with an
error that names it, and that nothing is left behind: actors and their placement group go with the run, and so does Ray
itself if it was started here.
"""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray._private import ray_constants
from ray.exceptions import RayActorError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from msrl.backends.remote import Assignment, RemoteLook, Report, Station, environment, failure, told
from msrl.backends.wire import Leaves, Message
from msrl.backends.worker import Look, Worker
from msrl.engines.reference import Reference
from msrl.errors import RunError, UsageError

CPUS = 0.5  # per worker: instances wait for one another most of the time
INLINE_BYTES = 100_000  # what is larger goes through the object store: once, however many are to have it
PLACE_SECONDS = 60.0  # for a cluster to set aside what it has, if others hold it
SOME = 0.001  # of a host's own resource, of which there is 1: enough to be placed there


class Mail:
    """Hands messages to the actors of other instances, each of which has a method `deliver`. Nothing comes back: Ray
    keeps order and does not lose messages, and of an actor that has died the coordinator hears."""

    def __init__(self, others: dict[tuple[str, int], Any]):
        self.others = others

    def post(self, fragment: str, instances: Sequence[int], message: Message) -> None:
        size = sum(getattr(leaf, "nbytes", 0) for leaf in message.leaves[1])
        stored = ray.put(message.leaves) if len(instances) > 1 and size > INLINE_BYTES else None
        bare = message if stored is None else replace(message, leaves=((), []))
        for instance in instances:
            self.others[fragment, instance].deliver.remote(bare, stored)


@ray.remote(max_restarts=0, concurrency_groups={"inbox": 1, "reports": 1, "control": 1})
class Host:
    """The actor around a station. Each group of methods has a thread of its own, so that a message can be delivered
    while the coordinator waits for a report."""

    def __init__(self) -> None:
        self.station: Station | None = None

    @ray.method(concurrency_group="control")
    def settle(self, assignment: Assignment, others: dict[tuple[str, int], Any]) -> Report | None:
        """Makes the worker; a report if that fails."""
        try:
            self.station = Station(assignment, Mail(others).post)
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

    @ray.method(concurrency_group="reports")
    def next(self) -> Report:
        assert self.station is not None
        return self.station.next()

    @ray.method(concurrency_group="inbox", num_returns=0)
    def deliver(self, message: Message, leaves: Leaves | None = None) -> None:
        """`leaves`: those of the message, if they came by the object store."""
        assert self.station is not None
        self.station.deliver(message if leaves is None else replace(message, leaves=leaves))


class RayBackend:
    def __init__(self, workers: list[Worker], assignments: list[Assignment], address: str | None = None,
                 hosts: tuple[str, ...] = ()):
        self.workers, self.assignments, self.address, self.hosts = workers, assignments, address, hosts

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (mirror, look) wherever the host may look; the leading worker goes on when the host asks for more."""
        began = time.perf_counter()
        ours = join_cluster(self.address, len(self.workers))
        actors: list[Any] = []
        group = None
        try:
            group = set_aside(len(self.workers), self.hosts)
            actors = [self._host(group, number) for number in range(len(self.workers))]
            yield from self._supervise(actors, began)
        finally:
            for actor in actors:
                ray.kill(actor)
            if group is not None:
                remove_placement_group(group)
            if ours:
                ray.shutdown()

    def _host(self, group: Any, number: int) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        return Host.options(num_cpus=CPUS, runtime_env={"env_vars": environment()}, scheduling_strategy=place).remote()

    def _supervise(self, actors: list[Any], began: float) -> Iterator[tuple[Worker, Look]]:
        others = {(worker.program.fragment.name, worker.instance): actor
                  for worker, actor in zip(self.workers, actors, strict=True)}
        settling = [actor.settle.remote(assignment, others)
                    for actor, assignment in zip(actors, self.assignments, strict=True)]
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
            ready, _ = ray.wait(list(asked), num_returns=1)
            number = asked.pop(ready[0])
            worker, report = self.workers[number], self._get(ready[0], number)
            if report.kind == "failed":
                raise told(report, self.assignments[number].title)
            self._mirror(worker, report)
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
                if look is this:  # all that the host will have of the run
                    look.keep()
                raise
            asked[actors[number].next.remote()] = number

    def _mirror(self, worker: Worker, report: Report) -> None:
        # Processes that start and make their world again are getting ready too.
        worker.compile_seconds, worker.messages = self.ready_seconds + report.compile_seconds, report.messages
        worker.at = report.at
        if isinstance(worker.engine, Reference):
            worker.engine.reports.extend(report.rows)
        if report.ledger is not None:
            worker.exchange.ledger = report.ledger
        if report.kind == "end":
            worker.resources = report.resources

    def _get(self, ref: Any, number: int) -> Any:
        try:
            return ray.get(ref)
        except RayActorError as died:
            raise RunError(f"The worker of {self.assignments[number].title} died.",
                           why="Its process ended or its host was lost, and the others cannot go on without it.",
                           instead="See Ray's logs for its last words; often it ran out of memory.") from died


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
    with warnings.catch_warnings():
        # JAX warns of forks. Those of Ray become other programs at once, and never get as far as JAX.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        if address is None:
            start_cluster(max(os.cpu_count() or 1, int(workers * CPUS + 1)), quiet)
            return True
        try:
            ray.init(address, **quiet)
        except ConnectionError as problem:
            raise UsageError(f"There is no Ray cluster at {address}.", why=str(problem).strip(),
                             instead="Start one with `ray start --head`, or leave the address out.") from problem
    return True


def start_cluster(cpus: int, quiet: dict[str, Any]) -> None:
    """One for this process only. It listens on loopback, since whoever reaches a cluster can run code in it."""
    # Ray replaces loopback by an address that others can reach, unless it is told that there is no cluster.
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        # "local", as the environment may name a cluster to join. No stock of processes: ours are not like others.
        ray.init("local", num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1",
                 _system_config={"prestart_worker_first_driver": False}, **quiet)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def set_aside(workers: int, hosts: tuple[str, ...]) -> Any:
    """A placement group with a bundle per worker: on the hosts in turn, or spread over all there are."""
    there = ray.cluster_resources()
    need, total = workers * CPUS, there.get("CPU", 0.0)
    if total < need:
        raise UsageError(f"The cluster has {total:g} CPUs, and {workers} workers need {need:g}.",
                         why=f"Each instance has a process of its own, for which {CPUS:g} CPUs are set aside.",
                         instead="Use fewer --actors or --learners, or add hosts.")
    known = sorted(name.removeprefix("node:") for name in there if name.startswith("node:") and "__" not in name)
    for host in hosts:
        if host not in known:
            raise UsageError(f"The cluster has no host {host}.", why=f"It has {', '.join(known)}.",
                             instead="Use these addresses, or leave the hosts out.")
    bundles = [{"CPU": CPUS, **({f"node:{hosts[number % len(hosts)]}": SOME} if hosts else {})}
               for number in range(workers)]
    group = placement_group(bundles, strategy="SPREAD")
    if not group.wait(PLACE_SECONDS):
        remove_placement_group(group)
        raise RunError(f"The cluster did not set {need:g} CPUs aside within {PLACE_SECONDS:g} seconds.",
                       why="It has as many, but others hold them, or a host has left.",
                       instead="Wait until others have finished, add hosts, or use fewer --actors or --learners.")
    return group
