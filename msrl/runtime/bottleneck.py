"""Which fragment is the bottleneck, and how idle the others are.

In: the traces of a run, or of several in a row, all on one clock. Out: for each instance the shares of its time, and
one line for people. Shares are of the time in which nobody compiled, since all others wait for one who does. It always
holds that the shares of an instance are apart: compute, moves, and being idle, which is to wait or to have ended before
the others; what is left is Python's work between two events.
"""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msrl.runtime.tracing import Trace

HOST = "host"  # the coordinator, where it evaluates, logs and saves

Span = tuple[float, float]


@dataclass(frozen=True)
class Track:
    """The trace of one instance."""

    fragment: str
    instance: int
    trace: Trace


@dataclass(frozen=True)
class Load:
    """Of one instance: parts of the time, from 0 to 1."""

    fragment: str
    instance: int
    compute: float
    move: float
    idle: float
    ops: dict[str, float]  # seconds by what was computed, all that was compiled apart; the longest first
    left_out: int  # events that are not in the trace

    @property
    def mostly(self) -> str:
        """With what it is at work."""
        first = next(iter(self.ops), "")
        ops = first.count(" + ") + 1
        return first if ops < 4 else f"a compiled stretch of {ops} ops"


class Window:
    """The time of one run in which nothing was compiled, by an instance or by the host."""

    def __init__(self, tracks: Sequence[Track], host: Trace):
        self.start = min(each.trace.began for each in tracks)
        self.end = max(each.trace.ended for each in tracks)
        compiling = united((event.start, event.end) for trace in (*(each.trace for each in tracks), host)
                           for event in trace.events if event.kind == "compile")
        self.starts = [start for start, _ in compiling]
        self.ends = [end for _, end in compiling]
        self.before = [0.0, *itertools.accumulate(end - start for start, end in compiling)]

    @property
    def seconds(self) -> float:
        return self.within(self.start, self.end)

    def within(self, start: float, end: float) -> float:
        """How much of a stretch of time lies in it."""
        start, end = max(start, self.start), min(end, self.end)
        return max(0.0, end - start - (self.compiled(end) - self.compiled(start))) if end > start else 0.0

    def compiled(self, until: float) -> float:
        """Seconds of compiling up to this point."""
        number = bisect_right(self.starts, until)
        return self.before[number] - (max(0.0, self.ends[number - 1] - until) if number else 0.0)


def united(spans: Iterable[Span]) -> list[Span]:
    """The same times, without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def measure(runs: Sequence[Sequence[Track]], host: Trace) -> tuple[float, list[Load]]:
    """The seconds that shares are of, and the shares of all instances, the host last."""
    spent: dict[tuple[str, int], Counter[str]] = {}
    ops: dict[tuple[str, int], Counter[str]] = {}
    left_out: Counter[tuple[str, int]] = Counter()
    windows = [Window(tracks, host) for tracks in runs]
    for tracks, window in zip(runs, windows, strict=True):
        for track in (*tracks, Track(HOST, 0, host)):
            key, trace = (track.fragment, track.instance), track.trace
            mine = spent.setdefault(key, Counter())
            for event in trace.events:
                if not event.inside and event.kind != "compile":
                    mine[event.kind] += window.within(event.start, event.end)
            if trace is not host:
                mine.update(trace.late)
                mine["gone"] += window.seconds - window.within(trace.began, trace.ended)
                add(ops.setdefault(key, Counter()), trace)
                left_out[key] += trace.left_out
    add(ops.setdefault((HOST, 0), Counter()), host)
    seconds = sum(window.seconds for window in windows)

    def load(key: tuple[str, int]) -> Load:
        part = Counter({kind: time / seconds if seconds else 0.0 for kind, time in spent[key].items()})
        idle = 1 - part["compute"] if key[0] == HOST else part["wait"] + part["gone"]
        return Load(*key, part["compute"], part["move"], idle, dict(ops[key].most_common()), left_out[key])

    return seconds, [load(key) for key in spent]


def add(ops: Counter[str], trace: Trace) -> None:
    for (kind, name), seconds in trace.own.items():
        if kind == "compute":
            ops[name] += seconds


def bottleneck(shares: Sequence[Load]) -> Load | None:
    """The instance that is most at work: one of those that all others wait for, sooner or later."""
    return max(shares, key=lambda each: each.compute, default=None)


def line(seconds: float, shares: Sequence[Load]) -> str:
    """For people."""
    worst = bottleneck(shares)
    if worst is None or seconds <= 0:
        return "all of the time went into compiling"
    idle: dict[str, list[float]] = {}
    for each in shares:
        if each.fragment != HOST:
            idle.setdefault(each.fragment, []).append(each.idle)
    replicated = len(idle.get(worst.fragment, ())) > 1
    work = f"{percent(worst.compute)} at work" + (f", mostly {worst.mostly}" if worst.mostly else "")
    work = f"instance {worst.instance} is {work}" if replicated else work
    if len(shares) == 2 and worst.fragment != HOST:  # the other is the host
        return f"{worst.fragment} is {work}; it waits for the host {percent(worst.idle)} of the time"
    others = [f"{name} is idle {percent(sum(each) / len(each))} of the time" for name, each in idle.items()
              if name != worst.fragment]
    if replicated and not others:
        mean = sum(idle[worst.fragment]) / len(idle[worst.fragment])
        others = [f"all {len(idle[worst.fragment])} are idle {percent(mean)} of the time on average"]
    return "; ".join([f"{worst.fragment} is the bottleneck: {work}", *others])


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def as_json(seconds: float, shares: Sequence[Load]) -> dict[str, Any]:
    """For other programs."""
    worst = bottleneck(shares)
    return {"line": line(seconds, shares), "bottleneck": worst.fragment if worst else None,
            "seconds": round(seconds, 3),
            "instances": [{"fragment": each.fragment, "instance": each.instance, "compute": round(each.compute, 4),
                           "move": round(each.move, 4), "idle": round(each.idle, 4), "left_out": each.left_out,
                           "ops": {name: round(time, 4) for name, time in each.ops.items()}} for each in shares]}
