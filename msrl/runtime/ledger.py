"""What became of every environment step: produced = trained on + dropped + in flight.

Each number is kept where it happens, not worked out from the others, so that the identity can be checked. A step is
produced when its trajectory is sent to the learner, trained on when the learner takes it, dropped when it comes too
late, and in flight in between.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Ledger:
    produced: int = 0
    trained: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # reason → steps
    in_flight: int = 0
    lags: Counter[int] = field(default_factory=Counter)  # updates since a trajectory's weights → how many

    def send(self, steps: int) -> None:
        self.produced += steps
        self.in_flight += steps

    def take(self, steps: int, lag: int | None = None) -> None:
        self.trained += steps
        self.in_flight -= steps
        if lag is not None:
            self.lags[lag] += 1

    def drop(self, steps: int, reason: str) -> None:
        self.dropped[reason] += steps
        self.in_flight -= steps

    def settled(self) -> dict[str, Any]:
        """As a run that goes on from here finds it: what is in flight has not been made yet."""
        return {**self.asdict(), "produced": self.trained + sum(self.dropped.values()), "in_flight": 0}

    def restore(self, found: dict[str, Any]) -> None:
        """Goes on with the accounts of an earlier run, as `asdict` gave them."""
        self.produced, self.trained, self.in_flight = found["produced"], found["trained"], found["in_flight"]
        self.dropped = Counter(found["dropped"])
        self.lags = Counter({int(lag): count for lag, count in found.get("lags", {}).items()})

    @property
    def balanced(self) -> bool:
        return self.produced == self.trained + sum(self.dropped.values()) + self.in_flight

    def asdict(self) -> dict[str, Any]:
        """For reports: plain numbers."""
        found: dict[str, Any] = dict(produced=self.produced, trained=self.trained, dropped=dict(self.dropped),
                                     in_flight=self.in_flight)
        return {**found, "lags": dict(sorted(self.lags.items()))} if self.lags else found
