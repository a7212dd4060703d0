"""Channels on which every message takes longer, as between hosts that are far from one another.

In: channels, or the way to other processes, and a time. Out: the same, where what is sent arrives so much later, in the
order in which it was sent. It always holds that a sender does not wait for what it has sent, and that any number of
messages are on their way at once: the time is one of latency, not of bandwidth. Where one thread does everything, there
is nobody who could go on meanwhile, and the sender waits. Where first come is first served within one process, the age
of a trajectory's weights is told as of its arrival.
"""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from msrl.runtime.channels import Exchange, Line


class Courier:
    """Does what it is given after `seconds`, one thing after another, in a thread of its own."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.given: SimpleQueue[tuple[float, Callable[[], None]] | None] = SimpleQueue()
        self.thread: Thread | None = None

    def carry(self, work: Callable[[], None]) -> None:
        if self.thread is None:
            self.thread = Thread(target=self._work, name="msrl-courier", daemon=True)
            self.thread.start()
        self.given.put((time.perf_counter() + self.seconds, work))

    def close(self) -> None:
        """What is still on its way arrives; then the thread ends."""
        if self.thread is not None:
            self.given.put(None)
            self.thread.join()
            self.thread = None

    def _work(self) -> None:
        while (task := self.given.get()) is not None:
            due, work = task
            time.sleep(max(0.0, due - time.perf_counter()))
            work()


class Waiting:
    """In the place of a courier, for one thread that does everything."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def carry(self, work: Callable[[], None]) -> None:
        time.sleep(self.seconds)
        work()

    def close(self) -> None:
        pass


class DelayedExchange:
    """The channels of one process, by way of a courier."""

    exchange: Exchange
    courier: Courier | Waiting

    def __init__(self, exchange: Exchange, courier: Courier | Waiting):
        vars(self).update(exchange=exchange, courier=courier)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.exchange, name, value)

    def line(self, learner: int) -> Line:
        return Line(self, learner)  # type: ignore[arg-type]

    def leave(self) -> None:
        self.courier.close()

    def send(self, *given: Any) -> None:
        self.courier.carry(lambda: self.exchange.send(*given))

    def send_together(self, *given: Any) -> None:
        self.courier.carry(lambda: self.exchange.send_together(*given))
