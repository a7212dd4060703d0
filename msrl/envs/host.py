"""What all environments on the host share: a batch behind a handle, seeded from a key, NumPy in and NumPy out.

An adapter says how to open a `Batch`; the handle is the environment's whole state slot. It always holds that the seeds
are a function of the reset's key alone, that every array handed out is fresh (nobody writes to it later), and that a
batch steps and resets within one call, so that no action is ever ignored.
"""

import weakref
from abc import ABC, abstractmethod

import jax
import numpy as np

from msrl.api.env import Env, Step


def seeds(key: jax.Array, num_envs: int) -> list[int]:
    """One seed per environment, each in [0, 2**31): the range that every library takes."""
    return (np.asarray(jax.random.bits(key, (num_envs,), "uint32")) >> 1).tolist()


class Batch(ABC):
    """A shard's environments, as Python or C++ objects."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def reset(self, seeds: list[int]) -> np.ndarray:
        """Reseeds and restarts all environments: their first observations."""

    @abstractmethod
    def step(self, action: np.ndarray) -> Step:
        """Steps all environments, and resets those whose episode ended."""

    @abstractmethod
    def close(self) -> None:
        """May be called more than once."""


class HostEnv(Env):
    """An environment whose state is a `Batch`. Pickles as its name, and so reaches other processes."""

    traceable = False

    def __init__(self, name: str):
        self.name = name
        self._batches: weakref.WeakSet[Batch] = weakref.WeakSet()

    def __reduce__(self):
        return type(self), (self.name,)

    @abstractmethod
    def open(self, num_envs: int) -> Batch: ...

    def init(self, key: jax.Array, num_envs: int) -> Batch:
        batch = self.open(num_envs)
        self._batches.add(batch)
        return batch

    def reset(self, state: Batch, key: jax.Array) -> tuple[Batch, np.ndarray]:
        return state, state.reset(seeds(key, len(state)))

    def step(self, state: Batch, action: np.ndarray, key: jax.Array) -> tuple[Batch, Step]:
        return state, state.step(np.asarray(action))

    def close(self) -> None:
        for batch in list(self._batches):
            batch.close()
