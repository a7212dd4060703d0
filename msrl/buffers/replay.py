"""Uniform experience replay: the newest `capacity` transitions, sampled with replacement.

In: one record of B environments per insert. Out: `batch_size` transitions per sample, with the same fields and dtypes.
Always: a sample holds only what was inserted. On the host, sampling an empty store is an error; on the device, where
a compiled program cannot raise, it gives zeros.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Buffer, Record
from msrl.buffers import item as items
from msrl.buffers import ring
from msrl.buffers.ring import Ring


@dataclass(frozen=True)
class Replay(Buffer):
    capacity: int
    """Transitions kept. Need not be a multiple of the number of environments."""
    batch_size: int
    """Transitions per sample."""
    where: Literal["auto", "device", "host"] = "auto"
    """Device unless told otherwise: a replay is sampled inside the learner's compiled stretch."""

    home = "learner"
    called_back = True

    def __post_init__(self):
        items.check_options("Replay", self.where, capacity=self.capacity, batch_size=self.batch_size)

    @property
    def traceable(self) -> bool:
        return self.where != "host"

    def for_env(self, traceable: bool) -> "Replay":
        return replace(self, where="device") if self.where == "auto" else self

    def divide(self, count: int) -> "Replay":
        return replace(self, **items.share("Replay", count, capacity=self.capacity, batch_size=self.batch_size))

    def output_shape(self, method: str, item: Record, *args: Any) -> Any:
        return items.traced_shape(replace(self, where="device"), method, item, *args)

    def init(self, item: Record) -> Ring:
        shapes, batch = items.check_first("Replay", item)
        return ring.make("Replay", shapes, batch, self.capacity, jnp if self.traceable else np)

    def insert(self, state: Ring, item: Record) -> Ring:
        items.check_next("Replay", state.item, item)
        return self.insert_if(state, item, True)

    def insert_if(self, state: Ring, item: Record, keep: Any) -> Ring:
        """Inserts where `keep` (a scalar) is true. It may be false only before the first insert that counts."""
        if self.traceable:
            return ring.write(state, item, self.capacity, keep)
        if keep:
            ring.host_write(state, item, self.capacity)
        return state

    def sample(self, state: Ring, key: jax.Array) -> tuple[Ring, Record]:
        if self.traceable:
            return ring.read(state, ring.uniform_index(key, self.batch_size, state.size))
        ring.host_check_filled("Replay", state)
        return state, ring.host_read(state, np.asarray(ring.host_uniform_index(key, self.batch_size, state.size)))
