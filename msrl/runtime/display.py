"""What a person sees of a run: a live line on a terminal, plain lines elsewhere, nothing if so wished.

`Display` is told how far the run is and shows it; it never decides anything. On a terminal it redraws in place; without
one it prints the first update, then whenever a tenth of the run or some seconds have passed.
"""

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

EVERY = 5.0  # seconds between plain lines, at most
SHORTEST = 1e-3  # seconds of training from which on a speed can be told


@dataclass(frozen=True)
class State:
    """How far a run is."""

    steps: int  # of each seed
    total: int  # 0 if the loop steps no environment
    seeds: int
    seconds: float  # of training, compilation apart
    episode_return: float | None
    loss: float | None
    before: int = 0  # of the steps, those that an earlier run made
    passes: int = 0  # of the loop that learns

    @property
    def rate(self) -> float | None:
        """Environment steps per second, of all seeds; None as long as that cannot be told: all of the time so far may
        have gone into compiling, and all of the steps may be those of an earlier run."""
        made = (self.steps - self.before) * self.seeds
        return made / self.seconds if self.seconds >= SHORTEST and made > 0 else None

    @property
    def share(self) -> float:
        """Of the whole run, as far as steps tell."""
        return self.steps / self.total if self.total else 0.0

    @property
    def left(self) -> float | None:
        """Seconds to go, if that can be told."""
        return max(0, self.total - self.steps) * self.seeds / self.rate if self.rate else None

    def show(self) -> str:
        parts = [f"{self.steps:,} of {self.total:,} steps ({self.share:.0%})" if self.total else
                 f"pass {self.passes:,} of the loop"]
        parts += [f"{self.rate:,.0f} steps/s"] if self.rate is not None else []
        parts += [f"return {self.episode_return:.1f}"] if self.episode_return is not None else []
        parts += [f"loss {self.loss:.4g}"] if self.loss is not None else []
        return " | ".join([*parts, *([f"{clock(self.left)} left"] if self.left is not None else [])])


class Display:
    """Nothing is shown; the base of those that do show."""

    def say(self, *lines: str) -> None:
        """Prints lines."""

    def begin(self, total: int) -> None:
        """Training is about to start, for `total` environment steps."""

    def update(self, state: State) -> None:
        """A chunk is done."""

    def evaluate(self, ended: int, episodes: int) -> None:
        """So many episodes of an evaluation have ended."""

    def end(self) -> None:
        """Training is over, well or badly."""


class ConsoleDisplay(Display):
    def __init__(self, console: Console):
        self.console = console
        self._live: Progress | None = None
        self._next = (0.0, 0.0)  # the share of the run and the time at which a plain line is due
        self._said = time.monotonic()  # when there was something new to read last

    def say(self, *lines: str) -> None:
        self._said = time.monotonic()
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, total: int) -> None:
        self._next = (0.0, 0.0)
        self._start("compiling ...", total)

    def _start(self, what: str, total: int) -> None:
        if self.console.is_terminal:
            columns: list[ProgressColumn] = [BarColumn(24), TextColumn("{task.description}", markup=False)]
            self._live = Progress(*columns, console=self.console, transient=True)
            self._live.add_task(what, total=total or None)
            self._live.start()

    def update(self, state: State) -> None:
        if self._live:
            self._live.update(self._live.task_ids[0], completed=state.steps, description=state.show())
            return
        share, now = state.share, time.monotonic()
        if share >= self._next[0] or now >= self._next[1]:
            self.say(state.show())
            self._next = (int(share * 10 + 1) / 10, now + EVERY)

    def evaluate(self, ended: int, episodes: int) -> None:
        what = f"evaluating: {ended:,} of {episodes:,} episodes have ended"
        if self.console.is_terminal and not self._live:  # training is over
            self._start(what, episodes)
        if self._live:
            task = self._live.tasks[0]
            self._live.update(task.id, description=what, **({"completed": ended} if task.total == episodes else {}))
        elif time.monotonic() - self._said >= EVERY:
            self.say(what)

    def end(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
