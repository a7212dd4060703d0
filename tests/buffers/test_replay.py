"""Replays against a deque: whatever the capacity and the number of environments, the newest transitions are kept."""

from collections import deque

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrl.api import Record
from msrl.buffers import PrioritisedReplay, Replay
from msrl.errors import TypeCheckError
from tests.buffers.records import assert_same, numbered, record_of

SAMPLED = 8
MAKE = {"uniform": Replay, "prioritised": PrioritisedReplay}
insert = jax.jit(lambda buffer, state, item: buffer.insert(state, item), static_argnums=0)
sample = jax.jit(lambda buffer, state, key: buffer.sample(state, key), static_argnums=0)


def ring_of(state):
    return getattr(state, "ring", state)


def oldest_first(state, capacity: int) -> Record:
    """What a replay holds."""
    ring = ring_of(state)
    size = int(ring.size)
    order = (int(ring.position) - size + np.arange(size)) % capacity
    return jax.tree.map(lambda x: np.asarray(x)[order], ring.store)


def check_against_deque(buffer, batch: int, inserts: int, seed: int, put, take):
    state, model = buffer.init(numbered(0, batch)), deque(maxlen=buffer.capacity)
    for i in range(inserts):
        state = put(state, numbered(i, batch))
        model.extend(np.asarray(numbered(i, batch).action).tolist())
        assert_same(oldest_first(state, buffer.capacity), record_of(list(model)))
        state, drawn = take(state, jax.random.key(seed + i))
        rows = Record(**{k: v for k, v in drawn.asdict().items() if k not in ("index", "weight")})
        assert set(np.asarray(drawn.action).tolist()) <= set(model)
        assert_same(jax.tree.map(np.asarray, rows), record_of(drawn.action))


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=10, deadline=None)
@given(capacity=st.integers(1, 12), batch=st.integers(1, 12), inserts=st.integers(1, 15), seed=st.integers(0, 2**16))
def test_host_replays_are_deques(kind, capacity, batch, inserts, seed):
    batch = min(batch, capacity)
    buffer = MAKE[kind](capacity, SAMPLED, where="host")
    check_against_deque(buffer, batch, inserts, seed, buffer.insert, buffer.sample)


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=8, deadline=None)
@given(shape=st.sampled_from([(12, 4), (7, 3), (2, 1)]), inserts=st.integers(1, 15), seed=st.integers(0, 2**16))
def test_device_replays_are_deques(kind, shape, inserts, seed):
    capacity, batch = shape  # few, so that few programs are compiled: divides, wraps, single
    buffer = MAKE[kind](capacity, SAMPLED, where="device")
    check_against_deque(buffer, batch, inserts, seed, lambda s, x: insert(buffer, s, x),
                        lambda s, k: sample(buffer, s, k))


@pytest.mark.parametrize("where", ["device", "host"])
def test_uniform_sampling_is_uniform_over_the_filled_part_with_replacement(where):
    buffer = Replay(100, 20_000, where)
    state = buffer.init(numbered(0, 4))
    for i in range(3):
        state = buffer.insert(state, numbered(i, 4))
    _, batch = buffer.sample(state, jax.random.key(0))
    values, counts = np.unique(np.asarray(batch.action), return_counts=True)
    assert values.tolist() == list(range(1, 13))
    p = 1 / 12
    sigma = np.sqrt(20_000 * p * (1 - p))
    assert (np.abs(counts - 20_000 * p) < 4 * sigma).all()
    assert counts.std() > 0.3 * sigma  # independent draws, not a shuffled deck


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("kind", MAKE)
def test_the_key_alone_decides_the_draw(kind, where):
    buffer = MAKE[kind](12, SAMPLED, where=where)
    state = buffer.insert(buffer.init(numbered(0, 12)), numbered(0, 12))
    first, again, other = (buffer.sample(state, jax.random.key(k))[1] for k in (0, 0, 1))
    assert_same(first, again)
    assert not np.array_equal(first.action, other.action)


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("kind", MAKE)
def test_more_environments_than_capacity_is_an_error(kind, where):
    buffer = MAKE[kind](4, 1, where=where)
    with pytest.raises(TypeCheckError) as error:
        buffer.init(numbered(0, 5))
    assert str(error.value) == (
        f"{type(buffer).__name__}: one insert brings 5 transitions, and the capacity is 4.\n"
        "An insert would overwrite what it has just written.\n"
        "Use capacity=5 or more.")
