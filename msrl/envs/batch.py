"""A shard's environments on the host, and how they are saved: as what led to them.

Seeds and actions are played again when a batch is restored. Where that would be too long, it is saved at a reset
boundary: it begins new episodes, and the first step after that is a truncation on the last observation. It always holds
that every array handed out is fresh (nobody writes to it later), and that a batch steps and resets within one call, so
that no action is ever ignored.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from msrl.api.env import Step

Place = tuple[Any, np.ndarray]  # a mark, and the observations there


class Batch(ABC):
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

    @property
    def done(self) -> int:
        """How far it came in the step that is under way."""
        return 0

    def begin(self, seeds: list[int]) -> np.ndarray:
        self.obs = self.reset(seeds)
        self.seeds, self.actions, self.cut = seeds, [] if self.exact else None, False
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

    def mark(self) -> Any:
        """Where it is, so that `history` can tell of it later. Cheap, as every step is marked."""
        return None if self.actions is None or self.cut else len(self.actions)

    def save(self, mark: Any = None, obs: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """What it is, or what it was at a mark, where it had given `obs` last."""
        mark, obs = (self.mark(), self.obs) if obs is None else (mark, obs)
        if self.seeds is None or obs is None:
            return {}
        return {"seeds": np.array(self.seeds, np.int64), "obs": obs} | ({} if mark is None else self.history(mark))

    def history(self, mark: Any) -> dict[str, np.ndarray]:
        """What leads from the seeds to the mark."""
        assert self.actions is not None
        return {"actions": np.stack(self.actions[:mark]) if mark else np.zeros((0,))}

    def restore(self, saved: Mapping[str, np.ndarray]) -> Iterator[None]:
        """A step at a time, any of which may fail."""
        if not saved:
            return
        seeds = [int(seed) for seed in saved["seeds"]]
        if (yield from self.replay(seeds, saved)) and np.array_equal(self.obs, saved["obs"]):
            return
        self.break_off(seeds, saved["obs"])

    def break_off(self, seeds: list[int], obs: np.ndarray) -> None:
        """Its episodes end with these observations; others follow than those that were played already."""
        self.seeds = [(seed + 1) % 2**31 for seed in seeds]
        self.obs, self.cut = np.array(obs), True

    def replay(self, seeds: list[int], saved: Mapping[str, np.ndarray]) -> Generator[None, None, bool]:
        """Plays what `history` told, a step at a time; False if it told nothing."""
        if "actions" not in saved:
            return False
        self.begin(seeds)
        yield
        for action in saved["actions"]:
            self.play(action)
            yield
        return True

    def fail(self) -> Callable[[], None]:
        """From now on nobody uses it. What it gives closes what failed, which hangs if that does."""
        return self.close

    def mended(self, open: Callable[[], "Batch"], place: Place | None) -> tuple["Batch", Iterator[None]]:
        """After it failed: one in its stead, and the steps that bring that to a place where this one was."""
        fresh = open()
        return fresh, fresh.restore(self.save(*place) if place else {})


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
