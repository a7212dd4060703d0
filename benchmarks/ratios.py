"""Contests: programs take turns on one machine in one run, and what counts is the ratio of their speeds.

In: contestants, each with a `turn` that runs it for about so many seconds and says how fast it was. Out: rows of the
report. It always holds that in every round each contestant has one turn, that who begins changes from round to round,
and that a ratio is of two turns of the same round, so that what slows the machine down for a while slows both.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax


class Contestant(Protocol):
    name: str

    def turn(self, seconds: float) -> float:
        """Works for about that long; how much it did per second. What it begins with is not timed."""

    def close(self) -> None:
        """Ends it."""


@dataclass(frozen=True)
class Row:
    """One line of the report: a ratio with its spread, and what it should be."""

    workload: str
    against: str
    ours: str
    theirs: str
    ratio: float  # the median over the rounds
    low: float  # quartiles
    high: float
    target: float | None = None
    at_least: bool = True  # or at most

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int = 9
    seconds: float = 2.0  # that a turn takes


class Jitted:
    """A hand-written program: `update(state)` gives the state and whatever else, and makes so many steps."""

    def __init__(self, name: str, update: Any, state: Any, steps: int):
        self.name, self.update, self.steps = name, update, steps
        self.state, _ = jax.block_until_ready(update(state))

    def turn(self, seconds: float) -> float:
        began, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - began < seconds:
            self.state, _ = jax.block_until_ready(self.update(self.state))
            count += 1
        return count * self.steps / (time.perf_counter() - began)

    def close(self) -> None:
        self.state = None


def alternate(contestants: Sequence[Contestant], effort: Effort) -> dict[str, list[float]]:
    """The speeds of each, by round. All are warmed up by a turn that does not count."""
    for each in contestants:
        each.turn(effort.seconds / 2)
    speeds: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(effort.rounds):
        at = number % len(contestants)
        for each in (*contestants[at:], *contestants[:at]):
            speeds[each.name].append(each.turn(effort.seconds))
        print(f"  round {number + 1}: " + ", ".join(f"{name} {figure(column[-1])}/s"
                                                    for name, column in speeds.items()), flush=True)
    return speeds


def compare(workload: str, against: str, ours: Sequence[float], theirs: Sequence[float], target: float | None = None, *,
            unit: str = "steps/s", at_least: bool = True) -> Row:
    """The row of two columns of figures, taken in the same rounds: ours divided by theirs."""
    low, middle, high = spread([a / b for a, b in zip(ours, theirs, strict=True)])
    return Row(workload, against, f"{figure(statistics.median(ours))} {unit}",
               f"{figure(statistics.median(theirs))} {unit}", middle, low, high, target, at_least)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile; of fewer than four values, the least and the greatest."""
    if len(values) < 4:
        return min(values), statistics.median(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def figure(value: float) -> str:
    """Three digits that count: 1.23, 12.3, 123, 1.23 k, 12.3 M."""
    for factor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * factor:
            value, suffix = value / factor, letter
            break
    else:
        suffix = ""
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{suffix}"
