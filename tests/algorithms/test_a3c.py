"""A3C: what sets it apart from A2C, the returns of the paper, and gradients that can be taken in one place and applied
in another."""

import dataclasses

import jax
import numpy as np
from plain_nets import DISCRETE, forward, log_softmax, some_rollout, some_state

from msrl.algorithms.a2c import A2C
from msrl.algorithms.a3c import A3C, A3CConfig

CONFIG = A3CConfig(hidden=(8, 5), anneal=False)


def make():
    agent = A3C(CONFIG, DISCRETE).agent()
    return agent.learner, some_state(agent)


def test_it_differs_from_a2c_in_these_defaults_alone():
    a2c, a3c = (dataclasses.asdict(each.Config()) for each in (A2C, A3C))
    assert {name for name in a3c if a3c[name] != a2c[name]} == {"num_envs", "rollout", "learning_rate"}
    assert (A3CConfig().rollout, A3CConfig().num_envs, A3CConfig().gae_lambda) == (5, 16, 1.0)
    assert A3C.train is A2C.train and A3C.learner is A2C.learner


def test_returns_are_the_papers():
    """R is 0 after a terminal state and V(s) after any other end; going back, R becomes r + gamma R. The losses are
    -log pi (R - V) and half of (R - V) squared."""
    learner, state = make()
    batch = some_rollout(DISCRETE)
    value, next_value = (forward(state.params["critic"], np.float64(x), np.tanh)[..., 0]
                         for x in (batch.obs, batch.final_obs))
    steps, envs = value.shape
    returns = np.zeros((steps, envs))
    for b in range(envs):
        for t in reversed(range(steps)):
            goes_on = t + 1 < steps and not batch.done[t, b]
            after = returns[t + 1, b] if goes_on else 0.0 if batch.terminated[t, b] else next_value[t, b]
            returns[t, b] = batch.reward[t, b] + 0.99 * after
    log_p = log_softmax(forward(state.params["actor"], np.float64(batch.obs), np.tanh))
    chosen = np.take_along_axis(log_p, batch.action[..., None], -1)[..., 0]
    _, metrics = jax.jit(learner.loss)(state.params, batch)
    np.testing.assert_allclose([metrics["policy_loss"], metrics["value_loss"]],
                               [-(chosen * (returns - value)).mean(), 0.5 * ((returns - value) ** 2).mean()], rtol=1e-4)


def test_gradients_of_several_are_applied_one_by_one_to_shared_parameters():
    """Two learners look at the same parameters; each applies its gradient to whatever the parameters are by then. The
    gradient owes nothing to the optimiser's state, and that state is one for both, as in the paper."""
    learner, state = make()
    batches = [some_rollout(DISCRETE, seed) for seed in (0, 1)]
    taken = []

    def apply(optimiser, params, opt, grads):
        taken.append(grads)
        return params, opt

    apply_for_good, learner.apply_gradients = learner.apply_gradients, apply
    other_opt = state.replace(opt=jax.tree.map(lambda x: x + 1, state.opt))
    for each in (state, other_opt):
        for batch in batches:
            learner.learn(each, jax.random.key(0), batch)
    jax.tree.map(np.testing.assert_array_equal, taken[:2], taken[2:])
    params, opt = state.params, state.opt
    for grads in taken[:2]:
        params, opt = apply_for_good(learner.optimiser, params, opt, grads)
    alone, _ = apply_for_good(learner.optimiser, state.params, state.opt, taken[1])
    first, _ = apply_for_good(learner.optimiser, state.params, state.opt, taken[0])
    # The second step is shorter than it would be alone: the mean square already holds the first gradient.
    length = [np.sqrt(sum(np.sum((np.asarray(a) - b) ** 2) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y))))
              for x, y in ((params, first), (alone, state.params))]
    assert 0 < length[0] < length[1]
