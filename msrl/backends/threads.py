"""The threads backend: one thread per instance, in one process, with values handed over without a copy.

XLA and most environments release the interpreter lock while they work, so that environments, inference and learning
overlap.
"""

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event, Thread

from msrl.backends.profiling import steps
from msrl.backends.worker import Look, Worker
from msrl.errors import LostError, MsrlError, located


class Threads:
    def __init__(self, workers: list[Worker]):
        self.workers = workers

    def prepare(self) -> None:
        for worker in self.workers:
            worker.prepare()

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (worker, live resources) wherever the host may look; that worker goes on when the host asks for more.
        An error in any thread stops all of them and is raised here."""
        looks: SimpleQueue[tuple[Worker, Look | BaseException, Event]] = SimpleQueue()
        stop = Event()
        threads = [Thread(target=self.work, args=(worker, looks, stop), name=_title(worker), daemon=True)
                   for worker in self.workers]
        for thread in threads:
            thread.start()
        left = len(threads)
        seen = Event()
        try:
            while left:
                worker, look, seen = looks.get()
                if isinstance(look, MsrlError) and len(threads) > 1 and not isinstance(look, LostError):
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
            stop.set()
            seen.set()  # of a look at which the host has left
            for worker in self.workers:
                with worker.exchange.changed:
                    worker.exchange.tell()
            while any(thread.is_alive() for thread in threads):
                while not looks.empty():
                    looks.get()[2].set()
                for thread in threads:
                    thread.join(0.01)
            self.workers[0].exchange.leave()

    def work(self, worker: Worker, looks: SimpleQueue, stop: Event) -> None:
        seen, news = Event(), 0
        try:
            for look in steps(worker):
                if stop.is_set():
                    return
                if look is None:  # it waits for a message: let it look again when there is one
                    news = worker.exchange.wait(news)
                    continue
                looks.put((worker, look, seen))
                seen.wait()
                seen.clear()
        except BaseException as problem:
            looks.put((worker, problem, seen))
            return
        looks.put((worker, None, seen))


def _title(worker: Worker) -> str:
    return f"{worker.program.fragment.name}-{worker.instance}"
