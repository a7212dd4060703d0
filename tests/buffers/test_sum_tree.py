"""The sum tree against plain arrays: every node is the sum of its children, and a leaf is found where it should be."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrl.buffers import sum_tree

UPDATES = 6  # leaves per update: one shape, so that each width is compiled once
WIDTHS = [1, 8, 512]


def assert_sums(tree) -> None:
    tree = np.asarray(tree)
    np.testing.assert_array_equal(tree[1:len(tree) // 2], tree[2::2] + tree[3::2])


@pytest.mark.parametrize(("capacity", "width"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1_000_000, 2**20)])
def test_the_width_is_the_next_power_of_two(capacity, width):
    assert sum_tree.width(capacity) == width


@settings(max_examples=20, deadline=None)
@given(data=st.data(), width=st.sampled_from(WIDTHS))
def test_updates_keep_the_sums_and_the_larger_of_duplicates(data, width):
    device, host, leaves = jnp.zeros(2 * width), np.zeros(2 * width, np.float32), np.zeros(width, np.float32)
    for _ in range(data.draw(st.integers(1, 4))):
        index = np.array(data.draw(st.lists(st.integers(0, width - 1), min_size=UPDATES, max_size=UPDATES)), np.int32)
        numbers = st.floats(0, 1000, width=32, allow_subnormal=False)
        value = np.array(data.draw(st.lists(numbers, min_size=UPDATES, max_size=UPDATES)), np.float32)
        for i in set(index.tolist()):
            leaves[i] = value[index == i].max()
        device = sum_tree.update(device, index, value)
        sum_tree.host_update(host, index, value)
    np.testing.assert_array_equal(host[width:], leaves)
    np.testing.assert_array_equal(np.asarray(device), host)
    assert_sums(host)


@settings(max_examples=20, deadline=None)
@given(data=st.data(), width=st.sampled_from(WIDTHS))
def test_find_is_a_search_in_the_running_sum(data, width):
    """With whole numbers, all sums are exact, and the answer is that of searchsorted."""
    seed = data.draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 5, width).astype(np.float32)
    leaves[rng.integers(width)] = 3  # never all zeros
    tree = np.zeros(2 * width, np.float32)
    sum_tree.host_update(tree, np.arange(width), leaves)
    target = rng.integers(0, int(leaves.sum()), 16).astype(np.float32) + np.float32(0.5)
    expected = np.searchsorted(np.cumsum(leaves), target, side="right")
    for index, value in (sum_tree.host_find(tree, target), sum_tree.find(tree, target)):
        np.testing.assert_array_equal(index, expected)
        np.testing.assert_array_equal(value, leaves[expected])


@pytest.mark.parametrize("search", [sum_tree.find, sum_tree.host_find])
def test_rounding_never_leads_to_an_empty_leaf(search):
    tree = np.zeros(16, np.float32)
    sum_tree.host_update(tree, np.array([2, 3]), np.array([0.1, 0.3], np.float32))
    target = np.array([0, tree[1], tree[1] * 2], np.float32)  # at and beyond the total, where only rounding leads
    index, value = search(tree, target)
    assert (np.asarray(index).tolist(), np.asarray(value).tolist()) == ([2, 3, 3], [tree[10], tree[11], tree[11]])
