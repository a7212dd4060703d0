"""Channels on which every message takes longer, as between hosts that are far from one another.

In: channels, or the way to other processes, and a link. Out: the same, where what is sent arrives so much later, in the
order in which it was sent. It always holds that a sender does not wait for what it has sent, and that any number of
messages are on their way at once; only what leaves a link of so many bytes a second leaves it one after another. All
instances of one process share a link, and each process has its own. Where one thread does everything, there is nobody
who could go on meanwhile, and the sender waits. Where first come is first served within one process, the age of a
trajectory's weights is told as of its arrival.
"""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import jax
import numpy as np

from msrl.runtime.channels import Exchange, Line
from msrl.runtime.chaos import Link


def nbytes(tree: Any) -> int:
    return sum(leaf.nbytes if isinstance(leaf, (jax.Array, np.ndarray, np.generic)) else 8
               for leaf in jax.tree.leaves(tree))


class Courier:
    """Does what it is given as late as the link has it, one thing after another, in a thread of its own."""

    def __init__(self, link: Link):
        self.link, self.free = link, 0.0  # when the last of what was given has left
        self.lock = Lock()
        self.given: SimpleQueue[tuple[float, Callable[[], None]] | None] = SimpleQueue()
        self.thread: Thread | None = None

    def carry(self, work: Callable[[], None], size: int) -> None:
        """`size`: the bytes of it."""
        with self.lock:  # of those who send, one after another
            if self.thread is None:
                self.thread = Thread(target=self._work, name="msrl-courier", daemon=True)
                self.thread.start()
            self.free = max(self.free, time.perf_counter()) + (size / self.link.rate if self.link.rate else 0.0)
            self.given.put((self.free + self.link.delay, work))

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

    def __init__(self, link: Link):
        self.link = link

    def carry(self, work: Callable[[], None], size: int) -> None:
        time.sleep(self.link.delay + (size / self.link.rate if self.link.rate else 0.0))
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

    def send(self, move_id: str, source: int, value: Any, steps: int = 0, *only: int | None) -> None:
        """`only`: the one instance that it is for; not every kind of channel knows of it."""
        self.courier.carry(lambda: self.exchange.send(move_id, source, value, steps, *only),
                           nbytes(value) if any(one is not None for one in only) else
                           self._size(move_id, source, value))

    def send_together(self, source: int, held: list[tuple[str, Any, int]]) -> None:
        self.courier.carry(lambda: self.exchange.send_together(source, held),
                           sum(self._size(move_id, source, value) for move_id, value, _ in held))

    def _size(self, move_id: str, source: int, value: Any) -> int:
        """A scatter is divided among those that it is for; anything else goes to each of them."""
        divided = self.exchange.moves[move_id].kind == "scatter"
        return nbytes(value) * (1 if divided else len(self.exchange.leaving.get((move_id, source), ())))
