"""What every environment keeps to, bare or wrapped: shapes and dtypes of the spec, determinism by key, auto-reset."""

import importlib.util

import jax
import numpy as np
import pytest

from msrl import envs
from msrl.api.spaces import Box, Discrete
from msrl.envs.wrappers import EpisodeStats, FrameStack, NormaliseObs, NormaliseReward, ScaleActions, stats
from tests.envs import toys

toys.register()
B, T = 4, 60
NAMES = [
    *(f"jax:{name}" for name in envs.JAX), "gymnasium:CartPole-v1", "gymnasium:HalfCheetah-v5",
    "gymnasium:msrl/Counter-v0", "gymnasium:msrl/Pixels-v0", "gymnasium:msrl/Rooms-v0", "gymnasium:msrl/DoubleRooms-v0",
    "envpool:CartPole-v1", "envpool:HalfCheetah-v4", "pettingzoo:mpe2.simple_spread_v3",
    "pettingzoo:mpe2.simple_tag_v3",
]
WRAPPED = {
    "all(gymnasium:Pendulum-v1)": lambda: everything(envs.make("gymnasium:Pendulum-v1")),
    "all(envpool:HalfCheetah-v4)": lambda: everything(envs.make("envpool:HalfCheetah-v4")),
    "all(jax:Pendulum-v1)": lambda: everything(envs.make("jax:Pendulum-v1")),
    "stack(pixels)": lambda: FrameStack(envs.make("gymnasium:msrl/Pixels-v0"), 4),
    "normalise(pixels)": lambda: NormaliseObs(envs.make("gymnasium:msrl/Pixels-v0")),
    "normalise(spread)": lambda: NormaliseObs(NormaliseReward(envs.make("pettingzoo:mpe2.simple_spread_v3"))),
}


def everything(env):
    return FrameStack(NormaliseReward(NormaliseObs(ScaleActions(EpisodeStats(env)))), 2)


def built(label):
    """Whether the JAX environment that a label names, if it does, is there."""
    name = label.partition("jax:")[2].rstrip(")")
    return not name or importlib.util.find_spec(envs.JAX[name][0].partition(":")[0]) is not None


LABELS = [pytest.param(label, marks=() if built(label) else pytest.mark.skip("its module is not there"))
          for label in [*NAMES, *WRAPPED]]
every_env = pytest.mark.parametrize("label", LABELS)


@pytest.fixture
def env(label):
    env = WRAPPED[label]() if label in WRAPPED else envs.make(label)
    yield env
    env.close()


def actions(env, num_envs=B, steps=T):
    """Random actions of the space, the same ones every time."""
    random, space = np.random.default_rng(0), env.spec.action
    shape = (steps, *env.spec.batch(space, num_envs))
    if isinstance(space, Box):
        low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 1.0)
        return random.uniform(low, high, shape).astype(space.dtype)
    return random.integers(0, space.n if isinstance(space, Discrete) else space.nvec, shape).astype(space.dtype)


def run(env, key, num_envs=B, steps=T):
    """(state, first observations, steps stacked to (T, B, ...)) as NumPy."""
    step = jax.jit(env.step) if env.traceable else env.step
    state, first = env.reset(env.init(jax.random.fold_in(key, 0), num_envs), jax.random.fold_in(key, 1))
    out = []
    for t, action in enumerate(actions(env, num_envs, steps)):
        state, one = step(state, action, jax.random.fold_in(key, 2 + t))
        out.append(one)
    return state, np.asarray(first), jax.tree.map(lambda *xs: np.stack(xs), *out)


def form(tree):
    return jax.tree.map(lambda x: (tuple(x.shape), np.dtype(x.dtype)), tree)


@every_env
def test_shapes_and_dtypes_are_the_specs(env):
    _, first, steps = run(env, jax.random.key(0))
    assert form(first) == form(env.obs_shape(B))
    assert jax.tree.map(lambda x: (x.shape[1:], x.dtype), steps) == form(env.step_shape(B))
    assert hash(env.spec) == hash(env.spec)  # specs are compared and used as keys
    space = env.spec.observation
    if isinstance(space, Box):
        # float32 rounds some bounds outwards, π in the pendulum's for one.
        assert (steps.final_obs >= np.asarray(space.low) - 1e-5).all()
        assert (steps.final_obs <= np.asarray(space.high) + 1e-5).all()
    else:
        n = space.n if isinstance(space, Discrete) else np.array(space.nvec)
        assert (steps.obs >= 0).all() and (steps.obs < n).all()


