"""A profile: what all instances and the host did, over the runs of one command.

In: the traces of each run, once it has ended, and the host's events. Out: a file for Perfetto, and a summary.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msrl.runtime.bottleneck import Track, as_json, measure
from msrl.runtime.perfetto import trace_json
from msrl.runtime.tracing import LIMIT, Trace, at_work

FILE = "trace.json"


class Profile:
    def __init__(self) -> None:
        self.host = Trace()
        self.runs: list[Sequence[Track]] = []

    @property
    def room(self) -> int:
        """How many more events of an instance can be kept."""
        kept: Counter[tuple[str, int]] = Counter()
        for track in (track for tracks in self.runs for track in tracks):
            kept[track.fragment, track.instance] += len(track.trace.events)
        return LIMIT - max(kept.values(), default=0)

    def add(self, tracks: Sequence[Track]) -> None:
        for track in tracks:
            track.trace.align()
        self.runs.append(tracks)

    def summary(self) -> dict[str, Any]:
        return as_json(*measure(self.runs, self.host))

    def file(self) -> bytes:
        return trace_json(self.runs, self.host)


def on_host(profile: Profile | None, what: str) -> AbstractContextManager[Any]:
    """The host's work, if anybody wants to know of it."""
    return at_work(profile.host if profile else None, what)


@contextmanager
def traced(profile: Profile | None, tracks: Callable[[], list[Track]]) -> Iterator[None]:
    """What instances do in here, however it ends, becomes part of the profile."""
    if profile is None:
        yield
        return
    try:
        with profile.host.here():
            yield
    finally:
        profile.add(tracks())
