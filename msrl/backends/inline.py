"""The inline backend: one thread steps all local programs, in a fixed order. It is what one debugs with."""

from collections.abc import Iterator

from msrl.backends.profiling import steps
from msrl.backends.worker import Look, Worker
from msrl.errors import RunError


class Inline:
    """Gives each worker a turn until it waits or the host may look."""

    def __init__(self, workers: list[Worker]):
        self.workers = workers

    def prepare(self) -> None:
        for worker in self.workers:
            worker.prepare()

    def run(self) -> Iterator[tuple[Worker, Look]]:
        """Yields (worker, live resources) wherever the host may look."""
        running = [(worker, steps(worker)) for worker in self.workers]
        while running:
            before = len(running), sum(worker.messages for worker, _ in running)
            for pair in list(running):
                worker, looks = pair
                for look in looks:
                    if look is None:
                        break
                    yield worker, look
                else:
                    running.remove(pair)
            if running and before == (len(running), sum(worker.messages for worker, _ in running)):
                waiting = ", ".join(f"{worker.program.fragment.name} {worker.instance}" for worker, _ in running)
                raise RunError("The fragments wait for one another.", why=f"Waiting: {waiting}.")
