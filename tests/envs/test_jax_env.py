"""What holds for every JAX environment, from one table, and what the base class promises to an author."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api.env import EnvSpec
from msrl.api.spaces import Box, Discrete
from msrl.envs.acrobot import Acrobot
from msrl.envs.cartpole import CartPole
from msrl.envs.jax_env import JaxEnv, JaxEnvState
from msrl.envs.mountain_car import MountainCar
from msrl.envs.pendulum import Pendulum
from msrl.envs.simple_spread import SimpleSpread
from msrl.envs.simple_tag import SimpleTag
from msrl.errors import EnvError

ENVS = [CartPole(), Acrobot(), MountainCar(), Pendulum(), SimpleSpread(), SimpleTag(num_good=2)]
everyone = pytest.mark.parametrize("env", ENVS, ids=lambda env: f"{env.spec.id}-{len(env.spec.agents) or 1}")
KEY = jax.random.key(0)
B = 6


def form(tree):
    """Structure, shapes, dtypes and weakness of types."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype, x.weak_type) for x in leaves]


def random_action(env, key):
    space = env.spec.action
    shape = env.spec.batch(space, B)
    if isinstance(space, Discrete):
        return jax.random.randint(key, shape, 0, space.n)
    return jax.random.uniform(key, shape, minval=space.low, maxval=space.high)


# The environment is static, so that each is compiled once for all tests.
reset_all = partial(jax.jit, static_argnums=0)(lambda env, key: env.reset(env.init(key, B), key))
step_all = partial(jax.jit, static_argnums=0)(lambda env, state, action, key: env.step(state, action, key))


def rollout(env, seed):
    """30 steps from a reset: the last state, the first observations and the Steps."""
    state, obs = reset_all(env, jax.random.key(seed))
    steps = []
    for key in jax.random.split(jax.random.key(seed), 30):
        state, step = step_all(env, state, random_action(env, key), key)
        steps.append(step)
    return state, obs, steps


@everyone
def test_the_form_of_the_state_is_fixed_and_shapes_are_the_specs(env):
    key, action = jax.eval_shape(lambda: KEY), jax.eval_shape(lambda: random_action(env, KEY))
    first = jax.eval_shape(lambda k: env.init(k, B), key)
    reset, obs = jax.eval_shape(env.reset, first, key)
    stepped, step = jax.eval_shape(env.step, first, action, key)
    assert form(first) == form(reset) == form(stepped)
    assert form(obs) == form(env.obs_shape(B))
    assert form(step) == form(env.step_shape(B))
    assert not any(weak for _, _, weak in form((first, step))[1])
    assert action.dtype == env.spec.action.dtype


@everyone
def test_compiled_is_as_not_compiled(env):
    state, obs = env.reset(env.init(KEY, B), KEY)
    jit_state, jit_obs = reset_all(env, KEY)
    np.testing.assert_allclose(obs, jit_obs, atol=1e-6)
    # Half of them one step from the limit: some reset and some do not.
    late = jnp.arange(B, dtype=jnp.int32) % 2 * (env.spec.max_episode_steps - 1)
    action = random_action(env, KEY)
    plain = env.step(state.replace(steps=late), action, KEY)
    compiled = step_all(env, jit_state.replace(steps=late), action, KEY)
    assert form(plain) == form(compiled)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), plain, compiled)


@everyone
def test_the_key_decides_and_nothing_else(env):
    state, obs, steps = rollout(env, 1)
    jax.tree.map(np.testing.assert_array_equal, (state, obs, steps), rollout(env, 1))
    _, other_obs, other_steps = rollout(env, 2)
    assert not np.array_equal(obs, other_obs) and not np.array_equal(steps[-1].obs, other_steps[-1].obs)


@everyone
def test_starts_differ_between_environments_keys_and_hooks(env):
    for make in (lambda key: env.reset_batch(key, B), lambda key: jax.vmap(env.reset_one)(jax.random.split(key, B))):
        one, two = (np.asarray(jax.vmap(env.observe)(make(jax.random.key(k)))).reshape(B, -1) for k in (1, 2))
        assert len(np.unique(np.concatenate([one, two]), axis=0)) == 2 * B


