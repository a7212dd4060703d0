"""PPO's loss against NumPy, where its gradients go, and what `learn` does with a rollout."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_nets import CONTINUOUS, DISCRETE, forward, log_softmax, some_state

from msrl.algorithms.ppo import PPO, PPOConfig, ppo_loss
from msrl.api import Record

CONFIG = PPOConfig(hidden=(8, 5), rollout=6, num_envs=4, epochs=2, minibatches=3, clip_value=True)
rng = np.random.default_rng(0)
M = 12


def make(spec=DISCRETE, config=CONFIG):
    agent = PPO(config, spec).agent()
    return agent, some_state(agent)


def rows(action):
    obs = np.float32(rng.normal(size=(M, 3)))
    log_prob, value, advantage, target = np.float32(rng.normal(size=(4, M)))
    return Record(obs=obs, action=action, log_prob=log_prob - 1, value=value, advantage=advantage, target=target)


def expected_loss(log_prob, entropy, value, batch):
    adv = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = np.exp(log_prob - batch.log_prob)
    policy = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv).mean()
    near = batch.value + np.clip(value - batch.value, -0.2, 0.2)
    value_loss = 0.5 * np.maximum((value - batch.target) ** 2, (near - batch.target) ** 2).mean()
    return policy + 0.5 * value_loss - 0.01 * entropy.mean()


def test_loss_with_choices_is_numpys():
    agent, state = make()
    batch = rows(rng.integers(0, 4, M).astype(np.int32))
    log_p = log_softmax(forward(state.params["actor"], batch.obs, np.tanh))
    value = forward(state.params["critic"], batch.obs, np.tanh)[:, 0]
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    loss, metrics = jax.jit(agent.learner.loss)(state.params, batch)
    expected = expected_loss(log_p[np.arange(M), batch.action], entropy, value, batch)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(entropy.mean(), rel=1e-4)


def test_loss_with_continuous_actions_is_numpys():
    agent, state = make(CONTINUOUS)
    batch = rows(np.float32(rng.normal(size=(M, 2))))
    mean = forward(state.params["actor"], batch.obs, np.tanh)
    log_std = np.float64(state.params["actor"]["params"]["log_std"])
    log_prob = (-0.5 * ((batch.action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    entropy = np.full(M, (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum())
    value = forward(state.params["critic"], batch.obs, np.tanh)[:, 0]
    loss, _ = jax.jit(agent.learner.loss)(state.params, batch)
    assert loss == pytest.approx(expected_loss(log_prob, entropy, value, batch), rel=1e-4)


def test_each_network_learns_from_its_own_part_of_the_loss():
    agent, state = make()
    batch = rows(rng.integers(0, 4, M).astype(np.int32))
    nets = dict(policy=agent.actor.policy, critic=agent.learner.critic)
    value_off = partial(ppo_loss, config=PPOConfig(value_coef=0.0), **nets)
    grads = jax.jit(jax.grad(lambda params: value_off(params, batch)[0]))(state.params)
    assert all((g == 0).all() for g in jax.tree.leaves(grads["critic"]))
    assert all((g != 0).any() for g in jax.tree.leaves(grads["actor"]))
    policy_off = partial(ppo_loss, config=PPOConfig(entropy_coef=0.0), **nets)
    flat = batch.replace(advantage=np.zeros(M, np.float32))
    grads = jax.jit(jax.grad(lambda params: policy_off(params, flat)[0]))(state.params)
    assert all((g == 0).all() for g in jax.tree.leaves(grads["actor"]))
    assert all((g != 0).any() for g in jax.tree.leaves(grads["critic"]))


def rollout(terminated, truncated):
    T, B = terminated.shape
    return Record(obs=np.float32(rng.normal(size=(T, B, 3))), action=rng.integers(0, 4, (T, B)).astype(np.int32),
                  log_prob=np.full((T, B), -1.4, np.float32), reward=np.float32(rng.normal(size=(T, B))),
                  terminated=terminated, done=terminated | truncated,
                  final_obs=np.float32(rng.normal(size=(T, B, 3))))


def test_rows_are_the_rollout_flattened_with_advantages_by_hand():
    agent, state = make()
    terminated, truncated = rng.random((2, 6, 4)) < 0.25
    batch = rollout(terminated, truncated)
    found = jax.jit(agent.learner.rows)(state.params, batch)
    value = forward(state.params["critic"], np.float64(batch.obs), np.tanh)[..., 0]
    next_value = forward(state.params["critic"], np.float64(batch.final_obs), np.tanh)[..., 0]
    advantage, later = np.zeros((6, 4)), np.zeros(4)
    for t in reversed(range(6)):
        delta = batch.reward[t] + 0.99 * np.where(terminated[t], 0, next_value[t]) - value[t]
        later = advantage[t] = delta + 0.99 * PPOConfig().gae_lambda * np.where(batch.done[t], 0, later)
    np.testing.assert_allclose(found.advantage, advantage.ravel(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.target, (advantage + value).ravel(), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.obs[4 + 2], batch.obs[1, 2])


def test_an_epoch_takes_every_row_once_and_steps_are_counted():
    """With a learning rate of 0 the parameters stay, and what the loss saw adds up to the whole rollout."""
    agent, state = make(config=PPOConfig(hidden=(8, 5), epochs=2, minibatches=3, learning_rate=0.0, anneal=False))
    seen = []
    agent.learner.loss = lambda params, rows: (jax.debug.callback(seen.append, rows.obs), agent.learner.critic.apply(
        params["critic"], rows.obs).mean() + agent.actor.policy.apply(params["actor"], rows.obs).log_p.mean())[1:] * 2
    batch = rollout(np.zeros((6, 4), bool), np.zeros((6, 4), bool))
    new, _ = jax.jit(agent.learner.learn)(state, jax.random.key(1), batch)
    jax.effects_barrier()
    assert [x.shape for x in seen] == [(8, 3)] * 6
    for epoch in (seen[:3], seen[3:]):
        rows = np.concatenate(epoch)
        np.testing.assert_array_equal(np.sort(rows[:, 0]), np.sort(batch.obs.reshape(-1, 3)[:, 0]))
    assert not np.array_equal(seen[0], seen[3])
    counts = [x for x in jax.tree.leaves(new.opt) if x.dtype == jnp.int32]
    assert [int(c) for c in counts] == [6]
    jax.tree.map(np.testing.assert_array_equal, new.params, state.params)


def test_the_learning_rate_anneals_to_nothing_over_the_training():
    config = PPOConfig(hidden=(4,), rollout=6, num_envs=4, epochs=1, minibatches=1, total_steps=48, anneal=True)
    agent, state = make(config=config)
    batch = rollout(np.zeros((6, 4), bool), np.zeros((6, 4), bool))
    learn = jax.jit(agent.learner.learn)
    moved = []
    for number in range(3):  # 48 steps are 2 updates; the third is one too many
        new, _ = learn(state, jax.random.key(number), batch)
        apart = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - b).max(), new.params, state.params)
        moved.append(max(jax.tree.leaves(apart)))
        state = new
    assert moved[0] > 1e-4 and moved[2] == 0.0


def test_the_actor_needs_the_policys_weights_alone():
    agent, state = make()
    weights = agent.learner.weights(state)
    assert weights is state.params["actor"]
    out = jax.jit(agent.actor.act)(weights, jax.random.key(0), jnp.zeros((5, 3)))
    log_p = log_softmax(forward(weights, np.zeros((5, 3)), np.tanh))
    np.testing.assert_allclose(out.log_prob, log_p[np.arange(5), out.action], rtol=1e-4)
    np.testing.assert_array_equal(agent.actor.exploit(weights, None, jnp.zeros((5, 3))).action, log_p.argmax(-1))
