"""States as a run leaves them, taken apart by shard and by seed."""

import operator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def shards_of(states: Any, shards: int, seeds: int = 1) -> list[Any]:
    """The states of a component's shards, each with its leading seed dimension if there are several seeds."""
    if isinstance(states, tuple):
        return list(states)
    if shards == 1:
        return [states]
    at = 0 if seeds == 1 else 1
    return [jax.tree.map(partial(jnp.take, indices=number, axis=at), states) for number in range(shards)]


def copy_array(leaf: Any) -> Any:
    return np.array(leaf) if isinstance(leaf, (jax.Array, np.ndarray)) else leaf


def unstack(tree: Any, count: int) -> list[Any]:
    return [jax.tree.map(operator.itemgetter(number), tree) for number in range(count)]
