"""DQN's loss against NumPy, its target network, and its exploration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_nets import DISCRETE, forward, relu, some_state

from msrl.algorithms.dqn import DQN, DQNConfig
from msrl.api import Record

rng = np.random.default_rng(0)
M = 20


def batch():
    obs, next_obs = np.float32(rng.normal(size=(2, M, 3)))
    return Record(obs=obs, action=rng.integers(0, 4, M).astype(np.int32), reward=np.float32(rng.normal(size=M) * 3),
                  terminated=rng.random(M) < 0.3, next_obs=next_obs)


def make(**fields):
    agent = DQN(DQNConfig(hidden=(8, 5), batch_size=M, **fields), DISCRETE).agent()
    return agent, some_state(agent)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("delta", [0.5, 100.0])
def test_loss_is_numpys(double, delta):
    agent, state = make(double=double, huber_delta=delta)
    target, rows = state.extra["target"], batch()
    q, q_next = forward(state.params, rows.obs, relu), forward(target, rows.next_obs, relu)
    chooser = forward(state.params, rows.next_obs, relu) if double else q_next
    goal = rows.reward + 0.99 * ~rows.terminated * q_next[np.arange(M), chooser.argmax(-1)]
    error = np.abs(goal - q[np.arange(M), rows.action])
    expected = np.where(error < delta, 0.5 * error**2, delta * (error - 0.5 * delta)).mean()
    assert jax.jit(agent.learner.loss)(state.params, target, rows)[0] == pytest.approx(expected, rel=1e-4)


def test_no_gradient_reaches_the_target_or_flows_through_the_goal():
    agent, state = make()
    rows, target = batch(), state.extra["target"]
    into_target = jax.jit(jax.grad(lambda t: agent.learner.loss(state.params, t, rows)[0]))(target)
    assert all((g == 0).all() for g in jax.tree.leaves(into_target))
    # Where the networks' next values cannot matter, the gradient is the same function of the error:
    ended = rows.replace(terminated=np.ones(M, bool))
    elsewhere = ended.replace(next_obs=ended.next_obs + 1)
    grad = jax.jit(jax.grad(lambda p, r: agent.learner.loss(p, target, r)[0]))
    jax.tree.map(np.testing.assert_array_equal, grad(state.params, ended), grad(state.params, elsewhere))
    assert all((g != 0).any() for g in jax.tree.leaves(grad(state.params, rows)))


def test_the_target_is_copied_every_so_often():
    agent, state = make(target_every=3, tau=1.0)
    learn, rows, first = jax.jit(agent.learner.learn), batch(), state.extra["target"]
    for number in range(1, 7):
        state, _ = learn(state, jax.random.key(0), rows)
        if number < 3:
            jax.tree.map(np.testing.assert_array_equal, state.extra["target"], first)
        if number in (3, 6):
            jax.tree.map(partial_close, state.extra["target"], state.params)
        if number == 4:
            apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.extra["target"], state.params)
            assert min(jax.tree.leaves(apart)) > 0
    assert int(state.extra["learnt"]) == 6


def partial_close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_target_follows_slowly():
    agent, state = make(target_every=1, tau=0.1)
    new, _ = jax.jit(agent.learner.learn)(state, jax.random.key(0), batch())
    expected = jax.tree.map(lambda t, p: 0.9 * t + 0.1 * p, state.extra["target"], new.params)
    jax.tree.map(partial_close, new.extra["target"], expected)


def test_dueling_values_have_the_mean_of_the_states_value():
    agent, state = make(dueling=True)
    params = state.params["params"]
    obs = np.float32(rng.normal(size=(7, 3)))
    features = obs
    for layer in ("Dense_0", "Dense_1"):
        features = relu(features @ params["Torso_0"][layer]["kernel"] + params["Torso_0"][layer]["bias"])
    value = features @ params["value"]["kernel"] + params["value"]["bias"]
    q = agent.actor.network.apply(state.params, obs)
    assert q.shape == (7, 4)
    np.testing.assert_allclose(q.mean(-1), value[:, 0], rtol=1e-4, atol=1e-5)


def test_epsilon_is_the_part_of_actions_that_is_random():
    agent, state = make()
    obs = jnp.broadcast_to(jnp.array([0.5, -1.0, 2.0]), (20_000, 3))
    greedy = agent.actor.exploit(state.params, None, obs[:1]).action[0]
    for epsilon, same in ((0.0, 1.0), (0.4, 0.7), (1.0, 0.25)):  # a random action is the greedy one in 1 of 4
        action = jax.jit(agent.actor.act)(state.params, jax.random.key(3), obs, epsilon).action
        assert action.dtype == jnp.int32
        assert (action == greedy).mean() == pytest.approx(same, abs=0.015)


def test_a_warm_up_fills_a_batch_and_counts_towards_the_total():
    config = DQNConfig(total_steps=1000, num_envs=8, warmup=0, batch_size=100)
    assert (config.warmup_iterations, config.iterations) == (13, 112)
