"""What every environment keeps to, bare or wrapped: shapes and dtypes of the spec, determinism by key, auto-reset."""

import functools

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


every_env = pytest.mark.parametrize("subject", [*NAMES, *WRAPPED], indirect=True)


class Subject:
    """An environment under test. Its run from a seed is made once and read by several tests."""

    def __init__(self, env):
        self.env = env
        self.once = functools.cache(self.run)
        self._play = jax.jit(self._scan) if env.traceable else self._loop

    def run(self, seed):
        """(state, first observations, steps stacked to (T, B, ...))."""
        keys = jax.random.split(jax.random.key(seed), T + 2)
        return self._play(keys, actions(self.env))

    def _scan(self, keys, actions):
        state, first = self.env.reset(self.env.init(keys[0], B), keys[1])
        state, steps = jax.lax.scan(lambda state, x: self.env.step(state, *x), state, (actions, keys[2:]))
        return state, first, steps

    def _loop(self, keys, actions):
        state, first = self.env.reset(self.env.init(keys[0], B), keys[1])
        steps = []
        for action in actions:
            state, step = self.env.step(state, action, keys[2])
            assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(step))
            steps.append(step)
        assert isinstance(first, np.ndarray)
        return state, first, jax.tree.map(lambda *xs: np.stack(xs), *steps)


@pytest.fixture(scope="module")
def subject(request):
    label = request.param
    env = WRAPPED[label]() if label in WRAPPED else envs.make(label)
    yield Subject(env)
    env.close()


def actions(env, num_envs=B, steps=T):
    """Random actions of the space, the same ones every time."""
    random, space = np.random.default_rng(0), env.spec.action
    shape = (steps, *env.spec.batch(space, num_envs))
    if isinstance(space, Box):
        low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 1.0)
        return random.uniform(low, high, shape).astype(space.dtype)
    return random.integers(0, space.n if isinstance(space, Discrete) else space.nvec, shape).astype(space.dtype)


def form(tree):
    return jax.tree.map(lambda x: (tuple(x.shape), np.dtype(x.dtype)), tree)


@every_env
def test_shapes_and_dtypes_are_the_specs(subject):
    env = subject.env
    _, first, steps = subject.once(0)
    assert form(first) == form(env.obs_shape(B))
    assert jax.tree.map(lambda x: (x.shape[1:], x.dtype), steps) == form(env.step_shape(B))
    assert hash(env.spec) == hash(env.spec)  # specs are used as keys
    space = env.spec.observation
    if isinstance(space, Box):
        # float32 rounds some bounds outwards, π for one.
        assert (steps.final_obs >= np.asarray(space.low) - 1e-5).all()
        assert (steps.final_obs <= np.asarray(space.high) + 1e-5).all()
    else:
        n = space.n if isinstance(space, Discrete) else np.array(space.nvec)
        assert (steps.obs >= 0).all() and (steps.obs < n).all()


@every_env
def test_equal_keys_give_equal_runs(subject):
    _, first, steps = subject.once(0)
    _, first_again, steps_again = subject.run(0)
    _, first_other, steps_other = subject.run(1)
    np.testing.assert_array_equal(first, first_again)
    jax.tree.map(np.testing.assert_array_equal, steps, steps_again)
    assert not (np.array_equal(first, first_other) and np.array_equal(steps.obs, steps_other.obs))


@every_env
def test_environments_of_a_batch_differ(subject):
    _, first, steps = subject.once(0)
    rows = np.concatenate([first[None], steps.obs, steps.final_obs]).swapaxes(0, 1).reshape(B, -1)
    assert len(np.unique(rows, axis=0)) == B


@every_env
def test_observations_around_an_episodes_end(subject):
    steps = jax.tree.map(np.asarray, subject.once(0)[2])
    done = steps.terminated | steps.truncated
    np.testing.assert_array_equal(steps.obs[~done], steps.final_obs[~done])
    if done.any() and isinstance(subject.env.spec.observation, Box):
        assert not np.array_equal(steps.obs[done], steps.final_obs[done])


@every_env
def test_an_end_is_of_one_kind_and_truncation_comes_exactly_at_the_limit(subject):
    _, _, steps = subject.once(0)
    limit, length = subject.env.spec.max_episode_steps or np.inf, np.zeros(B)
    ends = 0
    for terminated, truncated in zip(np.asarray(steps.terminated), np.asarray(steps.truncated), strict=True):
        length += 1
        assert not (terminated & truncated).any()
        assert (length[truncated] == limit).all() and (length[~(terminated | truncated)] < limit).all()
        ends += (terminated | truncated).sum()
        length[terminated | truncated] = 0
    assert ends >= B * (T // limit)


@every_env
def test_batches_of_any_size_side_by_side(subject):
    env, key = subject.env, jax.random.key(5)

    def turns(key):
        one, two = (env.reset(env.init(key, num), key) for num in (1, 3))
        for _ in range(2):
            one, two = (env.step(state, actions(env, num, 1)[0], key) for (state, _), num in ((one, 1), (two, 3)))
        return one[1], two[1]

    one, two = jax.eval_shape(turns, key) if env.traceable else turns(key)
    assert form(one) == form(env.step_shape(1)) and form(two) == form(env.step_shape(3))


@every_env
def test_frozen_is_an_environment_of_the_same_spec(subject):
    env = subject.env
    state, _, _ = subject.once(0)
    frozen = env.frozen([state, state])
    assert frozen.spec == env.spec and frozen.traceable == env.traceable
    _, first, steps = subject.once(0) if frozen is env else Subject(frozen).run(0)
    assert form(first) == form(env.obs_shape(B)) and np.isfinite(steps.reward).all()


@pytest.mark.parametrize("label", ["gymnasium:CartPole-v1", "envpool:CartPole-v1", "gymnasium:msrl/Counter-v0"])
def test_statistics_add_up_to_the_steps_taken(label):
    env = EpisodeStats(envs.make(label))
    state, _, steps = Subject(env).run(0)
    found = stats(state)
    assert found.episodes.sum() == (steps.terminated | steps.truncated).sum() > 0
    assert (found.length_sum + found.running_length == T).all()
    assert (found.return_sum + found.running_return).sum() == steps.reward.sum()
    env.close()
