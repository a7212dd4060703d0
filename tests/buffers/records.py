"""Records for tests: every field is a function of a transition's number, so that a sampled row can be checked alone."""

import jax
import numpy as np

from msrl.api import Record


def record_of(ids) -> Record:
    """The record of transitions `ids` (B,): four dtypes, an image, and a field that is itself a tree."""
    ids = np.asarray(ids, np.int32)
    small = (ids % 251).astype(np.uint8)
    return Record(
        action=ids,
        obs={"image": small[:, None, None] + np.arange(6, dtype=np.uint8).reshape(2, 3),
             "state": (ids[:, None] * 0.5 + np.arange(2)).astype(np.float32)},
        reward=(ids % 7).astype(np.float32),
        terminated=np.zeros(ids.shape, bool),
        truncated=np.zeros(ids.shape, bool),
        final_obs=(ids * 0.25).astype(np.float32)[:, None],
        even=ids % 2 == 0,
    )


def numbered(insert: int, batch: int) -> Record:
    """The record of the given insert, when transitions are numbered from 1 in the order of insertion."""
    return record_of(1 + insert * batch + np.arange(batch))


def shapes_of(record: Record) -> Record:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), record)


def assert_same(a, b) -> None:
    """Equal trees, dtypes and bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
