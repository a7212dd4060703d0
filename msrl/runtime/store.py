"""The parameters of all learners in one place, and what became of the gradients that they bring.

One entry for each site at which a learner's program applies gradients: parameters and optimiser state, as the last step
left them. Learners that do not wait for one another come at any time. A gradient is as old as the number of steps
taken since its learner last took the parameters from here; one that is more than `max_lag` steps old is dropped. So is
one that would leave the parameters not finite, if that is `watched`: as others have gone on from them, nothing can be
undone later.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

import numpy as np

from msrl.runtime.ledger import Ledger

Place = tuple[str, int]  # (what learners agree on, site)
Apply = Callable[[list[Any]], list[Any]]  # state → state


@dataclass
class Store:
    ledger: Ledger
    changed: Condition  # held by whoever writes in the ledger
    lockstep: bool = True  # do learners come at the same time?
    max_lag: int | None = None
    states: dict[Place, list[Any]] = field(default_factory=dict)
    versions: Counter[Place] = field(default_factory=Counter)  # steps so far
    seen: Counter[tuple[Place, int]] = field(default_factory=Counter)  # (place, learner) → the version it has
    outcome: dict[int, set[str]] = field(default_factory=dict)  # learner → why its gradients were dropped, or ""
    watched: bool = False

    def step(self, place: Place, learner: int, brought: list[Any], apply: Apply) -> list[Any]:
        """The state after a gradient. `brought` is the state as the learner has it, where it was not taken from here;
        of learners that come at any time, only the first one's counts."""
        if self.lockstep and brought:
            self.states[place] = brought
        state = self.states.setdefault(place, brought)
        lag = self.versions[place] - self.seen[place, learner]
        dropped = "lag" if self.max_lag is not None and lag > self.max_lag else ""
        if not dropped:
            after = apply(state)
            if self.watched and not self.lockstep and not finite(after):
                dropped = "non-finite"
            else:
                state = self.states[place] = after
                self.versions[place] += 1
        self.seen[place, learner] = self.versions[place]
        if not self.lockstep:
            self.outcome.setdefault(learner, set()).add(dropped)
            with self.changed:
                self.ledger.lags.update([] if dropped else [lag])
        return state

    def begin(self, steps: int) -> None:
        """The first word of an update, which learns from so many environment steps."""
        with self.changed:
            self.ledger.send(steps)

    def end(self, learner: int, steps: int) -> None:
        """Its last word: the steps were of use unless all of its gradients were dropped."""
        with self.changed:
            reasons = self.outcome.pop(learner, set()) or {""}
            if "" in reasons:
                self.ledger.take(steps)
            else:
                self.ledger.drop(steps, max(reasons))


def finite(state: list[Any]) -> bool:
    found = (np.asarray(leaf) for leaf in state)
    return all(np.isfinite(leaf).all() for leaf in found if np.issubdtype(leaf.dtype, np.floating))
