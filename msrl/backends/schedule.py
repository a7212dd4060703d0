"""When the instances of a run put down what they have: at the same point of the loop, or nobody could go on from it.

Instances go through the same passes of the same loops at their own pace. A point is (loop, passes done). Points are due
after every so many passes and at the end, or when one is asked for: then it is the first that nobody has set out to
pass yet. Where instances do not wait for one another, there is no such point: the learner's counts, and the others
follow as soon as they hear of it.
"""

from collections.abc import Sequence
from threading import Lock

Point = tuple[int, int]  # (which of the loops, passes of it)
AT_END = 2**62  # in place of a number of passes: a snapshot only when all of them are made


class Schedule:
    """One for all instances of a process. `loops`: those that every instance takes part in, in order."""

    def __init__(self, loops: Sequence[str], every: int = 0, unordered: bool = False):
        self.loops, self.every, self.unordered = tuple(loops), every, unordered
        self.lock = Lock()
        self.ahead: Point = (0, 0)  # where the foremost is on its way to
        self.asked: Point | None = None
        self.taken: dict[object, Point] = {}  # by instance
        self.calls = 0  # how often the learner has called for a snapshot, where nobody waits
        self.heard: dict[object, int] = {}  # by instance

    def ask(self) -> bool:
        """Asks for a snapshot as soon as can be; False if there can be none."""
        with self.lock:
            loop, passes = self.ahead
            self.asked = max(self.asked or (0, 0), (loop, passes + 1))
            return bool(self.loops)

    def ask_at(self, point: Point) -> bool:
        """Asks for a snapshot at this point; False if it is too late for that."""
        with self.lock:
            if self.ahead >= point:
                return False
            self.asked = max(self.asked or point, point)
            return True

    def call(self) -> None:
        """The learner, elsewhere, has put down what it has: let others follow."""
        with self.lock:
            self.calls += 1

    def passes(self, loop: str, done: int, count: int) -> int:
        """How many of the next `count` passes to make without a stop; the instance is on its way."""
        if loop not in self.loops:
            return count
        with self.lock:
            at = self.loops.index(loop)
            if self.every:
                count = min(count, self.every - done % self.every)
            if self.asked is not None and self.asked[0] == at and self.asked[1] > done:
                count = min(count, self.asked[1] - done)
            self.ahead = max(self.ahead, (at, done + count))
            return count

    def due(self, instance: object, loop: str, done: int, leads: bool = True, last: bool = False) -> bool:
        """Is it time for this instance, now that it has made so many passes, perhaps the last ones? To be asked once at
        each point. In the end there is always one, if there are any: the run may be trained further, and a learner
        that others do not wait for will not be there later."""
        if loop not in self.loops:
            return False
        with self.lock:
            if self.unordered and not leads:
                heard, self.heard[instance] = self.heard.get(instance, 0), self.calls
                return heard < self.calls
            point = self.loops.index(loop), done
            wanted = self.asked is not None and self.taken.get(instance, (0, 0)) < self.asked <= point
            if wanted:
                self.taken[instance] = point
            found = wanted or (last and self._ends(point[0])) or bool(self.every and done % self.every == 0)
            self.calls += found
            return found

    def due_at_end(self, instance: object, loop: str) -> bool:
        """The same for one that finds out afterwards that the pass before was its last."""
        if loop not in self.loops:
            return False
        with self.lock:
            found = self._ends(self.loops.index(loop))
            self.heard[instance] = self.calls = self.calls + found
            return found

    def _ends(self, at: int) -> bool:
        """Does the last pass of this loop have a snapshot?"""
        if self.unordered:
            return bool(self.every or self.calls)
        return bool(self.every) and at == len(self.loops) - 1
