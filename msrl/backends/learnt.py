"""What learners that are replicated over agents have learnt, put together.

In: looks of the workers, in any order. Out: for every look of the one that leads, what all learners had learnt after
the same pass of the same loop. Each of them goes on while the others are waited for, so what it has is copied. It
always holds that agent shards are in their order.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.backends.snapshots import loop_name
from msrl.backends.worker import LEARNT, Worker
from msrl.ir.graph import For, While

At = tuple[str, int] | None


class Learnt:
    def __init__(self, learners: Sequence[Worker], strict: bool):
        self.learners, self.strict = learners, strict
        self.looks: dict[Worker, dict[At, Mapping[str, Any]]] = {worker: {} for worker in learners}
        self.waiting: deque[tuple[At, Any]] = deque()
        self.loops = {worker: {loop_name(node) for node in worker.program.nodes if isinstance(node, (For, While))}
                      for worker in learners}

    def add(self, learner: Worker, look: Mapping[str, Any]) -> None:
        self.looks[learner][learner.at] = {name: jax.tree.map(_copy, look[name]) for name in LEARNT}

    def wait(self, at: At, what: Any) -> None:
        self.waiting.append((at, what))

    def ready(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """All that need wait no longer, with what was learnt by then."""
        while self.waiting:
            at, what = self.waiting[0]
            looks = [(worker, self.look(worker, at)) for worker in self.learners]
            if any(look is None for _, look in looks):
                return
            self.waiting.popleft()
            yield what, joined(looks, self.strict)

    def look(self, learner: Worker, at: At) -> Mapping[str, Any] | None:
        """The learner's look at that point, or its last if it has no part in that loop. Earlier ones are forgotten."""
        looks = self.looks[learner]
        if at is not None and at[0] not in self.loops[learner]:
            return looks[next(reversed(looks))] if looks else None
        if at in looks:
            for other in list(looks):
                if other == at:
                    break
                del looks[other]
        return looks.get(at)


def joined(looks: Sequence[tuple[Worker, Mapping[str, Any]]], strict: bool) -> dict[str, Any]:
    """The learners' states and weights, with an entry for every agent shard if there are several."""
    if looks[0][0].ops.world.config.agent_shards == 1:
        return {name: looks[0][1][name] for name in LEARNT}
    return {name: tuple(state for worker, look in looks
                        for state in (look[name] if strict else entries(look[name], worker.ops.world.agent_shards)))
            for name in LEARNT}


def entries(state: Any, count: int) -> list[Any]:
    """A state of `count` agent shards, as fast execution keeps it, one by one."""
    return [state] if count == 1 else [jax.tree.map(lambda x, at=at: x[at], state) for at in range(count)]


def stacked(states: Sequence[Any]) -> Any:
    """One state, with a leading dimension for the agent shards."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *states)


def _copy(leaf: Any) -> Any:
    key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jnp.copy(leaf) if key else np.array(leaf)
