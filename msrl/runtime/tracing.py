"""What one instance did and when: `Trace`, a bounded list of events, and sums that leave none out.

In: work, moves and waits, by the one thread that the instance runs in. Out: events in the order of their ends, in
seconds of this process's clock; `align` puts a trace of another process on the clock of this one, by the time of day.
It always holds that two events of a trace are apart or one inside the other, and that the seconds of
`own` are of one event only: what is inside another, as compiling often is, is not counted for that one, too.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal, NamedTuple

import jax

from msrl.ir.graph import Node
from msrl.ir.titles import lines, title

LIMIT = 200_000  # events of one instance that are kept
COMPILING = "/jax/core/compile/"  # how JAX's own events of tracing, lowering and compiling begin

Kind = Literal["compute", "move", "wait", "compile"]
Key = tuple[Any, ...]  # by which both ends of a message are known
_HERE = threading.local()  # `trace`: for whom this thread is at work


def epoch() -> float:
    """The time of day at which this process's clock began. It is asked for when it is needed, as the time of day is
    corrected now and then; of several looks at both clocks, the shortest counts."""
    looks = []
    for _ in range(8):
        before, now, after = time.perf_counter(), time.time(), time.perf_counter()
        looks.append((after - before, now - (before + after) / 2))
    return min(looks)[1]


class Event(NamedTuple):
    kind: Kind
    name: str
    start: float
    end: float
    inside: bool = False  # another event?
    args: dict[str, Any] | None = None
    sent: tuple[Key, ...] = ()  # messages that leave here
    taken: tuple[Key, ...] = ()  # messages that end here


class Open:
    """An event that is going on. Whoever has it open may add to what it says."""

    __slots__ = ("args", "inner", "sent", "start", "taken")

    def __init__(self, start: float, args: dict[str, Any] | None):
        self.start, self.args = start, args
        self.inner = 0.0  # seconds of the events inside it
        self.sent: tuple[Key, ...] = ()
        self.taken: tuple[Key, ...] = ()


class Trace:
    def __init__(self, limit: int = LIMIT):
        listen()
        self.limit = limit
        self.process, self.epoch = os.getpid(), epoch()
        self.began = self.ended = time.perf_counter()
        self.events: list[Event] = []
        self.left_out = 0  # events beyond the limit
        self.late: Counter[str] = Counter()  # by kind, the own seconds of these
        self.own: Counter[tuple[str, str]] = Counter()  # by kind and name, the own seconds of all events
        self.open: list[Open] = []
        self.titles: dict[int, tuple[Node, str, dict[str, Any]]] = {}  # by identity of nodes, which are kept

    def titled(self, node: Node) -> tuple[str, dict[str, Any]]:
        """What a node is called, and what there is to say of it."""
        if id(node) not in self.titles:
            self.titles[id(node)] = node, title(node), {"lines": lines(node)}
        return self.titles[id(node)][1:]

    @contextmanager
    def here(self) -> Iterator[None]:
        """What JAX compiles in this thread until the block ends is told here, whatever it is compiled for."""
        before, _HERE.trace = getattr(_HERE, "trace", None), self
        try:
            yield
        finally:
            _HERE.trace = before

    @contextmanager
    def at(self, kind: Kind, name: str, args: dict[str, Any] | None = None) -> Iterator[Open]:
        """An event that lasts as long as the block."""
        this = Open(time.perf_counter(), args)
        self.open.append(this)
        try:
            with self.here():
                yield this
        finally:
            self.open.pop()
            end = time.perf_counter()
            self._add(Event(kind, name, this.start, end, bool(self.open), this.args, this.sent, this.taken), this.inner)

    def wait(self, name: str, start: float, args: dict[str, Any] | None = None) -> None:
        """It has waited since `start`. Waking up for what is not meant for it does not make two waits of one."""
        end, last = time.perf_counter(), self.events[-1] if self.events and not self.left_out else None
        if last and (last.kind, last.name) == ("wait", name):
            self._forget()
            start = last.start
        self._add(Event("wait", name, start, end, args=args), 0.0)

    def compiled(self, seconds: float, what: str = "compile") -> None:
        """It has compiled for so many seconds until now. What was told of parts of it is part of this: JAX tells of
        tracing, of lowering and of compiling, of functions within functions, and others of all of it."""
        end = time.perf_counter()
        start = max(end - seconds, self.open[-1].start if self.open else self.began)
        while self.events and self.events[-1].kind == "compile" and self.events[-1].end > start:
            start = min(start, self.events[-1].start)
            self._forget()
        self._add(Event("compile", what, start, end, bool(self.open)), 0.0)

    def align(self) -> None:
        """Puts a trace of another process on the clock of this one."""
        if self.process != os.getpid():
            here = epoch()
            shift, self.process, self.epoch = self.epoch - here, os.getpid(), here
            self.events = [event._replace(start=event.start + shift, end=event.end + shift) for event in self.events]
            self.began, self.ended = self.began + shift, self.ended + shift

    def _add(self, event: Event, inner: float) -> None:
        seconds = event.end - event.start
        self.own[event.kind, event.name] += seconds - inner
        if self.open:
            self.open[-1].inner += seconds
        if len(self.events) < self.limit:
            self.events.append(event)
        else:
            self.left_out += 1
            self.late[event.kind] += seconds - inner

    def _forget(self) -> None:
        """Takes back the last event, which another will stand for."""
        event = self.events.pop()
        self.own[event.kind, event.name] -= event.end - event.start
        if self.open:
            self.open[-1].inner -= event.end - event.start

    def __getstate__(self) -> dict[str, Any]:
        """As it is now: the instance may be at work meanwhile, in another thread."""
        return {**vars(self), "events": list(self.events), "late": Counter(dict(self.late)),
                "own": Counter(dict(self.own)), "open": [], "titles": {}}


Ready = Callable[[Any], Any]


def at_work(trace: Trace | None, what: Node | str) -> AbstractContextManager[Ready]:
    """Compute, if anybody wants to know. Gives a function that waits for what is computed and returns it: JAX goes on
    before results are there, and the time would be told where they are first looked at."""
    return _UNWATCHED if trace is None else _working(trace, what)


_UNWATCHED: AbstractContextManager[Ready] = nullcontext(lambda made: made)


@contextmanager
def _working(trace: Trace, what: Node | str) -> Iterator[Ready]:
    with trace.at("compute", *((what, None) if isinstance(what, str) else trace.titled(what))):
        yield jax.block_until_ready


@cache
def listen() -> None:
    """Lets JAX tell of what it compiles, for whoever is at work in that thread: it is no part of computing."""

    def told(event: str, seconds: float, **about: Any) -> None:
        trace = getattr(_HERE, "trace", None)
        if trace is not None and event.startswith(COMPILING):
            trace.compiled(seconds, f"compile {about.get('fun_name', '')}".strip())

    jax.monitoring.register_event_duration_secs_listener(told)
