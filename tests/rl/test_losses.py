"""Losses against rlax and optax, and where their gradients go."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from msrl.errors import TypeCheckError
from msrl.rl import clipped_surrogate, clipped_value_loss, huber, pick, polyak, q_error

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import rlax

rng = np.random.default_rng(0)


def test_clipped_surrogate_is_rlaxs():
    log_prob, old, advantage = np.float32(rng.normal(size=(3, 50)))
    expected = rlax.clipped_surrogate_pg_loss(np.exp(log_prob - old), advantage, 0.2)
    np.testing.assert_allclose(clipped_surrogate(log_prob, old, advantage, clip=0.2).mean(), expected, rtol=1e-5)


def test_the_surrogate_stops_pushing_beyond_the_clip():
    slope = jax.grad(lambda x, a: clipped_surrogate(x[None], jnp.zeros(1), a[None], clip=0.2)[0])
    far, near = jnp.log(1.5), jnp.log(1.1)
    assert slope(far, jnp.float32(1.0)) == 0.0  # likelier already: nothing to gain
    assert slope(far, jnp.float32(-1.0)) == pytest.approx(1.5)  # likelier, though bad: pushed back
    assert slope(near, jnp.float32(1.0)) == pytest.approx(-1.1)


def test_clipped_value_loss_by_hand():
    value, old, target = jnp.array([2.0, 0.1, -2.0]), jnp.zeros(3), jnp.array([1.0, 1.0, -3.0])
    # |2 - 1| against |0.2 - 1|; within the clip; |-2 + 3| against |-0.2 + 3|
    np.testing.assert_allclose(clipped_value_loss(value, old, target, clip=0.2), [0.5, 0.405, 3.92], rtol=1e-6)
    np.testing.assert_allclose(clipped_value_loss(value, old, target, clip=jnp.inf), [0.5, 0.405, 0.5], rtol=1e-6)


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_huber_is_optaxs(delta):
    error = np.float32(rng.normal(size=100) * 3)
    np.testing.assert_allclose(huber(error, delta=delta), optax.huber_loss(error, delta=delta), rtol=1e-5, atol=1e-7)


def test_q_error_is_rlaxs():
    q_tm1, q_t, selector = np.float32(rng.normal(size=(3, 40, 5)))
    action, reward = rng.integers(0, 5, 40), np.float32(rng.normal(size=40))
    discount = np.float32(rng.random(40))
    ours = jax.vmap(q_error)
    double = jax.vmap(rlax.double_q_learning)(q_tm1, action, reward, discount, q_t, selector)
    np.testing.assert_allclose(ours(q_tm1, action, reward, discount, q_t, selector), double, rtol=1e-5, atol=1e-6)
    plain = jax.vmap(rlax.q_learning)(q_tm1, action, reward, discount, q_t)
    np.testing.assert_allclose(ours(q_tm1, action, reward, discount, q_t, q_t), plain, rtol=1e-5, atol=1e-6)


def test_q_errors_gradient_reaches_the_chosen_value_alone():
    q_tm1, q_t, selector = jnp.arange(3.0), jnp.arange(3.0), jnp.array([5.0, 1.0, 2.0])
    grads = jax.grad(q_error, argnums=(0, 4, 5))(q_tm1, 1, 1.0, 0.9, q_t, selector)
    np.testing.assert_array_equal(grads[0], [0.0, -1.0, 0.0])
    np.testing.assert_array_equal(grads[1], 0.0)
    np.testing.assert_array_equal(grads[2], 0.0)


def test_q_error_takes_one_transition():
    with pytest.raises(TypeCheckError) as error:
        q_error(jnp.zeros((4, 3)), jnp.zeros(4, int), jnp.zeros(4), jnp.zeros(4), jnp.zeros((4, 3)), jnp.zeros((4, 3)))
    assert str(error.value) == (
        "q_error got q_tm1 of shape (4, 3), which has rank 2.\n"
        "q_error is written for one stream: q_tm1 has rank 1.\n"
        "Map it over the other dimensions: jax.vmap(q_error, ...)."
    )


def test_pick_is_indexing():
    values, index = rng.normal(size=(4, 6, 5)), rng.integers(0, 5, (4, 6))
    np.testing.assert_allclose(pick(values, index), np.take_along_axis(values, index[..., None], -1)[..., 0], rtol=1e-6)


def test_polyak_moves_by_tau():
    target, online = {"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([1.0, 8.0])}
    np.testing.assert_allclose(polyak(target, online, tau=0.25)["w"], [0.25, 5.0])
    np.testing.assert_array_equal(polyak(target, online, tau=1.0)["w"], online["w"])
    np.testing.assert_array_equal(polyak(target, online, tau=0.0)["w"], target["w"])