@every_env
def test_host_environments_speak_numpy_and_jax_ones_jax(env):
    key = jax.random.key(0)
    state, obs = env.reset(env.init(key, 2), key)
    _, step = env.step(state, actions(env, 2, 1)[0], key)
    kind = jax.Array if env.traceable else np.ndarray
    assert all(isinstance(leaf, kind) for leaf in jax.tree.leaves((obs, step)))


@every_env
def test_equal_keys_give_equal_runs(env):
    _, first, steps = run(env, jax.random.key(3))
    _, first_again, steps_again = run(env, jax.random.key(3))
    _, first_other, steps_other = run(env, jax.random.key(4))
    np.testing.assert_array_equal(first, first_again)
    jax.tree.map(np.testing.assert_array_equal, steps, steps_again)
    assert not (np.array_equal(first, first_other) and np.array_equal(steps.obs, steps_other.obs))


@every_env
def test_environments_of_a_batch_differ(env):
    _, first, steps = run(env, jax.random.key(1))
    rows = np.concatenate([first[None], steps.obs, steps.final_obs]).swapaxes(0, 1).reshape(B, -1)
    assert len(np.unique(rows, axis=0)) == B


@every_env
def test_observations_around_an_episodes_end(env):
    _, _, steps = run(env, jax.random.key(2))
    done = steps.terminated | steps.truncated
    np.testing.assert_array_equal(steps.obs[~done], steps.final_obs[~done])
    assert not (steps.terminated & steps.truncated).any()
    limit = env.spec.max_episode_steps
    if limit is not None and limit <= T:
        assert done.any(0).all()  # every environment has come to an end
    if done.any() and isinstance(env.spec.observation, Box):
        assert not np.array_equal(steps.obs[done], steps.final_obs[done])


@every_env
def test_no_episode_outlives_its_limit_and_truncation_comes_exactly_then(env):
    _, _, steps = run(env, jax.random.key(2))
    limit, length = env.spec.max_episode_steps or np.inf, np.zeros(B)
    for terminated, truncated in zip(steps.terminated, steps.truncated, strict=True):
        length += 1
        assert (length[truncated] == limit).all() and (length[~(terminated | truncated)] < limit).all()
        length[terminated | truncated] = 0


@every_env
def test_a_batch_of_one_and_two_batches_at_once(env):
    key = jax.random.key(5)
    one, two = (env.reset(env.init(key, num), key) for num in (1, 3))
    assert one[1].shape == env.obs_shape(1).shape and two[1].shape == env.obs_shape(3).shape
    for _ in range(3):  # taking turns, neither disturbs the other
        one, two = ((state, env.step(state, actions(env, num, 1)[0], key)[1].obs)
                    for (state, _), num in ((one, 1), (two, 3)))
    assert one[1].shape[0] == 1 and two[1].shape[0] == 3


@every_env
def test_frozen_is_an_environment_of_the_same_spec(env):
    state, _, _ = run(env, jax.random.key(0), steps=5)
    frozen = env.frozen([state, state])
    assert frozen.spec == env.spec and frozen.traceable == env.traceable
    _, first, steps = run(frozen, jax.random.key(0), steps=5)
    assert form(first) == form(env.obs_shape(B)) and np.isfinite(steps.reward).all()


@pytest.mark.parametrize("label", ["gymnasium:CartPole-v1", "envpool:CartPole-v1", "gymnasium:msrl/Counter-v0"])
def test_statistics_add_up_to_the_steps_taken(label):
    env = EpisodeStats(envs.make(label))
    state, _, steps = run(env, jax.random.key(0))
    found = stats(state)
    assert int(found.episodes) == (steps.terminated | steps.truncated).sum() > 0
    assert int(found.length_sum) + found.running_length.sum() == B * T
    assert float(found.return_sum) + found.running_return.sum() == steps.reward.sum()
    env.close()
