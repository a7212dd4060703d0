"""Distributions against SciPy, against their own samples, and at the edges of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from msrl.rl import Categorical, DiagonalNormal, MultiCategorical, TanhNormal

KEY = jax.random.key(0)
LOGITS = np.float32([[0.0, 1.0, -1.0], [2.0, 2.0, -3.0]])
MEAN, LOG_STD = np.float32([[0.5, -1.0], [0.0, 2.0]]), np.float32([[0.1, -0.7], [0.0, 0.3]])
ALL = {
    "categorical": Categorical.from_logits(LOGITS),
    "multi": MultiCategorical.from_logits(np.float32([[0.0, 1.0, -1.0, 0.5, 0.1]]), (3, 2)),
    "normal": DiagonalNormal(MEAN, LOG_STD),
    "tanh": TanhNormal(MEAN, LOG_STD),
}


def draws(distribution, count=20_000):
    return jax.jit(jax.vmap(distribution.sample))(jax.random.split(KEY, count))


@pytest.mark.parametrize("name", ALL)
def test_each_is_a_pytree_that_a_compiled_function_returns(name):
    again = jax.jit(lambda d: d)(ALL[name])
    assert type(again) is type(ALL[name])
    np.testing.assert_array_equal(again.sample(KEY), ALL[name].sample(KEY))


@pytest.mark.parametrize("name", ALL)
def test_drawing_with_the_log_probability_is_drawing_and_then_asking(name):
    action, log_prob = ALL[name].sample_and_log_prob(KEY)
    np.testing.assert_array_equal(action, ALL[name].sample(KEY))
    np.testing.assert_allclose(log_prob, ALL[name].log_prob(action), rtol=1e-4, atol=1e-5)
    assert log_prob.shape == action.shape[: log_prob.ndim] and log_prob.dtype == jnp.float32


@pytest.mark.parametrize("name", ["categorical", "multi", "normal"])
def test_entropy_is_the_mean_of_minus_log_prob(name):
    log_probs = jax.vmap(ALL[name].log_prob)(draws(ALL[name]))
    np.testing.assert_allclose(ALL[name].entropy(), -log_probs.mean(axis=0), atol=0.03)


def test_categorical():
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    sample = draws(ALL["categorical"])
    assert sample.dtype == jnp.int32
    for a in range(3):
        np.testing.assert_allclose(ALL["categorical"].log_prob(jnp.full(2, a)), np.log(p[:, a]), rtol=1e-5)
        np.testing.assert_allclose((sample == a).mean(axis=0), p[:, a], atol=0.015)
    np.testing.assert_array_equal(ALL["categorical"].mode(), [1, 0])


def test_a_choice_that_is_ruled_out_leaves_no_nan():
    def entropy(logits):
        return Categorical.from_logits(logits).entropy()

    logits = jnp.array([0.0, 0.0, -jnp.inf])
    assert entropy(logits) == pytest.approx(np.log(2.0))
    assert np.isfinite(jax.grad(entropy)(logits)[:2]).all()


def test_multi_categorical_is_its_parts():
    left = Categorical.from_logits(np.float32([[0.0, 1.0, -1.0]]))
    right = Categorical.from_logits(np.float32([[0.5, 0.1]]))
    action = jnp.array([[2, 1]])
    both = left.log_prob(action[:, 0]) + right.log_prob(action[:, 1])
    np.testing.assert_allclose(ALL["multi"].log_prob(action), both, rtol=1e-6)
    np.testing.assert_allclose(ALL["multi"].entropy(), left.entropy() + right.entropy(), rtol=1e-6)
    np.testing.assert_array_equal(ALL["multi"].mode(), [[1, 0]])
    sample = np.asarray(draws(ALL["multi"]))[:, 0]
    assert sample.dtype == np.int32 and sample.shape == (20_000, 2)
    # independent: the joint frequencies are the products of the marginal ones
    joint = np.histogram2d(*sample.T, bins=(3, 2))[0] / len(sample)
    np.testing.assert_allclose(joint, np.outer(joint.sum(1), joint.sum(0)), atol=0.01)


def test_normal_is_scipys():
    action = np.float32([[0.0, 1.0], [-1.0, 3.0]])
    expected = stats.norm(MEAN, np.exp(LOG_STD)).logpdf(action).sum(-1)
    np.testing.assert_allclose(ALL["normal"].log_prob(action), expected, rtol=1e-5)
    np.testing.assert_allclose(ALL["normal"].entropy(), stats.norm(MEAN, np.exp(LOG_STD)).entropy().sum(-1), rtol=1e-5)
    sample = draws(ALL["normal"])
    np.testing.assert_allclose(sample.mean(axis=0), MEAN, atol=0.04)
    np.testing.assert_allclose(sample.std(axis=0), np.exp(LOG_STD), rtol=0.03)


def test_a_normal_whose_spread_is_shared_counts_every_entry():
    shared = DiagonalNormal(jnp.zeros((7, 3)), jnp.zeros(3))
    assert shared.entropy().shape == (7,)
    np.testing.assert_allclose(shared.entropy(), 3 * stats.norm.entropy(), rtol=1e-6)


def test_tanh_normals_density_integrates_to_1():
    one = TanhNormal(jnp.array([0.4]), jnp.array([-0.3]))
    grid = jnp.linspace(-0.99999, 0.99999, 200_001)[:, None]
    density = jnp.exp(jax.vmap(one.log_prob)(grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=2e-3)


def test_tanh_normal_by_the_textbook_formula():
    raw = np.float64([[0.3, -0.5], [1.0, 0.2]])
    expected = (stats.norm(MEAN, np.exp(LOG_STD)).logpdf(raw) - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
    np.testing.assert_allclose(ALL["tanh"].log_prob(np.float32(np.tanh(raw))), expected, rtol=1e-4)
    np.testing.assert_allclose(ALL["tanh"].mode(), np.tanh(MEAN), rtol=1e-6)


def test_tanh_normal_is_exact_where_the_action_rounds_to_1():
    """At a mean of 30, tanh is 1 in float32 and log(1 - tanh²) is -inf; in doubles it is -2·30 + log 4."""
    far = TanhNormal(jnp.array([30.0]), jnp.array([-3.0]))
    action, log_prob = far.sample_and_log_prob(KEY)
    raw = 30.0 + np.exp(-3.0) * np.float64(jax.random.normal(KEY, (1,))[0])
    expected = stats.norm(30.0, np.exp(-3.0)).logpdf(raw) - (np.log(4.0) - 2 * raw)
    assert action[0] == 1.0
    assert log_prob == pytest.approx(expected, rel=1e-4)
    grad = jax.grad(lambda mean: TanhNormal(mean, jnp.array([-3.0])).sample_and_log_prob(KEY)[1])(jnp.array([30.0]))
    assert grad[0] == pytest.approx(2.0, rel=1e-4)  # d/du of -log(1 - tanh²u) is 2 tanh(u)
    assert np.isfinite(far.log_prob(action))
