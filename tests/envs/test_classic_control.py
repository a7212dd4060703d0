"""The classic-control environments against their Gymnasium originals, transition by transition from equal states.

The originals compute in 64 bits and we in 32, so what one step adds differs in the seventh digit; the tolerances are
that, times the largest value in the step. Flags are compared exactly.
"""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl.api.spaces import Box
from msrl.envs.acrobot import Acrobot
from msrl.envs.cartpole import CartPole
from msrl.envs.jax_env import JaxEnvState
from msrl.envs.mountain_car import MountainCar
from msrl.envs.pendulum import Pendulum

TRANSITIONS = 3000
KEY = jax.random.key(0)

# Environment, the range its random states are drawn from (all that is reachable, hence both ends of every limit), and
# the tolerance. Acrobot's velocities reach 28 rad/s and are squared four times over in one step.
CASES = {
    "CartPole-v1": (CartPole(), ([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3]), 1e-6),
    "Acrobot-v1": (Acrobot(), ([-np.pi, -np.pi, -4 * np.pi, -9 * np.pi], [np.pi, np.pi, 4 * np.pi, 9 * np.pi]), 1e-4),
    "MountainCar-v0": (MountainCar(), ([-1.2, -0.07], [0.6, 0.07]), 1e-6),
    "Pendulum-v1": (Pendulum(), ([-np.pi, -8], [np.pi, 8]), 1e-5),
}
everyone = pytest.mark.parametrize("name", CASES)


def random_actions(env, rng, n):
    """As a policy might send them: a Gaussian one exceeds the bounds of a Box."""
    space = env.spec.action
    if isinstance(space, Box):
        return rng.uniform(1.5 * space.low, 1.5 * space.high, (n, *space.shape)).astype(np.float32)
    return rng.integers(space.n, size=n).astype(np.int32)


def original(name):
    env = gymnasium.make(name, disable_env_checker=True)
    env.reset(seed=0)
    return env


def put(gym_env, state):
    gym_env.unwrapped.state = np.float64(state)
    gym_env.unwrapped.steps_beyond_terminated = None  # CartPole's: it would give 0 to a second fall


def gym_action(env, action):
    return action if isinstance(env.spec.action, Box) else int(action)


