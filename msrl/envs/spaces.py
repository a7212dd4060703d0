"""Gymnasium's spaces as ours, with the way there and back for arrays.

In: a Gymnasium space. Out: a `Codec`, whose `space` is ours, whose `decode` turns a library's observations into fresh
arrays of our dtypes and whose `encode` turns our actions into what the library expects. Ours always count from 0 and
are float32, int32, uint8 or another small integer: x64 is off in JAX, so nothing wider would survive.
"""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from msrl.api.spaces import Box, Discrete, MultiDiscrete, Space
from msrl.errors import EnvError

_NARROW = {"float64": "float32", "float16": "float32", "int64": "int32", "uint32": "int32", "uint64": "int32"}
# Libraries write "unbounded" as the widest float there is; one order below float32's counts as that.
_UNBOUNDED = 1e37


@dataclass(frozen=True)
class Codec:
    space: Space
    dtype: np.dtype  # the library's
    start: np.ndarray | None = None  # the library's number for our 0, where it is another

    def decode(self, array) -> np.ndarray:
        return np.array(array if self.start is None else array - self.start, self.space.dtype)

    def encode(self, array: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(array, dtype=self.dtype)
        return array if self.start is None else (array + self.start).astype(self.dtype)


def codec(space: spaces.Space, *, role: str, env: str) -> Codec:
    """The codec for a space of environment `env`; `role` is "observation" or "action", for the error message."""
    match space:
        case spaces.Box():
            dtype = str(space.dtype)
            low, high = _bounds(space)
            return Codec(Box(tuple(space.shape), low, high, _NARROW.get(dtype, dtype)), space.dtype)
        case spaces.Discrete():
            return Codec(Discrete(int(space.n)), space.dtype, np.asarray(space.start) if space.start else None)
        case spaces.MultiDiscrete() if space.nvec.ndim == 1:
            choices = MultiDiscrete(tuple(space.nvec.tolist()))
            return Codec(choices, space.dtype, space.start if space.start.any() else None)
    raise EnvError(
        f"{env} has {role}s of the space {space}.",
        why=f"An {role} is one array here: Box, Discrete or MultiDiscrete (with one row of choices).",
        instead="Register the environment with a wrapper that gives one of these: "
        "gymnasium.wrappers.FlattenObservation turns Dict and Tuple observations into a Box.",
    )


def some_action(space: Space) -> np.ndarray:
    """An action that the space has."""
    if isinstance(space, Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    return np.zeros(space.shape, space.dtype)


def _bounds(space: spaces.Box) -> tuple[float | tuple, float | tuple]:
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    low = np.where(low <= -_UNBOUNDED, -np.inf, low)
    high = np.where(high >= _UNBOUNDED, np.inf, high)
    # C++'s numeric_limits<float>::min() is the smallest positive number; EnvPool has it where the lowest was meant.
    low = np.where((low > 0) & (low < 1 / _UNBOUNDED) & np.isinf(high), -np.inf, low)
    return _compact(low), _compact(high)


def _compact(bound: np.ndarray) -> float | tuple:
    """A scalar if the bound is the same everywhere, else nested tuples."""
    if bound.size and (bound == bound.flat[0]).all():
        return float(bound.flat[0])
    return _tuples(bound.tolist())


def _tuples(nested):
    return tuple(_tuples(entry) for entry in nested) if isinstance(nested, list) else nested
