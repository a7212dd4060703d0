"""As many instances as a cluster has places for, while its hosts come and go.

In: the deployment that was asked for, and how many workers it makes. Out: the largest one that the cluster has places
for now, with the same distribution and fewer instances at most. It always holds that shards stay what they are, so that
the result is the same wherever they are computed. Only Ray has hosts that come and go.
"""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msrl.backends.worker import Worker
from msrl.deployment import Deployment, Host
from msrl.errors import UsageError

LOOK_SECONDS = 5.0  # between two looks for hosts that have come


class Grown(Exception):
    """The cluster has room for more instances than the run has, and there is a snapshot to go on from."""


class Elastic:
    """`possible` raises a UsageError for a deployment that the algorithm cannot have."""

    def __init__(self, asked: Deployment, possible: Callable[[Deployment], None]):
        self.asked, self.now, self.possible = asked, asked, possible
        self.places: Counter[str] = Counter()  # of what was asked for, by fragment
        self.looked = 0.0

    def seen(self, workers: Sequence[Worker]) -> None:
        """Hears of the workers of `now`."""
        self.places = self.places or Counter(worker.program.fragment.name for worker in workers)

    def fit(self) -> Deployment:
        """The largest deployment that there is room for. Where there is none for the smallest either, it is `asked`,
        and the backend says what is missing."""
        if self.asked.backend == "ray" and self.places and not self.unreachable():
            self.now = self.largest() or self.asked
        return self.now

    def could_grow(self) -> bool:
        """Has a host come, since the run became smaller than it was asked to be?"""
        if self.now == self.asked or time.perf_counter() - self.looked < LOOK_SECONDS:
            return False
        self.looked = time.perf_counter()
        return (self.largest() or self.now) != self.now

    def largest(self) -> Deployment | None:
        rooms = ray_backend().rooms(self.asked.address)
        hosts = tuple(host for host in self.asked.hosts if host.name in rooms) or self.asked.hosts
        for count in range(max(self.asked.actors, self.asked.learners), 0, -1):
            each = self.asked.replace(actors=min(self.asked.actors, count), learners=min(self.asked.learners, count),
                                      hosts=hosts)
            if self.workers_of(each) <= room(rooms, hosts) and self.is_possible(each):
                return each
        return None

    def is_possible(self, deployment: Deployment) -> bool:
        try:
            self.possible(deployment)
        except UsageError:
            return False
        return True

    def workers_of(self, deployment: Deployment) -> int:
        """What is replicated has as many instances as were asked for; of the rest there is one of each."""
        most, count = (max(each.actors, each.learners) for each in (self.asked, deployment))
        return sum(count if places == most else places for places in self.places.values())

    def unreachable(self) -> bool:
        """Is the cluster one that was started for the run alone? It has no hosts but this one, and is gone by now."""
        return self.asked.address is None and not ray_backend().joined()


def room(rooms: dict[str, int], hosts: Sequence[Host]) -> int:
    """For how many workers there are places: on the hosts in turn, or wherever there are some."""
    if not hosts:
        return sum(rooms.values())
    return len(hosts) * min(rooms.get(host.name, 0) for host in hosts)


def ray_backend() -> Any:
    return importlib.import_module("msrl.backends.ray_backend")
