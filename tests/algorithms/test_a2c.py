"""A2C's loss against NumPy, where its gradients go, and the one step that `learn` takes."""

from functools import partial

import jax
import numpy as np
import pytest
from plain_nets import CONTINUOUS, DISCRETE, MULTI, forward, log_softmax, some_rollout, some_state

from msrl.algorithms.a2c import A2C, A2CConfig, a2c_loss
from msrl.api import Box, Env, EnvSpec
from msrl.envs.wrappers import NormaliseObs, NormaliseReward, ScaleActions

CONFIG = A2CConfig(hidden=(8, 5), gae_lambda=0.9, value_coef=0.3, entropy_coef=0.02)


def make(spec=DISCRETE, config=CONFIG):
    agent = A2C(config, spec).agent()
    return agent, some_state(agent)


def advantages(state, batch):
    """(advantage, value), both (T, B), by going backwards in time."""
    value, next_value = (forward(state.params["critic"], np.float64(x), np.tanh)[..., 0]
                         for x in (batch.obs, batch.final_obs))
    advantage, later = np.zeros_like(value), np.zeros_like(value[0])
    for t in reversed(range(len(value))):
        delta = batch.reward[t] + 0.99 * np.where(batch.terminated[t], 0, next_value[t]) - value[t]
        later = advantage[t] = delta + 0.99 * 0.9 * np.where(batch.done[t], 0, later)
    return advantage, value


def check(spec, batch, log_prob, entropy):
    agent, state = make(spec)
    advantage, _ = advantages(state, batch)
    loss, metrics = jax.jit(agent.learner.loss)(state.params, batch)
    policy, value = -(log_prob * advantage).mean(), 0.5 * (advantage**2).mean()  # the target is value + advantage
    found = [metrics[name] for name in ("policy_loss", "value_loss", "entropy", "loss")]
    np.testing.assert_allclose(found, [policy, value, entropy, policy + 0.3 * value - 0.02 * entropy], rtol=1e-4)
    assert loss == metrics["loss"]


def test_loss_with_choices_is_numpys():
    batch = some_rollout(DISCRETE)
    log_p = log_softmax(forward(make()[1].params["actor"], np.float64(batch.obs), np.tanh))
    chosen = np.take_along_axis(log_p, batch.action[..., None], -1)[..., 0]
    check(DISCRETE, batch, chosen, -(np.exp(log_p) * log_p).sum(-1).mean())


def test_loss_with_several_choices_is_numpys():
    batch = some_rollout(MULTI)
    logits = forward(make(MULTI)[1].params["actor"], np.float64(batch.obs), np.tanh)
    parts = [log_softmax(logits[..., :3]), log_softmax(logits[..., 3:])]
    chosen = sum(np.take_along_axis(p, batch.action[..., i, None], -1)[..., 0] for i, p in enumerate(parts))
    check(MULTI, batch, chosen, sum(-(np.exp(p) * p).sum(-1).mean() for p in parts))


def test_loss_with_continuous_actions_is_numpys():
    batch, params = some_rollout(CONTINUOUS), make(CONTINUOUS)[1].params["actor"]
    mean, log_std = forward(params, np.float64(batch.obs), np.tanh), np.float64(params["params"]["log_std"])
    density = -0.5 * ((batch.action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    check(CONTINUOUS, batch, density.sum(-1), (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum())


def test_each_network_learns_from_its_own_part_of_the_loss():
    agent, state = make()
    batch = some_rollout(DISCRETE)
    nets = dict(policy=agent.actor.policy, critic=agent.learner.critic)

    def grads(**config):
        loss = partial(a2c_loss, config=A2CConfig(gae_lambda=0.9, **config), **nets)
        return jax.jit(jax.grad(lambda params: loss(params, batch)[0]))(state.params)

    value_off = grads(value_coef=0.0)
    assert all((g == 0).all() for g in jax.tree.leaves(value_off["critic"]))
    assert all((g != 0).any() for g in jax.tree.leaves(value_off["actor"]))
    # Were the targets not constants, the last bias would also be pulled through them.
    bias = grads(value_coef=0.3)["critic"]["params"]["output"]["bias"]
    np.testing.assert_allclose(bias, [-0.3 * advantages(state, batch)[0].mean()], rtol=1e-4)


def test_a_rollout_is_one_step_of_rmsprop_on_all_of_it():
    config = A2CConfig(hidden=(8, 5), learning_rate=0.1, anneal=False, decay=0.9, epsilon=1e-3, max_grad_norm=0.2)
    agent, state = make(config=config)
    batch, learner = some_rollout(DISCRETE), agent.learner
    handed = []
    learner.apply_gradients = lambda *args: (handed.append(args), type(learner).apply_gradients(learner, *args))[1]

    def learn(state):
        new, _ = learner.learn(state, jax.random.key(0), batch)
        (optimiser, *rest), = handed  # once, and nothing else changes the parameters
        assert optimiser is learner.optimiser
        return new, *rest

    new, params, opt, grads = jax.jit(learn)(state)
    jax.tree.map(np.testing.assert_array_equal, (params, opt), (state.params, state.opt))
    for name in ("actor", "critic"):
        norm = np.sqrt(sum((np.float64(g) ** 2).sum() for g in jax.tree.leaves(grads[name])))
        assert norm > 0.2  # or else nothing would be seen of the cut

        def step(old, g, norm=norm):
            g = np.float64(g) * 0.2 / norm
            return old - 0.1 * g / np.sqrt(0.1 * g**2 + 1e-3)

        expected = jax.tree.map(step, state.params[name], grads[name])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), new.params[name], expected)


def test_the_learning_rate_anneals_to_nothing_over_the_training():
    config = A2CConfig(hidden=(4,), rollout=6, num_envs=4, total_steps=48)
    agent, state = make(config=config)
    learn, batch, moved = jax.jit(agent.learner.learn), some_rollout(DISCRETE), []
    for number in range(3):  # 48 steps are 2 updates; the third is one too many
        new, _ = learn(state, jax.random.key(number), batch)
        apart = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - b).max(), new.params, state.params)
        moved.append(max(jax.tree.leaves(apart)))
        state = new
    assert moved[0] > 1e-4 and moved[1] > 1e-4 and moved[2] == 0.0


class Blank(Env):
    """An environment of which nobody asks more than its spec."""

    init = reset = step = None

    def __init__(self, action):
        self.spec = EnvSpec("blank", Box((3,)), action)


@pytest.mark.parametrize("action, config, wrappers", [
    (Box((2,), -3.0, 3.0), A2CConfig(), [ScaleActions]),
    (Box((2,)), A2CConfig(), []),
    (DISCRETE.action, A2CConfig(normalise_obs=True), [NormaliseObs]),
    (Box((2,), -3.0, 3.0), A2CConfig(normalise_obs=True, normalise_reward=True),
     [NormaliseReward, NormaliseObs, ScaleActions]),
])
def test_the_environment_is_wrapped_as_the_configuration_asks(action, config, wrappers):
    env, found = A2C.wrap(Blank(action), config), []
    while not isinstance(env, Blank):
        found.append(type(env))
        env = env.env
    assert found == wrappers
