"""Prioritised replay: how often transitions are drawn, what they weigh, and how priorities change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api import Record
from msrl.buffers import PrioritisedReplay
from msrl.errors import RunError, TypeCheckError
from tests.buffers.records import numbered

KEY = jax.random.key(0)
pytestmark = pytest.mark.parametrize("where", ["device", "host"])


def with_priorities(buffer: PrioritisedReplay, priority):
    """A store of one transition per priority."""
    count = len(priority)
    state = buffer.insert(buffer.init(numbered(0, count)), numbered(0, count))
    return buffer.update(state, KEY, np.arange(count, dtype=np.int32), np.asarray(priority, np.float32))[0]


def leaves(buffer: PrioritisedReplay, state) -> np.ndarray:
    return np.asarray(state.tree)[len(state.tree) // 2:][:buffer.capacity]


def test_draws_follow_p_to_the_alpha(where):
    priority = np.array([0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 0.5, 3.0])
    buffer = PrioritisedReplay(11, 64, alpha=0.7, where=where)
    state = with_priorities(buffer, priority)
    indices = lambda key: buffer.sample(state, key)[1].index
    keys = jax.random.split(jax.random.key(7), 150)
    drawn = jax.jit(jax.vmap(indices))(keys) if where == "device" else [indices(key) for key in keys]
    drawn = np.asarray(drawn).reshape(-1)
    p = priority**0.7 / (priority**0.7).sum()
    counts = np.bincount(drawn, minlength=len(p))
    assert len(counts) == len(p)  # nothing from the part that is not filled
    # Stratified draws vary less than independent ones, whose deviation this is.
    assert (np.abs(counts - p * drawn.size) < 3 * np.sqrt(drawn.size * p * (1 - p))).all()
    assert np.abs(counts / drawn.size - 1 / len(p)).max() > 0.1  # far from uniform


def test_one_draw_comes_from_each_part_of_the_total(where):
    buffer = PrioritisedReplay(4, 4, alpha=1.0, where=where)
    state = with_priorities(buffer, [1, 1, 1, 1])
    for seed in range(5):
        assert np.asarray(buffer.sample(state, jax.random.key(seed))[1].index).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_undo_the_bias(where, beta):
    priority = np.array([0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
    buffer = PrioritisedReplay(6, 32, alpha=0.6, beta=beta, where=where)
    _, batch = buffer.sample(with_priorities(buffer, priority), KEY)
    probability = priority**0.6 / (priority**0.6).sum()
    weight = (len(priority) * probability[np.asarray(batch.index)]) ** -beta
    np.testing.assert_allclose(batch.weight, weight / weight.max(), rtol=1e-5)
    assert np.asarray(batch.weight).max() == 1
    assert (batch.weight.dtype, batch.index.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(batch.action, 1 + np.asarray(batch.index))


def test_new_transitions_get_the_largest_priority_so_far(where):
    buffer = PrioritisedReplay(5, 2, alpha=0.5, where=where)
    state = buffer.insert(buffer.init(numbered(0, 2)), numbered(0, 2))
    np.testing.assert_array_equal(leaves(buffer, state), [1, 1, 0, 0, 0])
    state, out = buffer.update(state, KEY, np.array([0, 1], np.int32), np.array([9, 4], np.float32))
    assert out is None
    np.testing.assert_allclose(leaves(buffer, state), [3, 2, 0, 0, 0], rtol=1e-6)
    state, _ = buffer.update(state, KEY, np.array([0], np.int32), np.array([0.25], np.float32))
    state = buffer.insert(state, numbered(1, 2))  # 9 is the largest so far, though it is gone
    np.testing.assert_allclose(leaves(buffer, state), [0.5, 2, 3, 3, 0], rtol=1e-6)
    state = buffer.insert(state, numbered(2, 2))  # wraps, and takes the place of the first
    np.testing.assert_allclose(leaves(buffer, state), [3, 2, 3, 3, 3], rtol=1e-6)


def test_of_several_priorities_for_one_transition_the_largest_counts(where):
    buffer = PrioritisedReplay(3, 2, alpha=1.0, where=where)
    state = with_priorities(buffer, [1, 1, 1])
    state, _ = buffer.update(state, KEY, np.array([1, 1, 2, 1], np.int32), np.array([2, 5, 3, 4], np.float32))
    np.testing.assert_array_equal(leaves(buffer, state), [1, 5, 3])
    assert (np.asarray(state.tree)[1], np.asarray(state.largest)) == (9, 5)


def test_a_priority_of_zero_can_still_be_drawn(where):
    buffer = PrioritisedReplay(2, 2, alpha=1.0, where=where)
    state = with_priorities(buffer, [0, 0])
    np.testing.assert_array_equal(leaves(buffer, state), np.full(2, 1e-6, np.float32))
    _, batch = buffer.sample(state, KEY)
    assert (np.asarray(batch.index).tolist(), np.asarray(batch.weight).tolist()) == ([0, 1], [1, 1])


@pytest.mark.parametrize("field", ["index", "weight"])
def test_the_names_of_its_own_fields_are_taken(where, field):
    with pytest.raises(TypeCheckError) as error:
        PrioritisedReplay(4, 2, where=where).init(Record(obs=np.zeros(2), **{field: np.zeros(2)}))
    assert str(error.value) == (
        f"PrioritisedReplay is given a field of the name {field}.\n"
        "Samples have a field of that name already, which the buffer itself adds.\n"
        "Give the field another name.")


def test_one_priority_per_index(where):
    buffer = PrioritisedReplay(4, 2, where=where)
    state = with_priorities(buffer, [1, 1])
    with pytest.raises(TypeCheckError) as error:
        buffer.update(state, KEY, jnp.zeros(2, jnp.int32), jnp.zeros((2, 1)))
    assert str(error.value) == (
        "PrioritisedReplay.update: index is int32[2], and priority is float32[2, 1].\n"
        "Every sampled transition has one priority.\n"
        "Pass batch.index and one number for each of its entries, such as |TD error|.")


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan])
def test_the_host_refuses_priorities_that_are_no_shares(where, bad):
    if where == "device":
        return  # a compiled program cannot raise
    buffer = PrioritisedReplay(4, 2, where=where)
    state = with_priorities(buffer, [1, 1])
    with pytest.raises(RunError) as error:
        buffer.update(state, KEY, np.array([0, 1], np.int32), np.array([1, bad], np.float32))
    assert str(error.value) == (
        "PrioritisedReplay.update is given a priority that is negative, infinite or not a number.\n"
        "Priorities are shares of a sum.\n"
        "Pass absolute values, and look for what made them infinite or nan.")
