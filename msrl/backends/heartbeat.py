"""Workers in other processes that have frozen, told from those that are at work; and heads of clusters that are gone.

In: for each worker, how to ask for a heartbeat and whether it has come. Out: the numbers of those that are silent. A
heartbeat is answered by a thread of the worker's own, so that a long compilation or a long step of an environment is no
silence. Only the time in which somebody listens counts: a coordinator that is busy, or was itself stopped for a while,
has missed nothing.
"""

import socket
import time
from collections.abc import Callable
from typing import Any

from msrl.errors import ClusterError, LostError, UsageError

ESSENTIAL = ("gcs_server", "raylet")
HEAD_SECONDS = 20.0  # of silence, until a head counts as gone. Ray itself gives up after 60
BEAT_SECONDS = 1.0  # between two heartbeats of a worker
TIMEOUT = 60  # seconds of silence after which a worker counts as lost, unless the deployment has `worker_timeout`
START_SECONDS = 300  # at least, until the first one: processes start and import meanwhile


class Heartbeats:
    def __init__(self, count: int, ask: Callable[[int], Any], came: Callable[[Any], bool], timeout: float,
                 clock: Callable[[], float] = time.monotonic):
        """`ask` asks the worker of that number; `came`: has what it returned been answered?"""
        self.ask, self.came, self.timeout, self.clock = ask, came, timeout, clock
        self.asked: list[Any] = [None] * count
        self.silence = [0.0] * count  # seconds
        self.heard = [False] * count  # at least once
        self.listened = clock()

    def listen(self) -> list[int]:
        """Those that have been silent for too long. It costs nothing to call it often."""
        now = self.clock()
        if now - self.listened < BEAT_SECONDS and self.asked[0] is not None:
            return []
        passed, self.listened = min(now - self.listened, 2 * BEAT_SECONDS), now
        for number, asked in enumerate(self.asked):
            if asked is None:
                self.asked[number] = self.ask(number)
            elif self.came(asked):
                self.asked[number], self.silence[number], self.heard[number] = self.ask(number), 0.0, True
            else:
                self.silence[number] += passed
        return [number for number, silence in enumerate(self.silence)
                if silence > (self.timeout if self.heard[number] else max(self.timeout, START_SECONDS))]

    def lost(self, number: int, title: str) -> LostError:
        return LostError(f"The worker of {title} does not answer.",
                         why=f"There was no heartbeat for {self.silence[number]:.0f} seconds: its process is stopped, "
                             "or its host hangs.",
                         instead="If it was only slow, allow more: --worker-timeout SECONDS.",
                         docs="docs/reliability.md#workers-that-freeze")


class Head:
    """A cluster's head, without which no cluster goes on. Ray itself waits for it for a minute, and then ends this
    process without a word."""

    def __init__(self, address: str, dead: Callable[[], list[str]] | None, logs: str,
                 clock: Callable[[], float] = time.monotonic):
        """`dead`: which of its processes have died, of a cluster that was started here; any other is called up."""
        self.address, self.dead, self.logs, self.clock = address, dead, logs, clock
        self.called = clock()
        self.silence = 0.0
        self.gone = False

    def is_gone(self) -> bool:
        """Is it, as far as can be seen at once? Whoever asks something of it then would wait for ever."""
        return self.gone or (bool({*self.dead()} & {*ESSENTIAL}) if self.dead else not answers(self.address))

    def check(self) -> None:
        """Raises if it is gone: a loss if a new cluster can take its place."""
        if self.dead is not None:
            for name in self.dead():
                if name in ESSENTIAL:
                    self.gone = True
                    raise LostError(f"Ray's process {name} died.",
                                    why="The workers of its cluster find one another by it.",
                                    instead=f"See Ray's logs{self.logs} for its last words; often there is no memory "
                                            "left.")
            return
        now = self.clock()
        if now - self.called < BEAT_SECONDS:
            return
        passed, self.called = min(now - self.called, 2 * BEAT_SECONDS), now
        self.silence = 0.0 if answers(self.address) else self.silence + passed
        if self.silence > HEAD_SECONDS:
            self.gone = True
            raise ClusterError(f"The Ray cluster at {self.address} is gone.",
                               why=f"Its head has not answered for {self.silence:.0f} seconds.",
                               instead="Start it again, and then go on with the run.")


def lost_worker(title: str, logs: str) -> LostError:
    return LostError(f"The worker of {title} died.",
                     why="Its process ended or its host was lost, and the others cannot go on without it.",
                     instead=f"See Ray's logs{logs} for its last words; often it ran out of memory.")


def refused(address: str) -> UsageError:
    return UsageError(f"The Ray cluster at {address} asks for a token.",
                      why="Whoever reaches a cluster can run code in it, so it lets in those who know its token; this "
                          "process has none, or another.",
                      instead="Set what the cluster was started with: RAY_AUTH_MODE=token and "
                              "RAY_AUTH_TOKEN_PATH=FILE.",
                      docs="docs/distributions.md#ray")


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=BEAT_SECONDS).close()
    except OSError:
        return False
    return True
