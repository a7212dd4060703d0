"""What observations and actions look like: shapes and ranges of one environment and one agent, without a batch."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Box:
    """Real arrays. `low` and `high` are scalars or nested tuples of `shape` (hashable, so that specs compare)."""

    shape: tuple[int, ...]
    low: float | tuple = -np.inf
    high: float | tuple = np.inf
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"Box{self.shape}"


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices, 0 to n - 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: str = "int32"

    def __str__(self) -> str:
        return f"Discrete({self.n})"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once: entry i is 0 to nvec[i] - 1."""

    nvec: tuple[int, ...]
    dtype: str = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def __str__(self) -> str:
        return f"MultiDiscrete{self.nvec}"


Space = Box | Discrete | MultiDiscrete
