"""An environment that goes wrong, in a module that workers can import."""

import os
import signal
import time

from tests.matrix.toys import HostCorridor


class Breaks(HostCorridor):
    """`how` is called on the third step."""

    def __init__(self, how):
        self.how = how

    def init(self, key, num_envs):
        return {**super().init(key, num_envs), "steps": 0}

    def step(self, state, action, key):
        state["steps"] += 1
        if state["steps"] == 3:
            self.how()
        return super().step(state, action, key)


def collapse():
    raise ValueError("the corridor collapsed")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def linger():
    """Once in a process, keeps Python busy for 21 seconds."""
    if not lingered:
        lingered.append(True)
        end = time.monotonic() + 21
        while time.monotonic() < end:
            sum(range(1000))


lingered: list[bool] = []
