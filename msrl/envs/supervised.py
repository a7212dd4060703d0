"""Environments that are replaced when they fail.

An environment may raise or hang through no fault of the run's: a simulator crashes, a connection is lost. Then a fresh
one is opened and brought to where the old one was before the step, by playing again what led there, and the step is
tried once more. It always holds that what was tried in vain leaves no trace: the run goes on as if nothing had
happened. What fails time and again at the same step is a fault that no other try will mend, and is raised.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import numpy as np

from msrl.api.env import Step
from msrl.api.handle import Handle
from msrl.envs.batch import Batch, Place
from msrl.errors import EnvError
from msrl.tracebacks import author_span

TRIES = 5  # of one step
WAYS_BACK = 50  # to where it was before that: many steps, any of which may fail by chance, though each went well once

log = logging.getLogger("msrl.envs")


class TooLong(TimeoutError):
    """It took too long, and does still."""


class Supervised(Handle):
    """The handle of a shard's environments. `timeout`: how many seconds a step may take; None for any number."""

    def __init__(self, open: Callable[[], Batch], timeout: float | None = None):
        self.open, self.timeout = open, timeout
        self.batch = open()
        self.failures = 0  # so far
        self._aside: Aside | None = None
        self.plays = 0  # so far
        self._trouble: list[tuple[str, int]] = []
        self._released = Event()

    def trouble(self, faults: Sequence[tuple[str, int]]) -> None:
        """Goes wrong on purpose, once for each: ("raise" or "hang", number of the step)."""
        self._trouble = list(faults)

    def __len__(self) -> int:
        return len(self.batch)

    def begin(self, seeds: list[int]) -> np.ndarray:
        return self._try(lambda: self._in_time(lambda: self.batch.begin(seeds)))

    def play(self, action: np.ndarray) -> Step:
        self.plays += 1
        assert self.batch.obs is not None, "an environment is reset before it is stepped"
        return self._try(lambda: self._in_time(lambda: self._disturbed() or self.batch.play(action)),
                         (self.batch.mark(), self.batch.obs))

    def probe(self, action: np.ndarray) -> tuple[np.ndarray, Step]:
        """What one reset and one step give. It is tried once only."""
        first = self._in_time(lambda: self.batch.begin([0] * len(self)))
        return first, self._in_time(lambda: self.batch.play(action))

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._try(lambda: self._walk(self.batch.restore(saved)), tries=WAYS_BACK)

    def _disturbed(self) -> None:
        for fault in [fault for fault in self._trouble if fault[1] == self.plays]:
            self._trouble.remove(fault)
            if fault[0] == "hang":
                self._released.wait()  # for nobody: whoever waited for this step has left, with another batch
            raise RuntimeError(f"--chaos {fault[0]}:env")

    def save(self) -> dict[str, np.ndarray]:
        return self.batch.save()

    def close(self) -> None:
        """May be called more than once."""
        self.batch.close()
        self._released.set()
        self._leave()

    def _try(self, work: Callable[[], Any], place: Place | None = None, tries: int = TRIES) -> Any:
        """What `work` gives with this batch, or with one that takes its stead at `place`."""
        left = {"work": tries, "way back": WAYS_BACK}
        failed, problem = None, Exception()  # the batch that failed at its work, and of what
        while min(left.values()):
            doing = "work"
            try:
                if failed is not None:
                    doing = "way back"
                    self.batch, way = failed.mended(self.open, place)
                    self._walk(way)
                    doing = "work"
                return work()
            except EnvError:
                raise  # it gives what it must not (contract.py): no other try will mend that
            except Exception as error:  # whatever an environment raises
                self.failures, problem = self.failures + 1, error
                log.warning("An environment failed (%s: %s); it is replaced.", type(error).__name__, error)
                if not isinstance(error, TooLong):
                    with contextlib.suppress(Exception):
                        self.batch.fail()()
                if doing == "work":
                    if failed is not None and self.batch.done > failed.done:  # it is another that fails now
                        left = {"work": tries, "way back": WAYS_BACK}
                    failed = self.batch
                left[doing] -= 1
        many = tries if not left["work"] else WAYS_BACK
        raise EnvError(f"An environment failed {many} times in a row at the same step.", also=author_span(problem),
                       why=f"The last time it raised {type(problem).__name__}: {problem}",
                       instead="What fails every time is not mended by another try: see the traceback.") from problem

    def _walk(self, way: Iterator[None]) -> None:
        """Each of its steps may take as long as any other."""
        end = object()
        while self._in_time(lambda: next(way, end)) is not end:
            pass

    def _in_time(self, work: Callable[[], Any]) -> Any:
        """What `work` gives; `TooLong` if that takes too long. Its thread is then left to itself, with what failed."""
        if self.timeout is None:
            return work()
        self._aside = self._aside or Aside()
        answer, done = self._aside.submit(work), -1
        while not answer.done() and self.batch.done > done:  # each of a batch has its time
            done = self.batch.done
            wait([answer], self.timeout)
        if answer.done():
            return answer.result()
        self._aside.submit(self.batch.fail())  # to close one that hangs might hang, too
        self._leave()
        raise TooLong(f"It took more than {self.timeout:g} seconds")

    def _leave(self) -> None:
        if self._aside is not None:
            self._aside.leave()
            self._aside = None


class Aside:
    """A thread that does one thing after another, and that nobody waits for at the end: one that hangs for ever must
    not keep the process."""

    def __init__(self) -> None:
        self.given: SimpleQueue[tuple[Future, Callable[[], Any]] | None] = SimpleQueue()
        self.thread = Thread(target=self._work, name="msrl-env", daemon=True)
        self.thread.start()

    def submit(self, work: Callable[[], Any]) -> Future:
        answer: Future = Future()
        self.given.put((answer, work))
        return answer

    def leave(self) -> None:
        """It ends when it is done with what it was given."""
        self.given.put(None)

    def _work(self) -> None:
        while (task := self.given.get()) is not None:
            answer, work = task
            try:
                answer.set_result(work())
            except BaseException as problem:  # for the one who asked
                answer.set_exception(problem)
            del answer, work, task  # it may wait for long