@everyone
def test_every_transition_is_gymnasiums(name):
    env, (low, high), tolerance = CASES[name]
    rng = np.random.default_rng(1)
    states = rng.uniform(low, high, (TRANSITIONS, len(low))).astype(np.float32)
    actions = random_actions(env, rng, TRANSITIONS)
    batch = JaxEnvState(inner=jnp.array(states), steps=jnp.zeros(TRANSITIONS, jnp.int32))
    _, step = jax.jit(env.step)(batch, actions, KEY)

    gym_env, rows = original(name), []
    for state, action in zip(states, actions):
        put(gym_env, state)
        rows.append(gym_env.unwrapped.step(gym_action(env, action))[:3])
    obs, reward, terminated = map(np.array, zip(*rows))
    np.testing.assert_array_equal(step.terminated, terminated)
    np.testing.assert_allclose(step.final_obs, obs, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(step.reward, reward, rtol=tolerance, atol=tolerance)
    assert terminated.any() == (name != "Pendulum-v1") and not terminated.all()
    np.testing.assert_allclose(jax.vmap(env.observe)(batch.inner)[0], first_obs(gym_env, states[0]), atol=1e-6)


def first_obs(gym_env, state):
    gym_env = gym_env.unwrapped
    put(gym_env, state)
    look = {"AcrobotEnv": "_get_ob", "PendulumEnv": "_get_obs"}.get(type(gym_env).__name__)
    return getattr(gym_env, look)() if look else state


@everyone
def test_whole_episodes_end_when_gymnasiums_do(name):
    """620 steps of one environment, the original's state set to ours before each; its TimeLimit counts by itself."""
    env, _, tolerance = CASES[name]
    gym_env, rng = original(name), np.random.default_rng(2)
    state = env.init(KEY, 1)
    state, obs = env.reset(state, KEY)
    step_env, ends = jax.jit(env.step), []
    for t in range(620):
        if name == "CartPole-v1":  # a controller that balances, so that the limit is reached
            action = np.array([np.asarray(obs[0]) @ [0.05, 0.1, 1.0, 0.3] > 0], np.int32)
        else:
            action = random_actions(env, rng, 1)
        put(gym_env, state.inner[0])
        expected = gym_env.step(gym_action(env, action[0]))
        state, step = step_env(state, action, jax.random.key(t))
        np.testing.assert_allclose(step.final_obs[0], expected[0], rtol=tolerance, atol=tolerance)
        terminated, truncated = expected[2:4]
        assert (bool(step.terminated[0]), bool(step.truncated[0])) == (terminated, truncated and not terminated)
        if step.done[0]:
            ends.append(t)
            gym_env.reset()
        obs = step.obs
    limit = env.spec.max_episode_steps
    assert limit - 1 in ends and limit == gym_env.spec.max_episode_steps


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
@pytest.mark.parametrize("before_limit", [2, 1])
def test_a_terminal_state_in_the_last_step_is_terminal_alone(name, before_limit):
    """Gymnasium sets both flags then; here termination wins, as a value is bootstrapped after truncation only."""
    env = CASES[name][0]
    verge = {"CartPole-v1": [2.39, 3, 0, 0], "Acrobot-v1": [np.pi, 0.1, 0, 0], "MountainCar-v0": [0.49, 0.07]}[name]
    steps = env.spec.max_episode_steps - before_limit
    state = JaxEnvState(inner=jnp.array([verge], jnp.float32), steps=jnp.array([steps], jnp.int32))
    state, step = env.step(state, jnp.array([1], jnp.int32), KEY)
    gym_env = original(name)
    put(gym_env, verge)
    gym_env._elapsed_steps = steps
    assert gym_env.step(1)[2:4] == (True, before_limit == 1)
    assert (bool(step.terminated[0]), bool(step.truncated[0])) == (True, False)
    assert state.steps[0] == 0


def test_pendulum_turning_for_long_stays_within_half_a_turn():
    env = Pendulum()
    state = JaxEnvState(inner=jnp.array([[3.0, 8.0]]), steps=jnp.zeros(1, jnp.int32))
    angles = []
    for _ in range(100):
        state, _ = env.step(state, jnp.array([[2.0]]), KEY)
        angles.append(float(state.inner[0, 0]))
    assert max(np.abs(angles)) <= np.float32(np.pi) and min(angles) < 0 < max(angles)


@everyone
def test_spaces_are_gymnasiums(name):
    env, gym_env = CASES[name][0], original(name)
    ours, theirs = env.spec.observation, gym_env.observation_space
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.low, theirs.low, rtol=1e-6)
    np.testing.assert_allclose(ours.high, theirs.high, rtol=1e-6)
    if isinstance(env.spec.action, Box):
        assert env.spec.action.shape == gym_env.action_space.shape
        np.testing.assert_allclose([env.spec.action.low, env.spec.action.high],
                                   [gym_env.action_space.low[0], gym_env.action_space.high[0]])
    else:
        assert env.spec.action.n == gym_env.action_space.n
    assert env.spec.id == gym_env.spec.id


@everyone
def test_episodes_start_where_gymnasiums_do(name):
    """The two samples of starting states agree in range and mean; both are uniform."""
    env, gym_env = CASES[name][0], original(name)
    ours = np.array(env.reset_batch(jax.random.key(5), 4000))
    alone = np.array(jax.vmap(env.reset_one)(jax.random.split(jax.random.key(6), 4000)))
    theirs = []
    for _ in range(4000):
        gym_env.reset()
        theirs.append(np.array(gym_env.unwrapped.state))
    theirs = np.array(theirs)
    width = np.ptp(theirs, axis=0)
    for sample in (ours, alone):
        for measure in (np.min, np.max, np.mean, np.std):
            assert (np.abs(measure(sample, axis=0) - measure(theirs, axis=0)) <= 0.03 * width).all()
