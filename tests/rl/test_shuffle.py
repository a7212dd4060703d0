"""The shuffle is a bijection for every n, and looks like a uniform one in every way that minibatches could notice."""

import math
from collections import Counter
from functools import cache, partial

import jax
import numpy as np
import pytest
from scipy import stats

from msrl.rl import permutation

KEY = jax.random.key(0)
SIZES = [96, 1009]  # 8 x 12 exactly; a prime, which has to walk
COUNT = 8000


@cache
def draws(n, count=COUNT, make=permutation):
    return np.asarray(jax.jit(jax.vmap(lambda key: make(key, n)))(jax.random.split(jax.random.key(1), count)))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 12, 13, 64, 97, 2520, 8191, 8192])
def test_it_is_a_bijection(n):
    for order in draws(n, 3):
        assert order.dtype == np.int32
        np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_it_is_a_function_of_the_key_alone_or_mapped():
    one = jax.jit(partial(permutation, n=1009))
    keys = jax.random.split(KEY, 3)
    whole = jax.jit(jax.vmap(partial(permutation, n=1009)))(keys)
    for key, row in zip(keys, whole):
        np.testing.assert_array_equal(row, one(key))
    assert (whole[0] != whole[1]).mean() > 0.9


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_small_ones_come_out_equally_often(n):
    counts = Counter(map(tuple, draws(n).tolist()))
    assert len(counts) == math.factorial(n)
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize("n", SIZES)
def test_positions_are_uniform(n):
    for index in (0, 1, n // 2, n - 1):
        assert stats.chisquare(np.bincount(draws(n)[:, index], minlength=n)).pvalue > 1e-4


@pytest.mark.parametrize("n", SIZES)
def test_what_pairs_become_is_uniform(n):
    for first, second in ((0, 1), (0, n // 2), (n // 3, n - 1)):
        apart = (draws(n)[:, second] - draws(n)[:, first]) % n
        assert (apart > 0).all()
        assert stats.chisquare(np.bincount(apart, minlength=n)[1:]).pvalue > 1e-4


@pytest.mark.parametrize("n", SIZES)
def test_neighbours_stay_neighbours_as_seldom_as_they_should(n):
    """About one pair per permutation, like a Poisson variable. Four rounds would keep twice as many."""
    adjacent = (np.diff(draws(n), axis=1) == 1).sum(axis=1)
    assert adjacent.mean() == pytest.approx(1.0, abs=0.05)
    assert adjacent.var() == pytest.approx(1.0, abs=0.1)


def test_a_minibatch_is_made_up_as_by_jaxs_permutation():
    n, quarter = 96, 24
    ours, theirs = draws(n), draws(n, COUNT, jax.random.permutation)
    for statistic in (
        lambda order: (np.diff(order, axis=1) == 1).sum(axis=1),  # runs
        lambda order: (order[:, :quarter] < quarter).sum(axis=1),  # of the same quarter
        lambda order: (order[:, :quarter] % 2 == 0).sum(axis=1),  # of every second environment
        lambda order: order[:, :quarter].sum(axis=1),
    ):
        assert stats.ks_2samp(statistic(ours), statistic(theirs)).pvalue > 1e-4


@pytest.mark.parametrize("n", SIZES)
def test_a_minibatch_varies_as_it_should(n):
    quarter = n // 4
    same = (draws(n)[:, :quarter] < quarter).sum(axis=1)
    assert same.std() == pytest.approx(stats.hypergeom(n, quarter, quarter).std(), rel=0.04)
