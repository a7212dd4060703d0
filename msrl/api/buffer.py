"""The buffer protocol: a store of records, as pure functions of an explicit state."""

from abc import ABC, abstractmethod
from typing import Any, Literal

import jax

from msrl.api.record import Record


class Buffer(ABC):
    """What `replay_buffer_insert` writes and `replay_buffer_sample` reads.

    One insert adds one record of a step of B environments; every leaf is (B, ...). A buffer that is not traceable
    keeps NumPy arrays on the host, may change them in place, and returns the same state object.
    """

    traceable: bool = True
    called_back: bool = False  # on the host: may a compiled program call its insert? It must then not use JAX itself,
    # and copy what it keeps
    home: Literal["actor", "learner"] = "learner"
    """With whom the buffer lives: a rollout with the actors (one per shard), a replay with the learner."""

    def for_env(self, traceable: bool) -> "Buffer":
        """The variant that suits a traceable environment, or one on the host; the default is the same for both. If a
        compiled loop steps one on the host and fills the buffer, the variant for traceable ones is asked for."""
        return self

    def divide(self, count: int) -> "Buffer":
        """One of `count` buffers that together stand for this one: each has its part of the capacity and the batch."""
        raise TypeError(f"{type(self).__name__} does not say how it is divided among learners: give it a "
                        "divide(self, count) that returns one part, or train with one learner shard")

    def output_shape(self, method: str, item: Record, *args: Any) -> Any:
        """What `method` returns to the loop for records like `item`, as ShapeDtypeStructs. Only asked of buffers that
        are not traceable; of the others it is found by tracing. `args` are those of a method called by name."""
        raise TypeError(f"{type(self).__name__} is not traceable and does not say what {method!r} returns: "
                        f"give it an output_shape(self, method, item, *args) that returns jax.ShapeDtypeStructs")

    @abstractmethod
    def init(self, item: Record) -> Any:
        """An empty store for records shaped like `item` (leaves: arrays or ShapeDtypeStructs, with their B)."""

    @abstractmethod
    def insert(self, state: Any, item: Record) -> Any:
        """The store with one more record."""

    @abstractmethod
    def sample(self, state: Any, key: jax.Array) -> tuple[Any, Record]:
        """(state, batch). For a rollout, all of it with leaves (T, B, ...), and the store is empty again; for a
        replay, `batch_size` random transitions with leaves (batch_size, ...)."""
