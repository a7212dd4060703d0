"""Returns: against rlax where a stream is one episode, by hand where episodes end inside it."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.errors import TypeCheckError
from msrl.rl import discounted_returns, gae, n_step_returns, vtrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import rlax

T = 23


@pytest.fixture
def stream():
    """One episode that goes on beyond the stream, with values v_0 .. v_T."""
    rng = np.random.default_rng(0)
    reward, values, log_ratio = rng.normal(size=T), rng.normal(size=T + 1), rng.normal(size=T)
    off = np.zeros(T, bool)
    return {"reward": np.float32(reward), "value": np.float32(values[:-1]), "next_value": np.float32(values[1:]),
            "terminated": off, "done": off}, np.float32(log_ratio)


@pytest.mark.parametrize("last", ["goes on", "terminated"])
@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_gae_is_rlaxs_on_one_episode(stream, lam, last):
    one, _ = stream
    end = np.arange(T) == T - 1 if last == "terminated" else np.zeros(T, bool)
    one = {**one, "terminated": end, "done": end}
    values = np.append(one["value"], one["next_value"][-1])
    expected = rlax.truncated_generalized_advantage_estimation(one["reward"], np.float32(0.97 * (1 - end)), lam, values)
    np.testing.assert_allclose(gae(**one, gamma=0.97, lam=lam), expected, rtol=1e-5, atol=1e-5)


def test_gae_by_hand_over_a_truncation_and_a_termination():
    # Steps 0-1 are an episode cut by a time limit, steps 2-3 one that ends in a terminal state, step 4 goes on.
    reward = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
    value = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0])
    next_value = jnp.array([20.0, 24.0, 40.0, 1000.0, 60.0])  # 24 is the value of the last observation, not of the next
    terminated = jnp.array([False, False, False, True, False])
    done = jnp.array([False, True, False, True, False])
    d4 = 5 + 0.5 * 60 - 50
    d3 = 4 - 40  # nothing after a terminal state
    d2 = 3 + 0.5 * 40 - 30 + 0.5 * 0.8 * d3
    d1 = 2 + 0.5 * 24 - 20  # bootstraps, but takes nothing from step 2
    d0 = 1 + 0.5 * 20 - 10 + 0.5 * 0.8 * d1
    result = gae(reward, value, next_value, terminated, done, gamma=0.5, lam=0.8)
    np.testing.assert_allclose(result, [d0, d1, d2, d3, d4], rtol=1e-6)


def test_gae_maps_over_environments():
    rng = np.random.default_rng(1)
    reward, value, next_value = np.float32(rng.normal(size=(3, T, 4)))
    terminated, truncated = rng.random((2, T, 4)) < 0.2
    done = terminated | truncated
    one = partial(gae, gamma=0.9, lam=0.9)
    whole = jax.vmap(one, 1, 1)(reward, value, next_value, terminated, done)
    for b in range(4):
        alone = one(reward[:, b], value[:, b], next_value[:, b], terminated[:, b], done[:, b])
        np.testing.assert_allclose(whole[:, b], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 3, T, T + 5])
def test_n_step_returns_are_rlaxs_on_one_episode(stream, n):
    one, _ = stream
    expected = rlax.n_step_bootstrapped_returns(one["reward"], np.full(T, 0.9, np.float32), one["next_value"], n)
    del one["value"]
    np.testing.assert_allclose(n_step_returns(**one, gamma=0.9, n=n), expected, rtol=1e-4, atol=1e-5)


def test_returns_by_hand_over_a_truncation_and_a_termination():
    reward, next_value = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), jnp.array([7.0, 24.0, 8.0, 1000.0, 60.0])
    terminated, done = jnp.array([0, 0, 0, 1, 0], bool), jnp.array([0, 1, 0, 1, 0], bool)
    expected = [1 + 0.5 * (2 + 0.5 * 24), 2 + 0.5 * 24, 3 + 0.5 * 4, 4, 5 + 0.5 * 60]
    np.testing.assert_allclose(discounted_returns(reward, next_value, terminated, done, gamma=0.5), expected)
    np.testing.assert_allclose(n_step_returns(reward, next_value, terminated, done, gamma=0.5, n=2), expected)
    one_step = [1 + 3.5, 2 + 12, 3 + 4, 4, 5 + 30]
    np.testing.assert_allclose(n_step_returns(reward, next_value, terminated, done, gamma=0.5, n=1), one_step)


@pytest.mark.parametrize("lam", [1.0, 0.8])
def test_vtrace_is_rlaxs_on_one_episode(stream, lam):
    one, log_ratio = stream
    expected = rlax.vtrace_td_error_and_advantage(
        one["value"], one["next_value"], one["reward"], np.full(T, 0.95, np.float32), np.exp(log_ratio), lam,
        clip_rho_threshold=1.5, clip_pg_rho_threshold=2.0)
    result = vtrace(**one, log_ratio=log_ratio, gamma=0.95, lam=lam, clip_rho=1.5, clip_advantage=2.0)
    np.testing.assert_allclose(result.target - one["value"], expected.errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.advantage, expected.pg_advantage, rtol=1e-4, atol=1e-5)


def test_vtrace_cuts_where_an_episode_ends(stream):
    """Two episodes in one stream are what they are apart, whichever way the first one ends."""
    one, log_ratio = stream
    at = 9
    for terminated in (True, False):
        one = {**one, "done": np.arange(T) == at, "terminated": (np.arange(T) == at) & terminated}
        whole = vtrace(**one, log_ratio=log_ratio, gamma=0.95)
        for part in (slice(0, at + 1), slice(at + 1, T)):
            alone = vtrace(**{k: v[part] for k, v in one.items()}, log_ratio=log_ratio[part], gamma=0.95)
            np.testing.assert_allclose(whole.target[part], alone.target, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(whole.advantage[part], alone.advantage, rtol=1e-5, atol=1e-6)


def test_on_policy_vtrace_is_gae_with_lambda_1(stream):
    one, log_ratio = stream
    error = vtrace(**one, log_ratio=np.zeros_like(log_ratio), gamma=0.9).target - one["value"]
    np.testing.assert_allclose(error, gae(**one, gamma=0.9, lam=1.0), rtol=1e-4, atol=1e-5)


def test_a_batch_where_a_stream_belongs_is_refused(stream):
    one, _ = stream
    with pytest.raises(TypeCheckError) as error:
        gae(**{**one, "value": np.zeros((T, 2), np.float32)}, gamma=0.9, lam=0.9)
    assert str(error.value) == (
        "gae got value of shape (23, 2), which has rank 2.\n"
        "gae is written for one stream: value has rank 1.\n"
        "Map it over the other dimensions: jax.vmap(gae, ...)."
    )
