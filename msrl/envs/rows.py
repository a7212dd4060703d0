"""Environments that are Python objects, stepped one after another, of which each is replaced alone.

In: a way to make one. Out: a batch of them. Each knows what led to its state: how its episode began, and the actions
since then. It always holds that when one fails, what the others did in that step is kept and not done twice.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from threading import Lock
from typing import Any

import numpy as np

from msrl.api.env import Step
from msrl.envs.batch import Batch, Place, flat, plain, ragged, text

Found = tuple[Any, Any, bool, bool, Any]  # observation, reward, terminated, truncated, what the episode ended on


class One(ABC):
    """An environment. `begin` and `step` set `start` and `actions`."""

    start: Any = None  # how the present episode began, as plain data
    actions: list[np.ndarray]  # since then

    @abstractmethod
    def begin(self, seed: int) -> Any:
        """Reseeds and restarts it: its first observation."""

    @abstractmethod
    def rebegin(self, start: Any) -> Any:
        """Begins the very episode that began so: its first observation."""

    @abstractmethod
    def step(self, action: Any) -> Found:
        """Steps, and resets if the episode ended."""

    @abstractmethod
    def close(self) -> None: ...

    def mark(self) -> tuple[Any, list[np.ndarray], int]:
        return self.start, self.actions, len(self.actions)

    def comes(self, seed: int, start: Any, actions: Any) -> Generator[None, None, Any]:
        """Plays again what led somewhere, a step at a time: the observation there."""
        self.begin(seed)
        obs = self.rebegin(start)
        yield
        for action in actions:
            obs, *_ = self.step(action[()])
            yield
        return obs


class Rows(Batch):
    """`decode` makes what is handed out of the environments' observations, `encode` what they take of our actions."""

    exact = False  # each environment knows what led to it

    def __init__(self, make: Callable[[], One], num_envs: int, decode: Callable[[np.ndarray], np.ndarray],
                 encode: Callable[[np.ndarray], np.ndarray]):
        self._make, self._decode, self._encode = make, decode, encode
        self._ones = [make() for _ in range(num_envs)]
        self._done: list[Any] = []  # what the first of them gave in the step, or the reset, that is under way
        self._left, self._lock = False, Lock()

    def __len__(self) -> int:
        return len(self._ones)

    @property
    def done(self) -> int:
        return len(self._done)

    def reset(self, seeds: list[int]) -> np.ndarray:
        while self.done < len(self):
            self._add(self._ones[self.done].begin(seeds[self.done]))
        return self._decode(np.stack(self._all()))

    def step(self, action: np.ndarray) -> Step:
        action = self._encode(action)
        while self.done < len(self):
            self._add(self._ones[self.done].step(action[self.done]))
        obs, reward, terminated, truncated, final = zip(*self._all(), strict=True)
        new, terminal, limit = self._decode(np.array(obs)), np.array(terminated, bool), np.array(truncated, bool)
        if not (any(terminated) or any(truncated)):  # the usual case, and Python has to be quick about it
            return Step(new, np.array(reward, np.float32), terminal, limit, new)
        last = self._decode(np.stack(final))
        return Step(new, np.array(reward, np.float32), terminal, limit & ~terminal, last)

    def mark(self) -> Any:
        return None if self.cut or self.seeds is None else [one.mark() for one in self._ones]

    def history(self, mark: Any) -> dict[str, np.ndarray]:
        return {"starts": text([start for start, _, _ in mark]),
                **flat([actions[:count] for _, actions, count in mark])}

    def replay(self, seeds: list[int], saved: Mapping[str, np.ndarray]) -> Generator[None, None, bool]:
        if "starts" not in saved:
            return False
        ways = list(zip(seeds, plain(saved["starts"]), ragged(saved), strict=True))
        while self.done < len(self):
            self._add((yield from self._ones[self.done].comes(*ways[self.done])))
        self.seeds, self.obs, self.cut = seeds, self._decode(np.stack(self._all())), False
        return True

    def mended(self, open: Callable[[], Batch], place: Place | None) -> tuple[Batch, Iterator[None]]:
        fresh = copy.copy(self)
        fresh._ones, fresh._done, fresh._left, fresh._lock = list(self._ones), list(self._done), False, Lock()
        marks = place[0] if place else None
        # The one that was at work; and if they were about to say that all is done, those that have left their place.
        astray = [row for row in range(self.done, len(self)) if row == self.done or not self._is_at(row, marks)]
        for row in astray:
            fresh._ones[row] = self._make()
        return fresh, fresh._way(place, astray) if place and marks else iter(())

    def _is_at(self, row: int, marks: Any) -> bool:
        if marks is None:
            return True  # they begin anew, wherever they are
        start, actions, count = self._ones[row].mark()
        return start is marks[row][0] and actions is marks[row][1] and count == marks[row][2]

    def _way(self, place: Place, astray: list[int]) -> Iterator[None]:
        """Brings those that are new to where their predecessors were."""
        marks, obs = place
        assert self.seeds is not None
        found = obs.copy()
        for row in astray:
            start, actions, count = marks[row]
            found[row] = self._decode((yield from self._ones[row].comes(self.seeds[row], start, actions[:count])))
        if not np.array_equal(found, obs):
            self._done = []
            self.break_off(self.seeds, obs)

    def fail(self) -> Callable[[], None]:
        with self._lock:
            self._left = True
            at_work = self._ones[self.done:self.done + 1]
        return lambda: [one.close() for one in at_work] and None

    def close(self) -> None:
        for one in self._ones:
            one.close()

    def _add(self, found: Any) -> None:
        with self._lock:
            if self._left:  # it took too long, and the others go on elsewhere
                raise TimeoutError("too late")
            self._done.append(found)

    def _all(self) -> list[Any]:
        with self._lock:
            if self._left:
                raise TimeoutError("too late")
            done, self._done = self._done, []
            return done