@everyone
def test_an_episode_ends_at_the_limit_and_the_next_begins_in_the_same_step(env):
    limit = env.spec.max_episode_steps
    state, _ = reset_all(env, KEY)
    state = state.replace(steps=jnp.array([0, limit - 2, limit - 1] * (B // 3), jnp.int32))
    action = random_action(env, KEY)
    expected = jax.jit(jax.vmap(lambda *args: env.observe(env.step_one(*args)[0])))(
        state.inner, action, jax.random.split(KEY, B)
    )
    last = np.array([False, False, True] * (B // 3))
    state, step = step_all(env, state, action, jax.random.key(9))

    np.testing.assert_array_equal(step.truncated, last)
    np.testing.assert_array_equal(step.terminated, False)
    np.testing.assert_array_equal(step.done, last)
    np.testing.assert_array_equal(state.steps, [1, limit - 1, 0] * (B // 3))
    np.testing.assert_allclose(step.final_obs, expected, rtol=1e-5, atol=1e-5)
    # obs is of the state that goes on: the true one, or a new start, which is each environment's own.
    np.testing.assert_allclose(step.obs, jax.vmap(env.observe)(state.inner), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(step.obs[~last], step.final_obs[~last])
    obs, final_obs = np.array(step.obs[last]), np.array(step.final_obs[last])
    assert (obs != final_obs).reshape(B // 3, -1).any(1).all() and not np.array_equal(obs[0], obs[1])
    # A second step one later ends the others, and no sooner.
    _, step = step_all(env, state, action, jax.random.key(10))
    np.testing.assert_array_equal(step.truncated, [False, True, False] * (B // 3))


@everyone
def test_shards_under_vmap_are_as_shards_alone(env):
    keys, action = jax.random.split(KEY, 2), random_action(env, KEY)
    states = jax.tree.map(lambda *x: jnp.stack(x), *(reset_all(env, key)[0] for key in keys))
    # All of the first shard's episodes end, and none of the second's: both sides of the branch.
    steps = jnp.stack([jnp.full(B, env.spec.max_episode_steps - 1, jnp.int32), jnp.zeros(B, jnp.int32)])
    states = states.replace(steps=steps)
    together = jax.jit(jax.vmap(env.step, (0, None, 0)))(states, action, keys)
    alone = [step_all(env, jax.tree.map(lambda x, i=i: x[i], states), action, keys[i]) for i in range(2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), together, stacked)


def test_shards_and_seeds_that_end_at_different_times_share_one_branch():
    """Under vmap a branch whose condition differs is a choice, of which both sides are computed in every step."""
    env, pole = CartPole(), jnp.zeros((3, 2, B, 4)).at[1, 0, 4, 2].set(0.3)  # of 3 seeds and 2 shards, one pole fell
    state = JaxEnvState(inner=pole, steps=jnp.zeros((3, 2, B), jnp.int32))
    keys, action = jax.random.split(KEY, (3, 2)), jnp.ones((3, 2, B), jnp.int32)
    several = jax.vmap(jax.vmap(env.step))
    assert "cond[" in str(jax.make_jaxpr(several)(state, action, keys))
    found, step = jax.jit(several)(state, action, keys)
    assert np.flatnonzero(step.terminated).tolist() == [(1 * 2 + 0) * B + 4]
    for seed in range(3):
        for shard in range(2):
            one = step_all(env, jax.tree.map(lambda x, at=(seed, shard): x[at], state), action[seed, shard],
                           keys[seed, shard])
            jax.tree.map(np.testing.assert_array_equal, one,
                         jax.tree.map(lambda x, at=(seed, shard): x[at], (found, step)))


def test_environments_of_equal_settings_are_equal():
    assert SimpleSpread(4) == SimpleSpread(4) != SimpleSpread(5) and hash(CartPole()) == hash(CartPole())


@dataclass(frozen=True)
class Walk(JaxEnv):
    """A noisy walk without a time limit, written as carelessly as the base class allows: weak types throughout."""

    spec = EnvSpec(id="Walk", observation=Box(shape=(1,)), action=Discrete(2))
    grown: bool = False  # whether a step turns the count into a float

    def reset_one(self, key):
        return {"place": 0.0 * jax.random.bits(key).astype(float), "count": jnp.asarray(0)}

    def observe(self, state):
        return jnp.where(state["count"] > 0, state["place"], 0.0)[None]

    def step_one(self, state, action, key):
        place = state["place"] + jax.random.normal(key) + (action - action)
        count = state["count"] + (1.5 if self.grown else 1)
        return {"place": place, "count": count}, 1 * (place > 0), place > 2


def test_steps_of_a_random_environment_differ_and_it_may_have_no_limit():
    env = Walk()
    action = jnp.zeros(B, jnp.int32)
    state = env.init(KEY, B)
    after, step = step_all(env, state, action, KEY)
    assert form(state) == form(after) and form(step) == form(env.step_shape(B))
    assert not any(weak for _, _, weak in form((state, step))[1])
    assert len(np.unique(step.final_obs)) == B
    late = state.replace(steps=jnp.full(B, 10**6, jnp.int32))
    _, step = step_all(env, late, action, KEY)
    np.testing.assert_array_equal(step.truncated, False)
    np.testing.assert_array_equal(step.terminated, step.final_obs[:, 0] > 2)


def test_a_state_that_changes_its_form_is_refused():
    env = Walk(grown=True)
    with pytest.raises(EnvError) as error:
        env.step(env.init(KEY, 2), jnp.zeros(2, jnp.int32), KEY)
    assert str(error.value) == """Walk.step_one changes the form of its state.
It was given {'count': 'int32[2]', 'place': 'float32[2]'} and returned {'count': 'float32[2]', 'place': 'float32[2]'}, \
and a loop can only carry a state whose form is fixed.
Return the same structure, shapes and dtypes that reset_one makes."""


def test_reset_starts_over():
    env = CartPole()
    state = JaxEnvState(inner=jnp.full((B, 4), 2.0), steps=jnp.full(B, 499, jnp.int32))
    state, obs = env.reset(state, KEY)
    np.testing.assert_array_equal(state.steps, 0)
    assert (jnp.abs(obs) <= 0.05).all()
