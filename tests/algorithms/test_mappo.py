"""MAPPO: what the policy and the critic see of the agents, and the loss against NumPy."""

import jax
import numpy as np
import pytest
from plain_nets import TEAM, forward, log_softmax, some_state

from msrl.algorithms.mappo import MAPPO, MAPPOConfig
from msrl.api import Record

rng = np.random.default_rng(0)
T, B, N = 5, 3, 2


def make(**fields):
    agent = MAPPO(MAPPOConfig(hidden=(8, 6), epochs=1, minibatches=3, **fields), TEAM).agent()
    return agent, some_state(agent)


def rollout():
    terminated = rng.random((T, B)) < 0.2
    return Record(obs=np.float32(rng.normal(size=(T, B, N, 3))), action=rng.integers(0, 4, (T, B, N)).astype(np.int32),
                  log_prob=np.full((T, B, N), -1.4, np.float32), reward=np.float32(rng.normal(size=(T, B, N))),
                  terminated=terminated, done=terminated | (rng.random((T, B)) < 0.2),
                  final_obs=np.float32(rng.normal(size=(T, B, N, 3))))


def test_the_policy_is_shared_and_sees_its_own_observation():
    agent, state = make()
    weights, obs = agent.learner.weights(state), np.float32(rng.normal(size=(B, N, 3)))
    out = jax.jit(agent.actor.act)(weights, jax.random.key(0), obs)
    assert out.action.shape == out.log_prob.shape == (B, N)
    logits = forward(weights, obs, np.tanh)
    np.testing.assert_array_equal(agent.actor.exploit(weights, None, obs).action, logits.argmax(-1))
    log_p = log_softmax(logits)
    np.testing.assert_allclose(out.log_prob, np.take_along_axis(log_p, np.asarray(out.action)[..., None], -1)[..., 0],
                               rtol=1e-4)


def test_told_who_they_are_agents_may_differ():
    agent, state = make(agent_id=True)
    views = agent.actor.views
    obs = np.broadcast_to(np.float32(rng.normal(size=3)), (1, N, 3))
    np.testing.assert_array_equal(views.own(obs)[0, :, 3:], np.eye(2))
    logits = agent.actor.policy.apply(state.params["actor"], views.own(obs)).log_p
    assert not np.allclose(logits[0, 0], logits[0, 1])
    plain, other = make()
    same = plain.actor.policy.apply(other.params["actor"], plain.actor.views.own(obs)).log_p
    np.testing.assert_array_equal(same[0, 0], same[0, 1])


def test_rows_hold_one_advantage_per_agent_by_hand():
    agent, state = make()
    batch = rollout()
    found = jax.jit(agent.learner.rows)(state.params, batch, batch)
    joint = np.float64(batch.obs).reshape(T, B, 6)
    value = forward(state.params["critic"], joint, np.tanh)
    next_value = forward(state.params["critic"], np.float64(batch.final_obs).reshape(T, B, 6), np.tanh)
    advantage, later = np.zeros((T, B, N)), np.zeros((B, N))
    for t in reversed(range(T)):
        ended, cut = batch.terminated[t][:, None], batch.done[t][:, None]
        delta = batch.reward[t] + 0.99 * np.where(ended, 0, next_value[t]) - value[t]
        later = advantage[t] = delta + 0.99 * 0.95 * np.where(cut, 0, later)
    np.testing.assert_allclose(found.advantage, advantage.reshape(-1, N), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.joint[B + 1], joint[1, 1], rtol=1e-6)
    np.testing.assert_array_equal(found.action, batch.action.reshape(-1, N))


def test_loss_is_numpys():
    agent, state = make()
    batch = rollout()
    rows = jax.jit(agent.learner.rows)(state.params, batch, batch)
    rows = jax.tree.map(np.asarray, rows.replace(target=rows.target + 1))
    log_p = log_softmax(forward(state.params["actor"], np.float64(rows.own), np.tanh))
    log_prob = np.take_along_axis(log_p, np.asarray(rows.action)[..., None], -1)[..., 0]
    advantage = np.float64(rows.advantage)
    advantage = (advantage - advantage.mean()) / advantage.std()
    ratio = np.exp(log_prob - rows.log_prob)
    policy = -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    value = forward(state.params["critic"], np.float64(rows.joint), np.tanh)
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
    expected = policy + 0.5 * 0.5 * ((value - rows.target) ** 2).mean() - 0.01 * entropy
    assert jax.jit(agent.learner.loss)(state.params, rows)[0] == pytest.approx(expected, rel=1e-4)


def test_the_critic_sees_all_agents():
    agent, state = make()
    obs = np.zeros((1, N, 3), np.float32)
    changed = obs.copy()
    changed[0, 1] = 1.0  # the other agent
    before, after = (agent.learner.critic.apply(state.params["critic"], agent.learner.views.joint(x)) for x in
                     (obs, changed))
    assert before.shape == (1, N) and before[0, 0] != after[0, 0]


def test_a_team_of_one_learns_from_its_own_and_sees_all():
    agent, state = make(agent_shards=2, agent_id=True)
    views, batch = agent.learner.views, rollout()
    mine = jax.tree.map(lambda leaf: leaf[:, :, 1:] if leaf.ndim > 2 else leaf, batch)
    rows = jax.jit(agent.learner.rows)(state.params, mine, batch)
    assert views.own(mine.obs).shape == (T, B, 1, 3 + 1)  # the only one of its team
    np.testing.assert_array_equal(rows.action, batch.action.reshape(-1, N)[:, 1:])
    np.testing.assert_array_equal(rows.joint, batch.obs.reshape(-1, N * 3))
    assert rows.advantage.shape == rows.value.shape == (T * B, 1)
