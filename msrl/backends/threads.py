"""The threads backend: as many threads as instances, in one process, with values handed over without a copy.

XLA and most environments release the interpreter lock while they work, so that environments, inference and learning
overlap. Any thread takes up any instance that can go on: one that has to wait for an answer works on the answer
itself, if nobody else does, which is sooner than to wake another. So who sends tells the others only when it goes on to
something else (`Exchange.untold`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread

from msrl.backends.profiling import steps
from msrl.backends.worker import Look, Worker
from msrl.errors import LostError, MsrlError, located


@dataclass(eq=False)
class Turn:
    """An instance between two turns of a thread."""

    worker: Worker
    looks: Iterator[Look]
    news: int = -1  # how much of it there was when it found nothing to do
    told: int = 0  # of that by itself, in its last turn
    busy: bool = False


class Threads:
    def __init__(self, workers: list[Worker]):
        self.workers = workers
        self.exchange = workers[0].exchange
        self.stopped = False

    def prepare(self) -> None:
        for worker in self.workers:
            worker.prepare()

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (worker, live resources) wherever the host may look; that worker goes on when the host asks for more.
        An error in any thread stops all of them and is raised here."""
        looks: SimpleQueue[tuple[Worker, Look | BaseException, Event]] = SimpleQueue()
        turns = [Turn(worker, steps(worker)) for worker in self.workers]
        left, several, seen = len(turns), len(turns) > 1, Event()
        for worker in self.workers:
            worker.outbox.patient = several
        threads = [Thread(target=self.work, args=(turns, looks), name=f"msrl-{number}", daemon=True)
                   for number in range(left)]
        for thread in threads:
            thread.start()
        try:
            while left:
                worker, look, seen = looks.get()
                if isinstance(look, MsrlError) and several and not isinstance(look, LostError):
                    place = f"instance {worker.instance} of fragment {worker.program.fragment.name}"
                    raise located(look, place) from look
                if isinstance(look, BaseException):
                    raise look
                if look is None:
                    left -= 1
                    continue
                yield worker, look
                seen.set()
        finally:
            self.stopped = True
            seen.set()  # of a look at which the host has left
            self.exchange.tell_now()
            while any(thread.is_alive() for thread in threads):
                while not looks.empty():
                    looks.get()[2].set()
                for thread in threads:
                    thread.join(0.01)
            self.exchange.leave()

    def work(self, turns: list[Turn], looks: SimpleQueue) -> None:
        """What a thread does: one turn after another."""
        seen, last = Event(), None
        while (turn := self.take(turns, last)) is not None:
            worker, last = turn.worker, turn
            try:
                for look in turn.looks:
                    if self.stopped:
                        return
                    if look is None:  # it waits for a message
                        break
                    self.exchange.tell_now()
                    looks.put((worker, look, seen))
                    seen.wait()
                    seen.clear()
                    if self.stopped:  # before it goes on: the next chunk would overwrite what the host has looked at
                        return
                else:
                    turns.remove(turn)
                    looks.put((worker, None, seen))
            except BaseException as problem:
                looks.put((worker, problem, seen))
                return

    def take(self, turns: list[Turn], last: Turn | None) -> Turn | None:
        """One that there is news for, of others sooner than of the one whose turn was last; None at the end."""
        exchange = self.exchange
        with exchange.changed:
            if last is not None:
                last.busy, last.news = False, last.news + last.worker.outbox.news - last.told
            exchange.untold = False
            while turns and not self.stopped:
                ready = [turn for turn in turns if not turn.busy and turn.news != exchange.news]
                if ready:
                    found = ready[0] if ready[0] is not last else ready[-1]
                    found.busy, found.news, found.told = True, exchange.news, found.worker.outbox.news
                    exchange.changed.notify(len(ready) - 1)
                    return found
                exchange.changed.wait()
            exchange.changed.notify_all()
        return None
