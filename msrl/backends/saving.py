"""A run's checkpoints: when they are made, what they are made of, and how a run goes on from one.

In: workers, and a checkpoint to begin with or none. Out: checkpoints, each once all instances have put down what they
have at the same point of the loop.
"""

import copy
import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from msrl.backends.gathering import common_loops, deal, gather
from msrl.backends.schedule import AT_END, Schedule
from msrl.backends.snapshots import WHOLE, Share, order_of
from msrl.backends.worker import Worker
from msrl.errors import RunError, UsageError
from msrl.ir.graph import Graph, base
from msrl.ir.placed import PARAMETERS, PlacedGraph
from msrl.ir.text import show
from msrl.runtime.checkpoints import Checkpoint
from msrl.runtime.ledger import Ledger

BOUNDS = r"(?m)^ *for \S+ in [^{]*|^( *)test \{(?s:.*?)^\1\}"  # of loops, as the text of a graph has them


def check_loop(graph: Graph, start: Checkpoint | None) -> dict[str, str]:
    """Fingerprints of what `train` says: with the loops' bounds, and without them (`skeleton`), by which a run is known
    that is to be longer than before. Refuses a checkpoint that has neither."""
    text = show(graph)
    bare = re.sub(BOUNDS, lambda each: re.sub(r"(?<![\w.])-?\d+", "", each[0]), text)
    found = {name: hashlib.sha256(each.encode()).hexdigest() for name, each in (("graph", text), ("skeleton", bare))}
    if start is not None and start.about["graph"] not in found.values():
        raise UsageError("The checkpoint is of another loop.",
                         why="What `train` says, or a setting that it reads, has changed since it was made.",
                         instead="Use the algorithm's source and the settings that the run was made with.")
    return found


class Saving:
    """One run's. `every`: passes between two checkpoints; 0 for those that are asked for, AT_END for one at the end, if
    there can be one. `start`: the one to go on from. `about`: what each is to say of the run."""

    def __init__(self, workers: Sequence[Worker], lead: Worker, placed: PlacedGraph, every: int,
                 start: Checkpoint | None, about: dict[str, Any]):
        self.lead, self.start, self.about = lead, start, about
        self.refused: RunError | None = None  # why there can be no checkpoint
        # One that keeps parameters has nothing that learners do not have.
        self.workers = [worker for worker in workers if PARAMETERS not in worker.program.fragment.components]
        loops = common_loops(worker.program for worker in self.workers)
        self.insists = every not in (0, AT_END)  # else it does without where there can be none
        if self.insists and not loops:
            raise UsageError("This run cannot be saved while it trains.",
                             why="`train` has no loop at its top level that all fragments take part in.",
                             instead="Leave out --checkpoint-every, or put what is repeated into one loop.")
        self.ordered = not lead.exchange.unordered and lead.exchange.lockstep
        self.schedule = Schedule(loops, every, not self.ordered)
        self.shares: dict[tuple[str, int], dict[Worker, Share]] = {}  # as they come in: by point and worker
        self.done: dict[Worker, Share] = {}  # where nobody waits, of those that have nothing more to do
        order = order_of(placed.graph)
        for worker in workers:
            worker.order = order
            worker.schedule, worker.divided = self.schedule, placed.divided(worker.program.fragment.name)
            if start is not None:
                # Where learners decide each for itself, one of them goes on with the count of all.
                skipped = start.about.get("updates_skipped", 0) if self.ordered or worker is lead else 0
                worker.given = deal(worker, Share(start.loop, start.update, start.parts, start.about["counted"],
                                                  skipped=skipped))
        if start is not None:
            lead.exchange.ledger.restore(start.about["ledger"])

    @property
    def accounted(self) -> bool:
        """Is there a ledger? Else steps are learnt from where they are made."""
        exchange = self.lead.exchange
        return exchange.lead is not None or (exchange.store is not None and not exchange.store.lockstep)

    def collect(self, worker: Worker, episodes: list[float]) -> Checkpoint | None:
        """Takes what a worker has put down, if it has; a checkpoint once all have. `episodes`: what was told of them so
        far."""
        share, worker.share = worker.share, None
        shares = self._complete(worker, share) if share and worker in self.workers else None
        if not shares:
            return None
        self.refused = next((mine.problem for _, mine in shares if mine.problem), None)
        if self.refused is not None and self.insists:
            raise self.refused
        if self.refused is not None:  # nobody insists on it
            return None
        lead, parts = shares[0][1], gather(shares)
        count = max((int(np.max(one[WHOLE][""].array)) for name, one in parts.items() if base(name) == "#env.step"),
                    default=0)
        steps = count * self.lead.ops.world.config.num_envs
        ledger = copy.deepcopy(lead.ledger) if self.accounted and lead.ledger else Ledger(steps, steps)
        if not self.ordered and ledger.in_flight:
            ledger.drop(ledger.in_flight, "resume")
        counted = max(mine.counted for _, mine in shares) if self.accounted else count
        told = [np.asarray(mine.skipped) for worker, mine in shares if worker.leads]
        skipped = max(told, key=np.sum) if self.ordered else sum(told)
        return Checkpoint(lead.loop, lead.passes, parts, {
            **self.about, "env_steps": steps, "episodes": episodes, "counted": counted, "ledger": ledger.settled(),
            "updates_skipped": np.asarray(skipped).tolist(), "last": lead.last})

    def _complete(self, worker: Worker, share: Share) -> list[tuple[Worker, Share]] | None:
        """All shares of one point once they are there, that of the leader first. Where instances do not wait for one
        another, what the leader has put down is completed by what the others put down after it, or as they ended."""
        point = (share.loop, share.passes) if self.ordered else ("", 0)
        if share.last and not self.ordered and worker is not self.lead:
            self.done[worker] = share
        here = self.shares.setdefault(point, {})
        if not self.ordered and worker is not self.lead and self.lead not in here:
            return None
        here[worker] = share
        here = {**self.done, **here}
        if len(here) < len(self.workers):
            return None
        del self.shares[point]
        return [(self.lead, here[self.lead]), *((w, here[w]) for w in self.workers if w is not self.lead)]
