"""Learns that were not finite, as the coordinator knows them: how many were skipped, and what became of their steps.

In: what workers say at their looks. Out: the number of skipped updates, and accounts in which the environment steps of
these are dropped, with the reason `non-finite`. It always holds that steps add up as they did. A skipped learn is about
its share of all steps that were learnt from, as a compiled loop tells only how many of its learns it skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from msrl.backends.worker import Worker
from msrl.errors import NonFiniteError
from msrl.ir.counting import steps_before
from msrl.ir.graph import Graph
from msrl.runtime.checkpoints import Checkpoint

REASON = "non-finite"


class Skips:
    """`start`: what the run goes on from. `apart`: do learners come to different decisions, each at its own pace?"""

    def __init__(self, start: Checkpoint | None, apart: bool):
        self.before = np.atleast_1d(start.about.get("updates_skipped", 0) if start else 0)
        self.apart = apart
        self.told: dict[Worker, tuple[np.ndarray, int]] = {}  # skipped, seed by seed, and learns

    @property
    def each(self) -> np.ndarray:
        """Seed by seed."""
        found = [skipped for skipped, _ in self.told.values()]
        return self.before if not found else sum(found) if self.apart else max(found, key=np.sum)

    @property
    def total(self) -> int:
        return int(self.each.sum())

    def hear(self, worker: Worker, look: Mapping[str, Any]) -> None:
        _, learns = self.told.get(worker, (None, 0))
        now = int(np.max(np.asarray(look.get("#learner.learn", learns))))
        self.told[worker] = np.atleast_1d(np.asarray(worker.skipped)), now

    def moved(self, ledger: dict[str, Any]) -> dict[str, Any]:
        """The accounts, with the steps of what was skipped where they belong."""
        learns = [learns for _, learns in self.told.values()] or [0]
        count, known = sum(learns) if self.apart else max(learns), ledger["dropped"].get(REASON, 0)
        steps = max(0, int(ledger["trained"] * self.each.mean() / count) - known) if count else 0
        if not steps:
            return ledger
        return {**ledger, "trained": ledger["trained"] - steps, "dropped": {**ledger["dropped"], REASON: known + steps}}


def timed(looks: Iterator[tuple[Worker, Any]], graph: Graph, reached: Callable[[], int], lead: Worker
          ) -> Iterator[tuple[Worker, Any]]:
    """The same looks. An error of a learn that is not finite says how many environment steps came before it, as the
    graph tells or, where that depends on values, as many as had been `reached` at the last look."""
    try:
        yield from looks
    except NonFiniteError as error:
        known = None if lead.exchange.unordered else steps_before(graph, error.fault.update)
        steps = reached() if known is None else known * lead.ops.world.config.num_envs
        told = error.retold(why=f"It came {'some time ' if known is None else ''}after {steps:,} environment steps. "
                                f"{error.why}")
        vars(told)["fault"] = replace(error.fault, env_steps=steps)
        raise told from error
