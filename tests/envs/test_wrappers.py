"""Wrappers against references in a line or two of NumPy, over JAX and NumPy environments alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api.spaces import Box, Discrete
from msrl.envs.wrappers import (
    EpisodeStats,
    FrameStack,
    NormaliseObs,
    NormaliseReward,
    ScaleActions,
    Wrapped,
    Wrapper,
    stats,
)
from msrl.envs.wrappers.moments import Moments, empty, union, update
from msrl.errors import EnvError
from msrl.pipeline import compile
from tests.envs.toys import Scripted, play
from tests.matrix.loops import LOOPS
from tests.matrix.toys import HostCorridor

T = 40
both = pytest.mark.parametrize("traceable", [False, True], ids=["numpy", "jax"])
agents = pytest.mark.parametrize("agents", [0, 2], ids=["single", "multi"])


def close(actual, expected, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)


@both
@agents
def test_observations_are_scaled_by_the_statistics_of_all_seen_so_far(traceable, agents):
    env = Scripted(traceable, agents)
    state, first, steps = play(NormaliseObs(env, epsilon=1e-4, clip=2.0), T)
    seen = np.concatenate([env.first[None], env.obs]).astype(np.float64)  # (1 + T, B, ...)
    for t in range(T + 1):
        mean, var = seen[: t + 1].mean((0, 1)), seen[: t + 1].var((0, 1))
        scale = lambda x: np.clip((x - mean) / np.sqrt(var + 1e-4), -2, 2)  # noqa: B023
        close(first if t == 0 else steps[t - 1].obs, scale(seen[t]))
        if t:
            close(steps[t - 1].final_obs, scale(env.final[t - 1]))
    close(state.own.mean, seen.mean((0, 1)))
    close(state.own.var, seen.var((0, 1)))
    assert float(state.own.count) == seen.shape[0] * seen.shape[1]


@both
def test_statistics_survive_a_reset(traceable):
    env = Scripted(traceable)
    wrapped = NormaliseObs(env)
    state, _, _ = play(wrapped, T)
    state, _ = wrapped.reset(state, None)
    seen = np.concatenate([env.first[None], env.obs, env.first[None]])
    close(state.own.mean, seen.mean((0, 1)))
    assert float(state.own.count) == seen.shape[0] * seen.shape[1]


def test_large_offsets_lose_no_variance():
    # A sum of squares in float32 would be all rounding error here.
    data = (1000 + np.random.default_rng(0).normal(size=(200, 64, 1))).astype(np.float32)
    moments = empty(np, (1,))
    for batch in data:
        moments = update(moments, batch)
    close(moments.var, data.astype(np.float64).var((0, 1)), 1e-3)


@both
def test_frozen_has_the_union_of_the_shards_and_learns_nothing(traceable):
    envs = [Scripted(traceable, seed=seed, num_envs=num_envs, steps=T, scale=1.0 + seed)
            for seed, num_envs in ((0, 3), (1, 5), (2, 2))]
    states = [play(NormaliseObs(env, clip=3.0), T - 5 * i)[0] for i, env in enumerate(envs)]
    seen = np.concatenate([x.reshape(-1, 2) for i, env in enumerate(envs) for x in (env.first, env.obs[: T - 5 * i])])
    frozen = NormaliseObs(envs[0], clip=3.0).frozen(states)
    assert frozen.spec.observation == Box((2,), -3.0, 3.0)
    state, first, steps = play(frozen, T)
    scale = lambda x: np.clip((x - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -3, 3)
    close(first, scale(envs[0].first))
    for t, step in enumerate(steps):
        close(step.obs, scale(envs[0].obs[t]))
        close(step.final_obs, scale(envs[0].final[t]))
    close(state.own.mean, seen.mean(0))
    assert float(state.own.count) == len(seen)
    again = frozen.frozen([state])  # evaluation of an evaluation
    close(play(again, 3)[2][-1].obs, scale(envs[0].obs[2]))


@both
def test_frozen_before_any_data_leaves_observations_alone(traceable):
    env = Scripted(traceable)
    frozen = NormaliseObs(env).frozen([NormaliseObs(env).init(None, 3)] * 2)
    close(play(frozen, 1)[1], env.first, 1e-6)


def test_a_shard_without_data_does_not_spoil_the_union():
    one = Moments(np.float32(4), np.ones(2, np.float32), np.full(2, 3.0, np.float32))
    merged = union([empty(np, (2,)), one, empty(np, (2,))])
    close(merged.mean, one.mean)
    close(merged.var, one.var)


@both
@agents
def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return(traceable, agents):
    env = Scripted(traceable, agents)
    _, _, steps = play(NormaliseReward(env, gamma=0.9, epsilon=1e-6, clip=1.5), T)
    running, seen = np.zeros(env.reward.shape[1:]), []
    for t in range(T):
        running = 0.9 * running + env.reward[t]
        seen.append(running)
        close(steps[t].reward, np.clip(env.reward[t] / np.sqrt(np.var(seen) + 1e-6), -1.5, 1.5), 1e-4)
        done = env.terminated[t] | env.truncated[t]
        running = np.where(done[:, None] if agents else done, 0, running)


@both
def test_reset_drops_the_running_return_and_keeps_its_statistics(traceable):
    wrapped = NormaliseReward(Scripted(traceable))
    state, _, _ = play(wrapped, 7)
    after, _ = wrapped.reset(state, None)
    assert not np.asarray(after.own.returns).any()
    assert np.asarray(state.own.returns).any()
    assert float(after.own.moments.count) == 21 and float(after.own.moments.var) == float(state.own.moments.var)


@both
@agents
@pytest.mark.parametrize("shape", [(2,), (2, 3, 2)], ids=["vector", "image"])
def test_stacks_hold_the_last_frames_of_one_episode(traceable, agents, shape):
    env = Scripted(traceable, agents, shape=shape)
    wrapped = FrameStack(env, 3)
    assert wrapped.spec.observation == Box((*shape[:-1], 6))
    state, first, steps = play(wrapped, T)
    for b in range(3):
        frames = [env.first[b]] * 3
        close(first[b], np.concatenate(frames, -1), 0)
        for t in range(T):
            old = [*frames[1:], env.final[t, b]]
            close(steps[t].final_obs[b], np.concatenate(old, -1), 0)
            frames = [env.obs[t, b]] * 3 if env.terminated[t, b] or env.truncated[t, b] else old
            close(steps[t].obs[b], np.concatenate(frames, -1), 0)
    _, again = wrapped.reset(state, None)
    close(again, np.concatenate([env.first] * 3, -1), 0)


def test_stacked_bounds_are_repeated():
    env = Scripted(False)
    env.spec = env.spec.__class__("bounded", Box((2,), (0.0, -1.0), 5.0), Discrete(2))
    assert FrameStack(env, 2).spec.observation == Box((4,), (0.0, -1.0, 0.0, -1.0), 5.0)


@both
def test_actions_are_mapped_to_the_bounds(traceable):
    env = Scripted(traceable, action=Box((2,), (-2.0, 0.0), (2.0, 10.0)))
    wrapped = ScaleActions(env)
    assert wrapped.spec.action == Box((2,), -1.0, 1.0)
    given = wrapped.xp.asarray([[-1, -1], [0, 0], [1, 1], [7, -7], [0.5, 0.5]], "float32")
    play(wrapped, 1, given)
    close(env.actions[0], [[-2, 0], [0, 5], [2, 10], [2, 0], [1, 7.5]], 1e-6)
    assert env.actions[0].dtype == np.float32


@both
@agents
def test_episode_statistics_are_exact(traceable, agents):
    env = Scripted(traceable, agents)
    state, _, _ = play(EpisodeStats(env), T)
    reward = env.reward.mean(-1) if agents else env.reward
    done = env.terminated | env.truncated
    episodes = []  # (env, return, length)
    for b in range(3):
        ends = np.flatnonzero(done[:, b]) + 1
        episodes += [(b, part.sum(), len(part)) for part in np.split(reward[:, b], ends)[: len(ends)]]
    assert (env.terminated & done).any() and (env.truncated & done).any()
    found = stats(state)
    assert np.asarray(found.episodes).tolist() == [sum(b == own for own, _, _ in episodes) for b in range(3)]
    assert np.asarray(found.length_sum).tolist() == [sum(length for own, _, length in episodes if b == own)
                                                     for b in range(3)]
    close(found.return_sum, [sum(total for own, total, _ in episodes if b == own) for b in range(3)], 1e-4)
    last = {b: (total, length) for b, total, length in episodes}
    close(found.last_return, [last[b][0] for b in range(3)], 1e-5)
    assert np.asarray(found.last_length).tolist() == [last[b][1] for b in range(3)]


@both
def test_reset_forgets_the_unfinished_episode_only(traceable):
    wrapped = EpisodeStats(Scripted(traceable))
    state, _, _ = play(wrapped, T)
    before, after = stats(state), stats(wrapped.reset(state, None)[0])
    assert np.asarray(before.running_length).any()
    assert not np.asarray(after.running_length).any() and not np.asarray(after.running_return).any()
    assert np.asarray(before.episodes).any()
    for name in ("episodes", "return_sum", "length_sum"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


@both
def test_statistics_are_found_under_any_wrappers_and_are_of_the_original_rewards(traceable):
    env = Scripted(traceable)
    wrapped = FrameStack(NormaliseReward(NormaliseObs(EpisodeStats(env))), 2)
    state, _, steps = play(wrapped, T)
    expected = stats(play(EpisodeStats(env), T)[0])
    jax.tree.map(np.testing.assert_array_equal, stats(state), expected)
    assert not np.allclose(steps[-1].reward, env.reward[-1])
    frozen = wrapped.frozen([state])
    state, _, steps = play(frozen, T)
    close(steps[-1].reward, env.reward[-1], 0)
    jax.tree.map(np.testing.assert_array_equal, stats(state), expected)


def test_no_statistics_without_the_wrapper():
    state, _, _ = play(NormaliseObs(Scripted(False)), 1)
    with pytest.raises(LookupError, match="no EpisodeStats among the wrappers of this state"):
        stats(state)


class Nothing(Wrapper):
    def rewrap(self, env):
        return Nothing(env)


class Drawing(Nothing):
    def step(self, state, action, key):
        return super().step(state, action, key)


@pytest.mark.parametrize(("wrap", "draws", "given"), [
    (Nothing, False, False), (Nothing, True, True), (Drawing, False, True)], ids=["never", "inside", "wrapper"])
def test_a_key_is_made_for_those_who_use_it(wrap, draws, given):
    keys = []

    class Watched(HostCorridor):
        def step(self, state, action, key):
            keys.append(key)
            return super().step(state, action, key)

    Watched.draws = draws
    list(compile(LOOPS["Plain"], wrap(Watched()), updates=1).run())
    assert keys and {key is not None for key in keys} == {given}


WRAPPERS = [
    EpisodeStats, NormaliseObs, NormaliseReward, ScaleActions, Nothing, lambda env: FrameStack(env, 2),
    lambda env: NormaliseReward(FrameStack(NormaliseObs(ScaleActions(EpisodeStats(env))), 3)),
]


@agents
@pytest.mark.parametrize("wrap", WRAPPERS)
def test_states_keep_their_form_and_numpy_equals_jax(wrap, agents):
    torque = Box((2,), -2.0, 2.0)
    traced, host = (wrap(Scripted(traceable, agents, action=torque)) for traceable in (True, False))
    action = np.zeros(traced.spec.batch(torque, 3), np.float32)
    form = lambda tree: jax.tree.map(lambda x: (np.shape(x), x.dtype), tree)

    @jax.jit
    def run(key):
        state, _ = traced.reset(traced.init(key, 3), key)
        # A scan refuses a state whose tree, shapes or dtypes change.
        return jax.lax.scan(lambda state, _: traced.step(state, action, key), state, None, T)

    state, steps = run(jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape[1:], x.dtype), steps) == form(traced.step_shape(3))
    at_first = host.init(None, 3)
    state_np, _, steps_np = play(host, T, action)
    assert isinstance(state_np, Wrapped) and form(at_first) == form(state_np) == form(state)
    jax.tree.map(lambda x, *xs: close(x, np.stack(xs), 1e-4), steps, *steps_np)
    jax.tree.map(lambda x, y: close(x, y, 1e-4), state.own, state_np.own)
    assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in jax.tree.leaves((state_np.own, steps_np)))


def test_shards_can_be_mapped_over():
    wrapped = NormaliseObs(EpisodeStats(Scripted(True)))
    one, _ = wrapped.reset(wrapped.init(None, 3), None)
    two = jax.tree.map(lambda x: jnp.stack([x, x]), one)
    state, step = jax.vmap(lambda state: wrapped.step(state, None, None))(two)
    assert step.obs.shape == (2, 3, 2) and stats(state).last_return.shape == (2, 3)
    close(step.obs[1], wrapped.step(one, None, None)[1].obs)


def discrete(traceable=False):
    env = Scripted(traceable)
    env.spec = env.spec.__class__("rooms", Discrete(5), Discrete(3))
    return env


@pytest.mark.parametrize("wrap, message", [
    (lambda: NormaliseObs(discrete()),
     "NormaliseObs cannot wrap rooms, whose observations are Discrete(5).\n"
     "The number of a choice has no mean to subtract.\nLeave the wrapper out for this environment."),
    (lambda: FrameStack(discrete(), 2),
     "FrameStack cannot wrap rooms, whose observations are Discrete(5).\n"
     "It joins vectors (O,) end to end and images (H, W, C) by their channels.\n"
     "Leave the wrapper out for this environment."),
    (lambda: FrameStack(Scripted(False), 0), "FrameStack cannot stack 0 frames.\nGive it 1 or more."),
    (lambda: ScaleActions(discrete()),
     "ScaleActions cannot wrap rooms, whose actions are Discrete(3).\n"
     "It maps [-1, 1] to the bounds of a Box, which must be finite.\nLeave the wrapper out for this environment."),
    (lambda: ScaleActions(Scripted(False, action=Box((2,), -1.0, (1.0, np.inf)))),
     "ScaleActions cannot wrap scripted, whose actions are Box(2,).\n"
     "It maps [-1, 1] to the bounds of a Box, which must be finite.\nLeave the wrapper out for this environment."),
])
def test_errors(wrap, message):
    with pytest.raises(EnvError) as caught:
        wrap()
    assert str(caught.value) == message
