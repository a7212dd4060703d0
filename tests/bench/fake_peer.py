"""A peer that makes two steps for each that it is asked for, and is quickest with one thread."""

import time


class Fake:
    version, quantum = "1.0", 10

    def __init__(self, settings):
        self.factor, self.count = settings["factor"], 1

    def run(self, steps: int) -> int:
        print("libraries talk")  # which must not get into the answers
        time.sleep(0.001 * self.count)
        return steps * self.factor

    def threads(self, count: int) -> None:
        self.count = 1 if count == 1 else 20 * count

    def close(self) -> None:
        pass


def make(settings) -> Fake:
    return Fake(settings)


def broken(settings):
    raise RuntimeError("it cannot be made")
