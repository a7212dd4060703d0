"""On-policy rollouts: `length` steps of B environments, handed over whole.

In: one record of B environments per insert. Out: all of them, leaves (length, B, ...), row t being the t-th insert
since the last sample. Always: a sample empties the store.

The store is a ring: insert number `length` overwrites row 0. A loop that inserts exactly `length` records between two
samples sees them in the order of time. Anything else is an error: when compiling where the loop's counts are known,
else when the run gets there. A compiled program cannot raise, so its state remembers it until the host next looks.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from msrl.api import Buffer, Record
from msrl.api.buffer import describe_miscount
from msrl.buffers import item as items
from msrl.errors import RunError


@struct.dataclass
class RolloutState:
    store: Record  # leaves (T, B, ...)
    position: Any  # () int32: inserts since the last sample
    miscounted: Any  # () int32: inserts before the first sample that had too many or too few; -1 if there was none


@dataclass(frozen=True)
class Rollout(Buffer):
    length: int
    """T, the steps per sample."""
    where: Literal["auto", "device", "host"] = "auto"
    """Where it is filled, unless told otherwise: on the device in compiled loops, else where the environment is."""

    home = "actor"
    called_back = True

    def __post_init__(self):
        items.check_options("Rollout", self.where, length=self.length)

    @property
    def traceable(self) -> bool:
        return self.where != "host"

    @property
    def inserts_per_sample(self) -> int:
        return self.length

    def miscounted(self, state: RolloutState) -> Any:
        return state.miscounted

    def for_env(self, traceable: bool) -> "Rollout":
        return replace(self, where="device" if traceable else "host") if self.where == "auto" else self

    def output_shape(self, method: str, item: Record, *args: Any) -> Any:
        return items.traced_shape(replace(self, where="device"), method, item, *args)

    def init(self, item: Record) -> RolloutState:
        shapes, _ = items.check_first("Rollout", item)
        xp = jnp if self.traceable else np
        return RolloutState(store=jax.tree.map(lambda x: xp.zeros((self.length, *x.shape), x.dtype), shapes),
                            position=xp.zeros((), np.int32), miscounted=xp.full((), -1, np.int32))

    def insert(self, state: RolloutState, item: Record) -> RolloutState:
        items.check_next("Rollout", state.store, item, lead=1)
        row = state.position % self.length

        if self.traceable:
            def put(x, new):
                return jax.lax.dynamic_update_index_in_dim(x, jnp.asarray(new, x.dtype), row, axis=0)

            return state.replace(store=jax.tree.map(put, state.store, item), position=state.position + 1)

        def put_in_place(x, new):
            x[row] = new

        jax.tree.map(put_in_place, state.store, item)
        state.position[...] += 1
        return state

    def sample(self, state: RolloutState, key: jax.Array) -> tuple[RolloutState, Record]:
        if self.traceable:
            wrong = (state.position != self.length) & (state.miscounted < 0)
            return state.replace(position=jnp.zeros_like(state.position), miscounted=jnp.where(
                wrong, state.position, state.miscounted)), state.store
        if state.position != self.length:
            raise RunError(**describe_miscount(self, int(state.position)))
        state.position[...] = 0
        # A copy, because the next inserts write into these arrays while the learner may still be reading.
        return state, jax.tree.map(np.copy, state.store)
