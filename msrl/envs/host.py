"""What all environments on the host share: a batch behind a handle, seeded from a key, NumPy in and NumPy out.

An adapter says how to open a `Batch`; the handle is the environment's whole state slot. It always holds that the seeds
are a function of the reset's key alone, that every array handed out is fresh (nobody writes to it later), and that a
batch steps and resets within one call, so that no action is ever ignored.

A batch is saved as what led to it: seeds and actions, which are played again when it is restored. Where that would be
too long, it is saved at a reset boundary: it begins new episodes, and the first step after that is a truncation.
"""

import json
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from msrl.api.env import Env, Step
from msrl.api.handle import Handle


def seeds(key: jax.Array, num_envs: int) -> list[int]:
    """One seed per environment, each in [0, 2**31): the range that every library takes."""
    return (np.asarray(jax.random.bits(key, (num_envs,), "uint32")) >> 1).tolist()


class Batch(Handle):
    """A shard's environments, as Python or C++ objects."""

    exact = True  # are all actions kept? Not where an adapter knows a shorter way.
    seeds: list[int] | None = None
    actions: list[np.ndarray] | None = None  # since they were seeded
    obs: np.ndarray | None = None  # the newest
    cut = False  # was it restored at a reset boundary, and not stepped since?
    agents = False  # is there a dimension for them?

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

    def begin(self, seeds: list[int]) -> np.ndarray:
        self.seeds, self.actions, self.cut = seeds, [] if self.exact else None, False
        self.obs = self.reset(seeds)
        return self.obs

    def play(self, action: np.ndarray) -> Step:
        if self.cut:  # nobody knows what the action would have led to
            assert self.obs is not None and self.seeds is not None
            last, first = self.obs, self.begin(self.seeds)
            agents = first.shape[1:2] if self.agents else ()
            every = np.ones(len(self), bool)
            return Step(first, np.zeros((len(self), *agents), np.float32), ~every, every, last)
        if self.actions is not None:
            self.actions.append(np.array(action))
        step = self.step(action)
        self.obs = step.obs
        return step

    def save(self) -> dict[str, np.ndarray]:
        if self.seeds is None or self.obs is None:
            return {}
        kept = {"seeds": np.array(self.seeds, np.int64), "obs": self.obs}
        return kept | self.history()

    def history(self) -> dict[str, np.ndarray]:
        """What leads from the seeds to the present state; nothing at a reset boundary."""
        if self.actions is None or self.cut:
            return {}
        return {"actions": np.stack(self.actions) if self.actions else np.zeros((0,))}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        if not saved:
            return
        seeds = [int(seed) for seed in saved["seeds"]]
        if self.replay(seeds, saved) and self.obs is not None and np.array_equal(self.obs, saved["obs"]):
            return
        # Other episodes than those that were played already.
        self.seeds = [(seed + 1) % 2**31 for seed in seeds]
        self.obs, self.cut = np.array(saved["obs"]), True

    def replay(self, seeds: list[int], saved: Mapping[str, np.ndarray]) -> bool:
        """Plays what `history` told; False if it told nothing."""
        if "actions" not in saved:
            return False
        self.begin(seeds)
        for action in saved["actions"]:
            self.play(action)
        return True


class HostEnv(Env):
    """An environment whose state is a `Batch`. Pickles as its name, and so reaches other processes."""

    traceable = False
    exact = True  # may a batch keep all actions since the start, to be restored to the bit?

    def __init__(self, name: str):
        self.name = name
        self._batches: weakref.WeakSet[Batch] = weakref.WeakSet()

    def __reduce__(self):
        return type(self), (self.name,), {"exact": self.exact}

    @abstractmethod
    def open(self, num_envs: int) -> Batch: ...

    def init(self, key: jax.Array, num_envs: int) -> Batch:
        batch = self.open(num_envs)
        batch.agents, batch.exact = bool(self.spec.agents), batch.exact and self.exact
        self._batches.add(batch)
        return batch

    def reset(self, state: Batch, key: jax.Array) -> tuple[Batch, np.ndarray]:
        return state, state.begin(seeds(key, len(state)))

    def step(self, state: Batch, action: np.ndarray, key: jax.Array) -> tuple[Batch, Step]:
        return state, state.play(np.asarray(action))

    def close(self) -> None:
        for batch in list(self._batches):
            batch.close()


def flat(rows: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Rows of different lengths as one array, and their lengths."""
    every = [entry for row in rows for entry in row]
    return {"lengths": np.array([len(row) for row in rows], np.int64),
            "actions": np.stack(every) if every else np.zeros((0,))}


def ragged(saved: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return np.split(saved["actions"], np.cumsum(saved["lengths"])[:-1])


def text(value: Any) -> np.ndarray:
    """Plain data, such as a generator's state, as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def plain(array: np.ndarray) -> Any:
    return json.loads(array.tobytes())
