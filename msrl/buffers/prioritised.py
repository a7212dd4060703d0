"""Prioritised experience replay (Schaul et al., 2016, the proportional variant).

In: one record of B environments per insert; new priorities by `update`. Out: `batch_size` transitions per sample, with
two more fields: `index` (int32, for `update`) and `weight` (float32, importance weights, the largest of a batch is 1).
Always: transition i is drawn with probability p_i^alpha / sum_j p_j^alpha; a new one gets the largest priority so far.

Departures from the paper: none in the distribution. Samples are stratified, one from each of `batch_size` equal parts
of the total, as in the paper's own experiments. Priorities are clipped from below at 1e-6, so that whatever is stored
can be drawn again.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Buffer, Record
from msrl.buffers import item as items
from msrl.buffers import ring, sum_tree
from msrl.buffers.ring import Ring
from msrl.errors import RunError, TypeCheckError, UsageError

SMALLEST = 1e-6  # of priorities


@struct.dataclass
class PrioritisedState:
    ring: Ring
    tree: Any  # (2 * width,) float32: sums of p^alpha
    largest: Any  # () float32: the largest priority p so far

    @property
    def item(self) -> Record:
        return self.ring.item


@dataclass(frozen=True)
class PrioritisedReplay(Buffer):
    capacity: int
    """Transitions kept."""
    batch_size: int
    """Transitions per sample."""
    alpha: float = 0.6
    """How much priorities matter: 0 is uniform."""
    beta: float = 0.4
    """How far the importance weights undo the bias: 1 is in full."""
    where: Literal["auto", "device", "host"] = "auto"
    """Device unless told otherwise: a replay is sampled inside the learner's compiled stretch."""

    home = "learner"

    def __post_init__(self):
        items.check_options("PrioritisedReplay", self.where, capacity=self.capacity, batch_size=self.batch_size)
        for option in ("alpha", "beta"):
            value = getattr(self, option)
            if not 0 <= value <= 1:
                raise UsageError(f"PrioritisedReplay: {option}={value} is not between 0 and 1.",
                                 instead=f"Use {option}=0 to switch it off, up to {option}=1 for its full effect.")

    @property
    def traceable(self) -> bool:
        return self.where != "host"

    def for_env(self, traceable: bool) -> "PrioritisedReplay":
        return replace(self, where="device") if self.where == "auto" else self

    def divide(self, count: int) -> "PrioritisedReplay":
        sizes = items.share("PrioritisedReplay", count, capacity=self.capacity, batch_size=self.batch_size)
        return replace(self, **sizes)

    def output_shape(self, method: str, item: Record, *args: Any) -> Any:
        return items.traced_shape(replace(self, where="device"), method, item, *args)

    def init(self, item: Record) -> PrioritisedState:
        shapes, batch = items.check_first("PrioritisedReplay", item)
        for field in ("index", "weight"):
            if field in item.asdict():
                raise TypeCheckError(f"PrioritisedReplay is given a field of the name {field}.",
                                     why="Samples have a field of that name already, which the buffer itself adds.",
                                     instead="Give the field another name.")
        xp = jnp if self.traceable else np
        return PrioritisedState(ring=ring.make("PrioritisedReplay", shapes, batch, self.capacity, xp),
                                tree=xp.zeros(2 * sum_tree.width(self.capacity), np.float32),
                                largest=xp.ones((), np.float32))

    def insert(self, state: PrioritisedState, item: Record) -> PrioritisedState:
        items.check_next("PrioritisedReplay", state.item, item)
        return self.insert_if(state, item, True)

    def insert_if(self, state: PrioritisedState, item: Record, keep: Any) -> PrioritisedState:
        """Inserts where `keep` (a scalar) is true. It may be false only before the first insert that counts."""
        if self.traceable:
            new = jnp.where(keep, raised(state.largest, self.alpha), 0)
            index = ring.rows(state.ring, self.capacity)
            return state.replace(ring=ring.write(state.ring, item, self.capacity, keep),
                                 tree=sum_tree.update(state.tree, index, jnp.full(index.shape, new)))
        if keep:
            index = ring.host_rows(state.ring, self.capacity)
            new = np.asarray(host_raised(state.largest, self.alpha))
            ring.host_write(state.ring, item, self.capacity)
            sum_tree.host_update(state.tree, index, np.full(index.shape, new))
        return state

    def sample(self, state: PrioritisedState, key: jax.Array) -> tuple[PrioritisedState, Record]:
        if self.traceable:
            index, chosen = sum_tree.find(state.tree, strata(key, self.batch_size) * state.tree[1])
            after, batch = ring.read(state.ring, index)
            return state.replace(ring=after), batch.replace(index=index, weight=importance(chosen, self.beta))
        ring.host_check_filled("PrioritisedReplay", state.ring)
        index, chosen = sum_tree.host_find(state.tree, np.asarray(host_strata(key, self.batch_size)) * state.tree[1])
        weight = np.asarray(host_importance(chosen, self.beta))
        return state, ring.host_read(state.ring, index).replace(index=index, weight=weight)

    def update(self, state: PrioritisedState, key: jax.Array, index: Any, priority: Any) -> tuple[Any, None]:
        """Gives the transitions at `index` (K,), as sampled, the new `priority` (K,): finite, 0 or more.

        Where an index occurs twice, the larger priority counts. Called from the loop, and so with a key, unused.
        """
        if np.ndim(index) != 1 or np.shape(index) != np.shape(priority):
            raise TypeCheckError(
                f"PrioritisedReplay.update: index is {items.show(items.aval(index))}, and priority is "
                f"{items.show(items.aval(priority))}.",
                why="Every sampled transition has one priority.",
                instead="Pass batch.index and one number for each of its entries, such as |TD error|.")
        if self.traceable:
            # Besides keeping the index inside, this makes the tree's update wait for samples taken before (ring.read).
            index = jnp.minimum(index, jnp.maximum(state.ring.size - 1, 0))
            priority = jnp.maximum(jnp.asarray(priority, jnp.float32), SMALLEST)
            return state.replace(tree=sum_tree.update(state.tree, index, raised(priority, self.alpha)),
                                 largest=jnp.maximum(state.largest, priority.max())), None
        index, priority = np.asarray(index), np.asarray(priority, np.float32)
        if not (np.isfinite(priority) & (priority >= 0)).all():
            raise RunError("PrioritisedReplay.update is given a priority that is negative, infinite or not a number.",
                           why="Priorities are shares of a sum.",
                           instead="Pass absolute values, and look for what made them infinite or nan.")
        priority = np.maximum(priority, np.float32(SMALLEST))
        sum_tree.host_update(state.tree, index, np.asarray(host_raised(priority, self.alpha)))
        state.largest[...] = max(state.largest, priority.max())
        return state, None


def raised(priority: Any, alpha: float) -> jax.Array:
    return jnp.power(priority, jnp.float32(alpha))


def strata(key: jax.Array, count: int) -> jax.Array:
    """(count,) in [0, 1]: one uniform number from each of `count` equal parts."""
    return (jnp.arange(count, dtype=jnp.float32) + jax.random.uniform(key, (count,))) * np.float32(1 / count)


def importance(chosen: Any, beta: float) -> jax.Array:
    """(K,) weights from p^alpha (K,): (N P(i))^-beta over its maximum, in which N and the total cancel."""
    smallest_normal = np.finfo(np.float32).tiny  # an empty store has p = 0; its weights are 0 rather than nan
    return jnp.power(jnp.min(chosen) / jnp.maximum(chosen, smallest_normal), jnp.float32(beta))


# The host draws and raises by the same formulas as the device, compiled, so that both see the same numbers.
host_raised = jax.jit(raised, static_argnums=1)
host_strata = jax.jit(strata, static_argnums=1)
host_importance = jax.jit(importance, static_argnums=1)
