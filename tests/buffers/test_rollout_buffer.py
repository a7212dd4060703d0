"""Rollouts: the order of time, filling again after a sample, and what happens off the beaten track."""

import jax
import numpy as np
import pytest

from msrl.buffers import Rollout
from msrl.errors import RunError
from tests.buffers.records import assert_same, numbered


def stacked(*inserts: int):
    return jax.tree.map(lambda *rows: np.stack(rows), *[numbered(i, 2) for i in inserts])


def with_inserts(buffer: Rollout, state, *inserts: int):
    for i in inserts:
        state = buffer.insert(state, numbered(i, 2))
    return state


@pytest.mark.parametrize("where", ["device", "host"])
def test_rows_are_inserts_in_the_order_of_time_every_time(where):
    buffer = Rollout(3, where)
    state = buffer.init(numbered(0, 2))
    for first in (0, 3, 6):
        state = with_inserts(buffer, state, first, first + 1, first + 2)
        assert state.position == 3
        state, batch = buffer.sample(state, jax.random.key(0))
        assert state.position == 0
        assert_same(batch, stacked(first, first + 1, first + 2))


@pytest.mark.parametrize("where", ["device", "host"])
def test_inserts_past_the_length_start_over_at_row_0(where):
    buffer = Rollout(3, where)
    state = with_inserts(buffer, buffer.init(numbered(0, 2)), 0, 1, 2, 3)
    assert_same(state.store, stacked(3, 1, 2))


def test_the_device_hands_over_a_store_that_is_not_full_as_it_is():
    buffer = Rollout(3, "device")
    state = with_inserts(buffer, buffer.init(numbered(0, 2)), 0, 1, 2)
    state, _ = buffer.sample(state, jax.random.key(0))
    _, batch = buffer.sample(with_inserts(buffer, state, 3), jax.random.key(0))
    assert_same(batch, stacked(3, 1, 2))


@pytest.mark.parametrize("inserts", [2, 4])
def test_the_host_insists_on_exactly_the_length(inserts):
    buffer = Rollout(3, "host")
    state = with_inserts(buffer, buffer.init(numbered(0, 2)), *range(inserts))
    with pytest.raises(RunError) as error:
        buffer.sample(state, jax.random.key(0))
    assert str(error.value) == (
        f"Rollout of length 3 is sampled after {inserts} inserts.\n"
        "A rollout is handed over whole, one row per insert since the last sample.\n"
        "Insert exactly 3 records before each sample, or change the length.\n"
        "See docs/buffers.md#how-many-inserts.")


def test_the_device_remembers_the_first_sample_that_was_wrong():
    buffer, key = Rollout(3, "device"), jax.random.key(0)
    state, _ = buffer.sample(with_inserts(buffer, buffer.init(numbered(0, 2)), *range(3)), key)
    assert buffer.miscounted(state) == -1
    state, _ = buffer.sample(with_inserts(buffer, state, *range(4)), key)
    state, _ = buffer.sample(with_inserts(buffer, state, *range(2)), key)
    assert buffer.miscounted(state) == 4
