"""Traces as a file that Perfetto (ui.perfetto.dev) opens: the JSON of Chrome's trace events.

In: the traces of runs in a row, and the host's, all on one clock. Out: JSON, in which a fragment is a process and an
instance a thread; times are in microseconds since the first of them began. It always holds that an event which lies
inside another does so in the file, too, since times are rounded before they are subtracted; and that an arrow, from
where a message left to where it was taken, has both ends.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msrl.runtime.bottleneck import HOST, Track
from msrl.runtime.tracing import Event, Key, Trace

THREADS = 10_000  # of one process: numbers of threads are told apart by that


def trace_json(runs: Sequence[Sequence[Track]], host: Trace) -> bytes:
    """One event per line, so that it can be read without a viewer."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace_events(runs, host))
    return f'{{"traceEvents":[\n{lines}\n],"displayTimeUnit":"ms"}}\n'.encode()


def trace_events(runs: Sequence[Sequence[Track]], host: Trace) -> Iterator[dict[str, Any]]:
    everything = [Track(HOST, 0, host), *(track for tracks in runs for track in tracks)]
    origin = min(track.trace.began for track in everything)
    processes = {name: number for number, name in enumerate(dict.fromkeys(
        (*(track.fragment for track in everything[1:]), HOST)), 1)}
    yield from names(everything, processes)
    place = _Place(origin, processes)
    for track in everything:
        yield from place.events(track)
        if track.trace.left_out:
            yield {**place.at(track, track.trace.ended), "ph": "i", "s": "t", "cat": "left out",
                   "name": f"{track.trace.left_out} events are left out"}
    arrows = 0
    for tracks in runs:
        sent = {key: (track, event) for track in tracks for event in track.trace.events for key in event.sent}
        for track in tracks:
            for event in track.trace.events:
                for key in event.taken:
                    if key in sent:
                        arrows += 1
                        yield from place.arrow(arrows, key, *sent[key], track, event)


def names(tracks: Sequence[Track], processes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """What processes and threads are called, and that processes come in the order of fragments."""
    for fragment, number in processes.items():
        for what, args in (("process_name", {"name": fragment}), ("process_sort_index", {"sort_index": number})):
            yield {"ph": "M", "pid": number, "name": what, "args": args}
    for fragment, instance in dict.fromkeys((track.fragment, track.instance) for track in tracks):
        number = processes[fragment]
        yield {"ph": "M", "pid": number, "tid": number * THREADS + instance, "name": "thread_name",
               "args": {"name": fragment if fragment == HOST else f"{fragment} {instance}"}}


class _Place:
    """Where and when, in the file."""

    def __init__(self, origin: float, processes: dict[str, int]):
        self.origin, self.processes = origin, processes

    def at(self, track: Track, time: float) -> dict[str, Any]:
        number = self.processes[track.fragment]
        return {"pid": number, "tid": number * THREADS + track.instance, "ts": self.nanoseconds(time) / 1000}

    def nanoseconds(self, time: float) -> int:
        return round((time - self.origin) * 1e9)

    def events(self, track: Track) -> Iterator[dict[str, Any]]:
        """Of two that begin at the same time, the one around the other comes first, or viewers would put it inside."""
        spans = ((self.nanoseconds(event.start), self.nanoseconds(event.end), event) for event in track.trace.events)
        for start, end, event in sorted(spans, key=lambda span: (span[0], -span[1])):
            args = {"args": event.args} if event.args else {}
            yield {**self.at(track, event.start), "ph": "X", "dur": (end - start) / 1000, "cat": event.kind,
                   "name": event.name, **args}

    def arrow(self, number: int, key: Key, source: Track, sent: Event, target: Track, taken: Event
              ) -> Iterator[dict[str, Any]]:
        about = {"cat": "message", "name": str(key[0]), "id": number}
        yield {**self.at(source, sent.start), "ph": "s", **about}
        # It binds to the event around it. A clock of another host may be so far off that a message is taken before it
        # is sent; the arrow then points backwards.
        yield {**self.at(target, taken.start), "ph": "f", "bp": "e", **about}
