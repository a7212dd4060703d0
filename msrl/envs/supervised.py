"""A batch of environments that is replaced when it fails.

An environment may raise or hang through no fault of the run's: a simulator crashes, a connection is lost. Then a fresh
batch is opened and brought to where the old one was before the step, by playing again what led there, and the step is
tried once more. It always holds that what was tried in vain leaves no trace: the run goes on as if nothing had
happened. What fails time and again at the same step is a fault that no other try will mend, and is raised.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import numpy as np

from msrl.api.env import Step
from msrl.api.handle import Handle
from msrl.envs.batch import Batch
from msrl.errors import EnvError

TRIES = 5  # of one step
WAYS_BACK = 50  # to where it was before that: many steps, any of which may fail by chance, though each went well once

log = logging.getLogger("msrl.envs")


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
        return self._try(lambda: self.batch.begin(seeds), self.replace)

    def play(self, action: np.ndarray) -> Step:
        old, mark, obs = self.batch, self.batch.mark(), self.batch.obs

        def again() -> None:
            saved = old.save(mark, obs)
            self.replace()
            self.batch.restore(saved)

        self.plays += 1
        return self._try(lambda: self._disturbed() or self.batch.play(action), again)

    def _disturbed(self) -> None:
        for fault in [fault for fault in self._trouble if fault[1] == self.plays]:
            self._trouble.remove(fault)
            if fault[0] == "hang":
                self._released.wait()  # for nobody: whoever waited for this step has left, with another batch
            raise RuntimeError(f"--chaos {fault[0]}:env")

    def replace(self) -> None:
        self.batch = self.open()

    def save(self) -> dict[str, np.ndarray]:
        return self.batch.save()

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.batch.restore(saved)

    def close(self) -> None:
        """May be called more than once."""
        self.batch.close()
        self._released.set()
        self._leave()

    def _try(self, work: Callable[[], Any], again: Callable[[], None]) -> Any:
        tries, problem = {"step": TRIES, "way back": WAYS_BACK}, None
        while min(tries.values()):
            doing = "step"
            try:
                if problem is not None:
                    doing = "way back"
                    self._in_time(again, patient=True)
                    doing = "step"
                return self._in_time(work)
            except Exception as error:  # whatever an environment raises
                self.failures, problem = self.failures + 1, error
                tries[doing] -= 1
                log.warning("An environment failed (%s: %s); it is replaced.", type(error).__name__, error)
                if not isinstance(error, TimeoutError):  # to close one that hangs might hang, too
                    with contextlib.suppress(Exception):
                        self.batch.close()
        many = TRIES if not tries["step"] else WAYS_BACK
        raise EnvError(f"An environment failed {many} times in a row at the same step.",
                       why=f"The last time it raised {type(problem).__name__}: {problem}",
                       instead="What fails every time is not mended by another try: see the traceback.") from problem

    def _in_time(self, work: Callable[[], Any], patient: bool = False) -> Any:
        """What `work` gives; TimeoutError if that takes too long. Its thread is then left to itself, with the batch."""
        if self.timeout is None or patient:
            return work()
        self._aside = self._aside or Aside()
        answer = self._aside.submit(work)
        try:
            return answer.result(self.timeout)
        except TimeoutError as error:
            if answer.done():  # it was raised in time
                raise
            self._leave()
            raise TimeoutError(f"It took more than {self.timeout:g} seconds") from error

    def _leave(self) -> None:
        if self._aside is not None:
            self._aside.leave()
            self._aside = None


class Aside:
    """A thread that does one thing after another, and that nobody waits for at the end: one that hangs for ever must
    not keep the process."""

    def __init__(self) -> None:
        self.given: SimpleQueue[tuple[Future, Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._work, name="msrl-env", daemon=True).start()

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
