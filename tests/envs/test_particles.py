"""The particle worlds against mpe2, transition by transition from equal states.

mpe2 computes in 64 bits and we in 32. A contact is as stiff as 1e2 / 1e-3 in position, so that the seventh digit of a
distance is the fifth of a velocity: hence 1e-5. Touching is a matter of yes or no: the seeds are such that
no distance lies within rounding of its threshold.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.envs import particles
from msrl.envs.jax_env import JaxEnvState
from msrl.envs.simple_spread import SimpleSpread
from msrl.envs.simple_tag import SimpleTag
from msrl.errors import EnvError

simple_spread_v3 = importlib.import_module("mpe2.simple_spread_v3")
simple_tag_v3 = importlib.import_module("mpe2.simple_tag_v3")

TOLERANCE = 1e-5
KEY = jax.random.key(0)


def spread(n):
    return SimpleSpread(num_agents=n), lambda **kw: simple_spread_v3.parallel_env(N=n, **kw)


def tag(good, adversaries, obstacles):
    sizes = {"num_good": good, "num_adversaries": adversaries, "num_obstacles": obstacles}
    return SimpleTag(**sizes), lambda **kw: simple_tag_v3.parallel_env(**sizes, **kw)


# Ours, mpe2's, and how many transitions to compare.
CASES = {
    "spread-3": (*spread(3), 1000),
    "spread-1": (*spread(1), 100),
    "spread-7": (*spread(7), 300),
    "spread-48": (*spread(48), 4),
    "tag-1-3-2": (*tag(1, 3, 2), 1000),
    "tag-3-2-0": (*tag(3, 2, 0), 300),
    "tag-12-36-4": (*tag(12, 36, 4), 4),
}
everyone = pytest.mark.parametrize("name", CASES)


def crowded(rng, env, n):
    """Worlds in which much happens: many contacts, speeds beyond the limits, agents beyond the arena."""
    like = jax.eval_shape(lambda: env.reset_batch(KEY, n))
    spread = rng.choice([0.2, 0.5, 1.3], (n, 1, 1))
    return particles.World(
        position=jnp.array(rng.uniform(-spread, spread, like.position.shape), jnp.float32),
        velocity=jnp.array(rng.uniform(-1.3, 1.3, like.velocity.shape), jnp.float32),
        landmark=jnp.array(rng.uniform(-spread, spread, like.landmark.shape), jnp.float32),
    )


def put(theirs, world, i):
    for agent, position, velocity in zip(theirs.agents, world.position[i], world.velocity[i]):
        agent.state.p_pos, agent.state.p_vel = np.float64(position), np.float64(velocity)
    for landmark, position in zip(theirs.landmarks, world.landmark[i]):
        landmark.state.p_pos = np.float64(position)


def stacked(env, by_agent):
    """(N, O): the agents in our order, what they lack of the widest observation filled up with zeros at the end."""
    width = env.spec.observation.shape[0]
    return np.stack([np.pad(by_agent[a], (0, width - len(by_agent[a]))) for a in env.spec.agents])


def act(mpe, env, actions):
    obs, reward, terminated, truncated, _ = mpe.step({a: int(u) for a, u in zip(env.spec.agents, actions)})
    return stacked(env, obs), [reward[a] for a in env.spec.agents], terminated.values(), truncated.values()


@everyone
def test_every_transition_is_mpe2s(name):
    env, make, n = CASES[name]
    rng = np.random.default_rng(3)
    world = crowded(rng, env, n)
    actions = rng.integers(5, size=(n, len(env.spec.agents))).astype(np.int32)
    state = JaxEnvState(inner=world, steps=jnp.zeros(n, jnp.int32))
    after, step = jax.jit(env.step)(state, actions, KEY)

    mpe = make(max_cycles=n + 1)
    mpe.reset(seed=0)
    inner = mpe.unwrapped.world
    host = jax.tree.map(np.asarray, world)
    touches = 0
    for i in range(n):
        put(inner, host, i)
        obs, reward, terminated, truncated = act(mpe, env, actions[i])
        np.testing.assert_allclose(step.final_obs[i], obs, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(step.reward[i], reward, rtol=TOLERANCE, atol=TOLERANCE)
        assert not any(terminated) and not any(truncated)
        touches += np.abs(np.diff(reward)).max(initial=0) > 0.4  # a contact or a catch is an agent's own
    assert len(env.spec.agents) == 1 or touches > 0
    assert not step.terminated.any() and not step.truncated.any()
    np.testing.assert_array_equal(after.inner.landmark, world.landmark)


@pytest.mark.parametrize("name", ["spread-3", "tag-1-3-2"])
def test_whole_episodes_end_when_mpe2s_do(name):
    """Three episodes of two environments, mpe2's state set to the first one's before each step."""
    env, make, _ = CASES[name]
    mpe, rng = make(), np.random.default_rng(4)
    first, _ = mpe.reset(seed=0)
    assert tuple(mpe.possible_agents) == env.spec.agents
    assert max(len(first[a]) for a in env.spec.agents) == env.spec.observation.shape[0]
    assert all(mpe.action_space(a).n == env.spec.action.n for a in env.spec.agents)
    state, _ = env.reset(env.init(KEY, 2), KEY)
    step_env, ends = jax.jit(env.step), []
    for t in range(75):
        put(mpe.unwrapped.world, jax.tree.map(np.asarray, state.inner), 0)
        action = rng.integers(5, size=(2, len(env.spec.agents))).astype(np.int32)
        obs, reward, _, truncated = act(mpe, env, action[0])
        state, step = step_env(state, action, jax.random.key(t))
        np.testing.assert_allclose(step.final_obs[0], obs, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(step.reward[0], reward, rtol=TOLERANCE, atol=TOLERANCE)
        assert [bool(step.truncated[0])] * len(env.spec.agents) == list(truncated)
        assert not step.terminated.any()
        if step.done[0]:
            ends.append(t)
            mpe.reset()
    assert ends == [24, 49, 74]


@pytest.mark.parametrize("name", ["spread-3", "tag-1-3-2"])
def test_episodes_start_where_mpe2s_do(name):
    env, make, _ = CASES[name]
    mpe = make()
    mpe.reset(seed=0)
    world, theirs = mpe.unwrapped.world, []
    for _ in range(1500):
        mpe.reset()
        theirs.append([e.state.p_pos for e in world.agents + world.landmarks])
        assert all((a.state.p_vel == 0).all() for a in world.agents)
    theirs = np.array(theirs)
    one_by_one = jax.vmap(env.reset_one)(jax.random.split(jax.random.key(6), 1500))
    for sample in (env.reset_batch(jax.random.key(5), 1500), one_by_one):
        assert (sample.velocity == 0).all()
        ours = np.concatenate([sample.position, sample.landmark], axis=1)
        for measure, slack in ((np.min, 0.02), (np.max, 0.02), (np.mean, 0.1), (np.std, 0.05)):
            assert np.abs(measure(ours, axis=0) - measure(theirs, axis=0)).max() <= slack


@pytest.mark.parametrize("env", [SimpleSpread(), SimpleTag()])
def test_discs_on_one_spot_leave_the_world_finite(env):
    world = jax.tree.map(jnp.zeros_like, env.reset_batch(KEY, 1))
    state = JaxEnvState(inner=world, steps=jnp.zeros(1, jnp.int32))
    state, step = jax.jit(env.step)(state, jnp.zeros((1, len(env.spec.agents)), jnp.int32), KEY)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((state.inner, step.obs, step.reward)))


def test_others_drops_the_diagonal():
    pairs = jnp.arange(16).reshape(4, 4)
    np.testing.assert_array_equal(particles.others(pairs), [[1, 2, 3], [4, 6, 7], [8, 9, 11], [12, 13, 14]])


@pytest.mark.parametrize("make, message", [
    (lambda: SimpleSpread(num_agents=0), """simple_spread cannot be made with num_agents=0.
The smallest such world has num_agents=1.
Write num_agents=1 or more."""),
    (lambda: SimpleTag(num_obstacles=-1), """simple_tag cannot be made with num_obstacles=-1.
The smallest such world has num_obstacles=0.
Write num_obstacles=0 or more."""),
])
def test_worlds_that_cannot_be_are_refused(make, message):
    with pytest.raises(EnvError) as error:
        make()
    assert str(error.value) == message
