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

    @property
    def inserts_per_sample(self) -> int | None:
        """How many inserts there are to be before every sample; None: any number. The compiler counts them where it
        can; where it cannot, a traceable buffer says in `miscounted` what happened."""
        return None

    def miscounted(self, state: Any) -> Any:
        """The number of inserts before the first sample that had too many or too few; -1 if there was none."""
        return -1

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


def describe_miscount(buffer: Buffer, inserts: int) -> dict[str, str]:
    """The words of an error: a sample after another number of inserts than the buffer takes."""
    length = buffer.inserts_per_sample
    return {"what": f"{type(buffer).__name__} of length {length} is sampled after {inserts} "
                    f"insert{'' if inserts == 1 else 's'}.",
            "why": "A rollout is handed over whole, one row per insert since the last sample.",
            "instead": f"Insert exactly {length} record{'' if length == 1 else 's'} before each sample, or change the "
                       "length.",
            "docs": "docs/buffers.md#how-many-inserts"}
