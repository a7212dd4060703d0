"""Environments on the host, saved in the middle of an episode: what comes after is the same to the bit."""

import jax
import numpy as np
import pytest

from msrl import envs


def steps(env, state, count, first):
    """What `count` steps give, with actions that are drawn from their number."""
    found = []
    for number in range(first, first + count):
        space = env.spec.action
        draw = np.random.default_rng(number)
        shape = env.spec.batch(space, len(state))
        action = draw.integers(space.n, size=shape) if hasattr(space, "n") else draw.uniform(-1, 1, shape)
        state, step = env.step(state, action.astype(space.dtype), jax.random.key(0))
        found.append(step)
    return found


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1", "envpool:CartPole-v1",
                                  "pettingzoo:mpe2.simple_spread_v3"])
@pytest.mark.parametrize("before", [0, 3, 60])
def test_goes_on_to_the_bit(name, before):
    env = envs.make(name)
    state, _ = env.reset(env.init(jax.random.key(0), 3), jax.random.key(1))
    steps(env, state, before, 0)
    saved = state.save()
    wanted = steps(env, state, 40, before)
    fresh = env.init(jax.random.key(5), 3)
    fresh.restore(saved)
    for one, two in zip(wanted, steps(env, fresh, 40, before), strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_array_equal(a, b)
    assert any(step.done.any() for step in wanted) or before == 0 or "Pendulum" in name
    env.close()


@pytest.mark.parametrize("name", ["envpool:CartPole-v1", "pettingzoo:mpe2.simple_spread_v3"])
def test_at_a_reset_boundary_the_first_step_is_a_truncation(name):
    env = envs.make(name)
    env.exact = False
    state, _ = env.reset(env.init(jax.random.key(0), 3), jax.random.key(1))
    last = steps(env, state, 3, 0)[-1]
    saved = {part: array for part, array in state.save().items() if part in ("seeds", "obs")}
    fresh = env.init(jax.random.key(5), 3)
    fresh.restore(saved)
    first, second = steps(env, fresh, 2, 3)
    assert first.truncated.all() and not first.terminated.any() and not first.reward.any()
    np.testing.assert_array_equal(first.final_obs, last.obs)
    assert first.reward.shape == second.reward.shape and first.obs.shape == second.obs.shape
    assert not second.done.any() and not np.array_equal(first.obs, last.obs)
    env.close()


def test_before_the_first_reset_there_is_nothing_to_save():
    env = envs.make("gymnasium:CartPole-v1")
    state = env.init(jax.random.key(0), 2)
    assert state.save() == {}
    state.restore({})
    env.close()
