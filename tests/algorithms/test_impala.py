"""IMPALA's loss against rlax and NumPy; without lag it is A2C; with lag it learns the values of its own policy."""

import warnings

import jax
import numpy as np
import pytest
from plain_nets import DISCRETE, forward, log_softmax, some_rollout, some_state

from msrl.algorithms.a2c import A2C, A2CConfig
from msrl.algorithms.impala import IMPALA, IMPALAConfig
from msrl.api import Record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import rlax

CONFIG = IMPALAConfig(hidden=(8, 5), vtrace_lambda=0.9, clip_rho=1.2, value_coef=0.3, entropy_coef=0.02)


def make(config=CONFIG):
    agent = IMPALA(config, DISCRETE).agent()
    return agent, some_state(agent)


def log_probs(state, batch):
    """(of the actions taken, of all): (T, B) and (T, B, A)."""
    log_p = log_softmax(forward(state.params["actor"], np.float64(batch.obs), np.tanh))
    return np.take_along_axis(log_p, batch.action[..., None], -1)[..., 0], log_p


def test_loss_is_made_of_rlaxs_vtrace():
    """Each environment is one episode that goes on: what follows an observation is the next one."""
    agent, state = make()
    batch = some_rollout(DISCRETE)
    off = np.zeros_like(batch.done)
    batch = batch.replace(terminated=off, done=off,
                          final_obs=np.concatenate([batch.obs[1:], batch.final_obs[-1:]]))
    value, next_value = (np.float32(forward(state.params["critic"], np.float64(x), np.tanh)[..., 0])
                         for x in (batch.obs, batch.final_obs))
    log_prob, log_p = log_probs(state, batch)
    ratio = np.exp(log_prob - batch.log_prob)
    assert (ratio > 1.2).any() and (ratio < 1.0).any()  # or else nothing would be seen of the clipping
    errors, advantages = [], []
    for b in range(value.shape[1]):
        one = rlax.vtrace_td_error_and_advantage(
            value[:, b], next_value[:, b], batch.reward[:, b], np.full(len(value), 0.99, np.float32),
            np.float32(ratio[:, b]), 0.9, clip_rho_threshold=1.2, clip_pg_rho_threshold=1.2)
        errors.append(one.errors)
        advantages.append(one.pg_advantage)
    policy = -(log_prob * np.stack(advantages, 1)).mean()
    value_loss = 0.5 * (np.stack(errors, 1) ** 2).mean()
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
    loss, metrics = jax.jit(agent.learner.loss)(state.params, batch)
    found = [metrics[name] for name in ("policy_loss", "value_loss", "entropy", "loss")]
    np.testing.assert_allclose(found, [policy, value_loss, entropy, policy + 0.3 * value_loss - 0.02 * entropy],
                               rtol=1e-4)
    assert loss == metrics["loss"]
    assert metrics["kl"] == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-4)


def test_without_lag_it_is_a2c():
    """Episodes end inside the rollout, one way and the other; the gradients are the same, not just the losses."""
    agent, state = make(IMPALAConfig(hidden=(8, 5)))
    on_policy = A2C(A2CConfig(hidden=(8, 5)), DISCRETE).agent()
    batch = some_rollout(DISCRETE)
    assert batch.terminated.any() and (batch.done & ~batch.terminated).any()
    batch = batch.replace(log_prob=np.float32(log_probs(state, batch)[0]))
    (found, metrics), (expected, _) = (jax.jit(jax.grad(each.learner.loss, has_aux=True))(state.params, batch)
                                       for each in (agent, on_policy))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("clip_rho, worth", [(1e6, 0.7), (1.0, 0.25 / 0.55)])
def test_the_critic_learns_the_values_of_the_policy_and_not_of_the_one_that_acted(clip_rho, worth):
    """One state, episodes of one step, action 1 earns 1. The policy takes it with probability 0.7; who acted took each
    action equally often. With unbounded weights the critic's error vanishes at 0.7. With weights of at most 1 it does
    so for the policy in between, min(mu, pi) normalised: 0.25 for action 1, 0.1 for each of the three others."""
    agent, state = make(IMPALAConfig(hidden=(4,), clip_rho=clip_rho, value_coef=1.0))
    params = jax.tree.map(np.zeros_like, state.params)
    params["actor"]["params"]["Network_0"]["output"]["bias"][:] = np.log([0.1, 0.7, 0.1, 0.1])
    ones, action = np.ones((1, 4), bool), np.arange(4, dtype=np.int32)[None]
    batch = Record(obs=np.zeros((1, 4, 3), np.float32), final_obs=np.zeros((1, 4, 3), np.float32), terminated=ones,
                   done=ones, action=action, reward=np.float32(action == 1),
                   log_prob=np.full((1, 4), np.log(0.25), np.float32))
    grad = jax.jit(jax.grad(agent.learner.loss, has_aux=True))

    def error(value):
        params["critic"]["params"]["output"]["bias"][:] = value
        return float(grad(params, batch)[0]["critic"]["params"]["output"]["bias"][0])

    assert error(worth) == pytest.approx(0.0, abs=1e-6)
    assert error(worth - 0.1) < -0.01 and error(worth + 0.1) > 0.01


def test_the_actor_records_how_likely_its_actions_were():
    agent, state = make()
    obs = some_rollout(DISCRETE).obs[0]
    out = jax.jit(agent.actor.act)(agent.learner.weights(state), jax.random.key(0), obs)
    log_p = log_softmax(forward(state.params["actor"], np.float64(obs), np.tanh))
    np.testing.assert_allclose(out.log_prob, log_p[np.arange(len(obs)), out.action], rtol=1e-4)
