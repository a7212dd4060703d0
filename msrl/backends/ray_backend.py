"""The ray backend: one process per instance, on one machine or on the hosts of a cluster. The only file that knows Ray.

In: the coordinator's workers, which here only mirror those at work, and an assignment for each. Out: the looks of the
instances, as from the other backends. Messages go from worker to worker as actor calls, never through the coordinator.
It always holds that resources are checked before anything is placed, that a worker which dies ends the run with an
error that names it, and that nothing is left behind: actors and their placement group go with the run, and so does Ray
itself if it was started here.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from msrl.backends.remote import Assignment, RemoteLook, Report, Station, environment, failure, told
from msrl.backends.wire import Leaves, Message
from msrl.backends.worker import Look, Worker
from msrl.engines.reference import Reference
from msrl.errors import RunError, UsageError

CPUS = 0.5  # per worker: instances wait for one another most of the time
OUTSTANDING = 32  # messages that a worker may have under way to one other
INLINE_BYTES = 100_000  # what is larger goes through the object store: once, however many are to have it
PLACE_SECONDS = 60.0  # for a cluster to set aside what it has said is free


@ray.remote(max_restarts=0, concurrency_groups={"inbox": 1, "reports": 1, "control": 1})
class Host:
    """The actor around a station. Each group of methods has a thread of its own, so that a message can be delivered
    while the coordinator waits for a report."""

    def __init__(self) -> None:
        self.station: Station | None = None
        self.others: dict[tuple[str, int], Any] = {}
        self.under_way: dict[tuple[str, int], deque[Any]] = {}

    @ray.method(concurrency_group="control")
    def settle(self, assignment: Assignment, others: dict[tuple[str, int], Any]) -> Report | None:
        """Makes the worker; a report if that fails."""
        self.others = others
        self.under_way = {key: deque() for key in others}
        try:
            self.station = Station(assignment, self.post)
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

    @ray.method(concurrency_group="inbox")
    def deliver(self, message: Message, leaves: Leaves | None = None) -> None:
        """`leaves`: those of the message, if they came by the object store."""
        assert self.station is not None
        self.station.deliver(message if leaves is None else replace(message, leaves=leaves))

    def post(self, fragment: str, instances: Sequence[int], message: Message) -> None:
        size = sum(getattr(leaf, "nbytes", 0) for leaf in message.leaves[1])
        stored = ray.put(message.leaves) if len(instances) > 1 and size > INLINE_BYTES else None
        bare = message if stored is None else replace(message, leaves=((), []))
        for instance in instances:
            under_way = self.under_way[fragment, instance]
            under_way.append(self.others[fragment, instance].deliver.remote(bare, stored))
            if len(under_way) > OUTSTANDING:
                ray.get(under_way.popleft())  # an inbox takes everything, so this waits for the network only


class RayBackend:
    def __init__(self, workers: list[Worker], assignments: list[Assignment], address: str | None = None):
        self.workers, self.assignments, self.address = workers, assignments, address

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (mirror, look) wherever the host may look; the leading worker goes on when the host asks for more."""
        ours = join_cluster(self.address, len(self.workers))
        actors: list[Any] = []
        group = None
        try:
            group = set_aside(len(self.workers))
            actors = [self._host(group, number) for number in range(len(self.workers))]
            yield from self._supervise(actors)
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

    def _supervise(self, actors: list[Any]) -> Iterator[tuple[Worker, Look]]:
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
        asked = {actor.next.remote(): number for number, actor in enumerate(actors)}
        while asked:
            ready, _ = ray.wait(list(asked), num_returns=1)
            number = asked.pop(ready[0])
            worker, report = self.workers[number], self._get(ready[0], number)
            if report.kind == "failed":
                raise told(report, self.assignments[number].title)
            self._mirror(worker, report)
            if report.kind == "end":
                continue
            yield worker, RemoteLook(report, lambda name, number=number: self._get(
                actors[number].fetch.remote(name), number))
            asked[actors[number].next.remote()] = number

    def _mirror(self, worker: Worker, report: Report) -> None:
        worker.compile_seconds, worker.messages = report.compile_seconds, report.messages
        if isinstance(worker.engine, Reference):
            worker.engine.reports.extend(report.rows)
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
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        try:
            ray.init(address=address, log_to_driver=False)
        except ConnectionError as problem:
            raise UsageError(f"There is no Ray cluster at {address}.", why=str(problem),
                             instead="Start one with `ray start --head`, or leave the address out.") from problem
        return True
    ray.init(num_cpus=max(os.cpu_count() or 1, int(workers * CPUS + 1)), include_dashboard=False,
             _node_ip_address="127.0.0.1", log_to_driver=False)
    return True


def set_aside(workers: int) -> Any:
    """A placement group with a bundle per worker, spread over the hosts."""
    need, free = workers * CPUS, ray.available_resources().get("CPU", 0.0)
    if free < need:
        raise UsageError(f"The cluster has {free:g} CPUs free, and {workers} workers need {need:g}.",
                         why=f"Each instance has a process of its own, for which {CPUS:g} CPUs are set aside.",
                         instead="Use fewer --actors, add hosts, or wait until others have finished.")
    group = placement_group([{"CPU": CPUS}] * workers, strategy="SPREAD")
    try:
        ray.get(group.ready(), timeout=PLACE_SECONDS)
    except GetTimeoutError as late:
        remove_placement_group(group)
        raise RunError(f"The cluster did not set {need:g} CPUs aside within {PLACE_SECONDS:g} seconds.",
                       why="They were free when the run began; a host may have left since, or others were faster.",
                       instead="Start the run again.") from late
    return group
