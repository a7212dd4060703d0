"""SAC's three losses against NumPy, and what each of them may move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_nets import CONTINUOUS, forward, relu, some_state

from msrl.algorithms.sac import SAC, SACConfig, actor_loss, alpha_loss, critic_loss
from msrl.api import Record

rng = np.random.default_rng(0)
M = 16
CONFIG = SACConfig(hidden=(8, 5), batch_size=M)


@pytest.fixture(scope="module")
def world():
    agent = SAC(CONFIG, CONTINUOUS).agent()
    state = some_state(agent)
    state.params["log_alpha"] *= 0
    obs, next_obs = np.float32(rng.normal(size=(2, M, 3)))
    batch = Record(obs=obs, action=np.float32(rng.uniform(-1, 1, (M, 2))), reward=np.float32(rng.normal(size=M)),
                   terminated=rng.random(M) < 0.3, next_obs=next_obs)
    return agent, state, batch


def q_values(variables, obs, action):
    """(2, M): the layers of the first critic are named before those of the second."""
    x, params = np.concatenate([obs, action], -1), variables["params"]
    nets = [{"params": {f"Dense_{i}": params[f"Dense_{i}"] for i in part}} for part in ((0, 1, 2), (3, 4, 5))]
    return np.stack([forward(net, x, relu)[:, 0] for net in nets])


def test_critic_loss_is_numpys(world):
    agent, state, batch = world
    next_action, next_log_prob = np.float32(rng.uniform(-1, 1, (M, 2))), np.float32(rng.normal(size=M))
    soft = q_values(state.extra["target"], batch.next_obs, next_action).min(0) - 0.3 * next_log_prob
    goal = batch.reward + 0.99 * ~batch.terminated * soft
    q = q_values(state.params["critic"], batch.obs, batch.action)
    expected = 0.5 * ((q[0] - goal) ** 2).mean() + 0.5 * ((q[1] - goal) ** 2).mean()
    loss, mean = critic_loss(state.params["critic"], state.extra["target"], jnp.float32(0.3), next_action,
                             next_log_prob, batch, critics=agent.learner.critics, config=CONFIG)
    assert loss == pytest.approx(expected, rel=1e-4) and mean == pytest.approx(q.mean(), rel=1e-4)


def test_actor_loss_is_numpys(world):
    agent, state, batch = world
    key = jax.random.key(5)
    mean, log_std = np.split(forward(state.params["actor"], batch.obs, relu), 2, -1)
    log_std = np.clip(log_std, -5, 2)
    noise = np.float64(jax.random.normal(key, (M, 2)))
    raw = mean + np.exp(log_std) * noise
    log_prob = (-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
    q = q_values(state.params["critic"], batch.obs, np.tanh(raw)).min(0)
    loss, entropy = actor_loss(state.params["actor"], state.params["critic"], jnp.float32(0.3), key, batch,
                               actor=agent.actor, critics=agent.learner.critics)
    assert loss == pytest.approx((0.3 * log_prob - q).mean(), rel=1e-3)
    assert entropy == pytest.approx(-log_prob.mean(), rel=1e-3)


def test_the_critics_goal_passes_no_gradient_on(world):
    agent, state, batch = world
    action, log_prob = jnp.zeros((M, 2)), jnp.zeros(M)
    grads = jax.grad(lambda *inputs: critic_loss(state.params["critic"], *inputs, batch, critics=agent.learner.critics,
                                                 config=CONFIG)[0], argnums=(0, 1, 2, 3))(
        state.extra["target"], jnp.float32(0.3), action, log_prob)
    assert all((g == 0).all() for g in jax.tree.leaves(grads))


def test_temperature_rises_while_the_entropy_is_too_low():
    slope = jax.grad(alpha_loss)
    assert slope(jnp.float32(0.0), jnp.float32(-5.0), target=-2.0) < 0  # descent raises it
    assert slope(jnp.float32(0.0), jnp.float32(1.0), target=-2.0) > 0
    assert jax.grad(alpha_loss, argnums=1)(jnp.float32(1.0), jnp.float32(0.0), target=-2.0) == 0


def test_learning_takes_one_step_with_each_optimiser_and_drags_the_target(world):
    agent, state, batch = world
    taken = []

    class Watched(type(agent.learner)):
        def apply_gradients(self, optimiser, params, opt, grads):
            taken.append(jax.tree.structure(params))
            return super().apply_gradients(optimiser, params, opt, grads)

    learner = Watched(agent.actor, agent.learner.critics, agent.learner.obs, agent.learner.action, CONFIG)
    new, metrics = jax.jit(learner.learn)(state, jax.random.key(1), batch)
    assert taken == [jax.tree.structure(state.params[name]) for name in ("critic", "actor", "log_alpha")]
    moved = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - b).max(), new.params, state.params)
    assert min(jax.tree.leaves(moved)) > 0 and max(jax.tree.leaves(moved)) < 2e-3  # Adam's first step is its rate
    expected = jax.tree.map(lambda t, p: t + 0.005 * (p - t), state.extra["target"], new.params["critic"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), new.extra["target"], expected)
    assert metrics["alpha"] == pytest.approx(1.0)


def test_warm_up_actions_are_uniform_and_the_rest_the_policys(world):
    agent, state, _ = world
    obs, weights, key = jnp.zeros((20_000, 3)), agent.learner.weights(state), jax.random.key(2)
    act = jax.jit(agent.actor.act)
    anything = np.asarray(act(weights, key, obs, True).action)
    assert np.abs(anything).max() <= 1 and np.abs(anything.mean(0)).max() < 0.02
    assert anything.std(0) == pytest.approx(np.full(2, 3**-0.5), abs=0.01)
    mean, log_std = np.split(forward(weights, np.zeros((1, 3)), relu), 2, -1)
    chosen = np.asarray(act(weights, key, obs, False).action)
    assert np.arctanh(chosen).mean(0) == pytest.approx(mean[0], abs=0.03)
    assert np.arctanh(chosen).std(0) == pytest.approx(np.exp(log_std[0]), rel=0.03)
    np.testing.assert_allclose(agent.actor.exploit(weights, None, obs[:1]).action, np.tanh(mean), rtol=1e-4, atol=1e-6)
