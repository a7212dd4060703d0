"""Environments on the host: resets in the same step, seeds from the key, dtypes and spaces."""

import functools
import math
import pickle
import sys
from types import ModuleType

import jax
import numpy as np
import pytest
from gymnasium import spaces

from msrl.api.spaces import Box, Discrete, MultiDiscrete
from msrl.envs.envpool_env import EnvPoolEnv, _Pool
from msrl.envs.gymnasium_env import GymnasiumEnv
from msrl.envs.pettingzoo_env import PettingZooEnv
from msrl.envs.spaces import codec
from msrl.errors import EnvError
from tests.envs import toys

toys.register()
KEY = jax.random.key(7)


def start(env, num_envs=4, key=KEY):
    return env.reset(env.init(key, num_envs), key)


def test_no_action_is_ignored_and_ends_are_told_apart():
    env = GymnasiumEnv("msrl/Counter-v0")
    assert env.spec.action == Discrete(3) and env.spec.max_episode_steps == toys.LIMIT
    state, _ = start(env, 8)
    random, lengths, ends = np.random.default_rng(0), np.zeros(8, int), []
    for _ in range(60):
        action = random.integers(0, 3, 8).astype(np.int32)
        state, step = env.step(state, action, KEY)
        lengths += 1
        np.testing.assert_array_equal(step.final_obs, np.stack([lengths, action + 1], 1).astype(np.float32))
        np.testing.assert_array_equal(step.reward, (action + 1).astype(np.float32))
        np.testing.assert_array_equal(step.obs, np.where(step.done[:, None], 0, step.final_obs))
        assert not (step.terminated & step.truncated).any()
        ends += [(int(lengths[i]), bool(step.terminated[i])) for i in np.flatnonzero(step.done)]
        lengths[step.done] = 0
    # Drawn lengths are 4 to 8 and the limit is 6: an episode that terminates at the limit is terminated.
    assert {length for length, terminated in ends if terminated} == {4, 5, 6}
    assert {length for length, terminated in ends if not terminated} == {6}
    env.close()


def cartpole(obs, action):
    """One Euler step of the textbook's cart and pole."""
    x, v, a, w = np.asarray(obs, np.float64).T
    force, cos, sin = np.where(action == 1, 10.0, -10.0), np.cos(a), np.sin(a)
    push = (force + 0.05 * w**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    return np.stack([x + 0.02 * v, v + 0.02 * (push - 0.05 * turn * cos / 1.1), a + 0.02 * w, w + 0.02 * turn], 1)


def fallen(obs):
    return (np.abs(obs[:, 0]) > 2.4) | (np.abs(obs[:, 2]) > math.radians(12))


@pytest.mark.parametrize("Env", [EnvPoolEnv, GymnasiumEnv])
def test_every_step_is_one_step_of_the_physics(Env):
    env = Env("CartPole-v1")
    state, obs = start(env, 16)
    random, ends = np.random.default_rng(0), 0
    for _ in range(150):
        action = random.integers(0, 2, 16).astype(np.int32)
        state, step = env.step(state, action, KEY)
        np.testing.assert_allclose(step.final_obs, cartpole(obs, action), atol=1e-4)
        np.testing.assert_array_equal(step.terminated, fallen(step.final_obs))
        np.testing.assert_array_equal(step.reward, 1.0)
        assert (np.abs(step.obs[step.done]) <= 0.05).all()
        np.testing.assert_array_equal(step.obs[~step.done], step.final_obs[~step.done])
        assert not step.truncated.any()
        ends += step.done.sum()
        obs = step.obs
    assert ends > 20
    env.close()


def test_envpool_tells_a_fall_at_the_time_limit_from_the_limit():
    observation = codec(spaces.Box(-np.inf, np.inf, (4,)), role="observation", env="")
    pool = _Pool("CartPole-v1", 16, observation, codec(spaces.Discrete(2), role="action", env=""), 9, False)
    pool.reset(list(range(16)))
    at_limit = []
    for t in range(1, 10):
        step = pool.step(np.ones(16, np.int32))
        np.testing.assert_array_equal(step.terminated, fallen(step.final_obs))
        if t == 9:
            at_limit = step.terminated[step.done], step.truncated[step.done]
    assert at_limit[0].any() and at_limit[1].any() and (at_limit[0] ^ at_limit[1]).all()
    assert (np.abs(step.obs[step.done]) <= 0.05).all()
    step = pool.step(np.ones(16, np.int32))
    assert not step.done.any() or fallen(step.final_obs)[step.done].all()
    pool.close()


@pytest.mark.parametrize("Env, name", [(EnvPoolEnv, "HalfCheetah-v4"), (GymnasiumEnv, "HalfCheetah-v5")])
def test_a_time_limit_is_a_truncation(Env, name):
    env = Env(name)
    state, _ = start(env, 1)
    action = np.zeros((1, 6), np.float32)
    for t in range(1, 1003):
        state, step = env.step(state, action, KEY)
        assert (bool(step.truncated[0]), bool(step.terminated[0])) == (t == 1000, False)
        if t == 1000:
            assert not np.allclose(step.obs, step.final_obs)
        else:
            np.testing.assert_array_equal(step.obs, step.final_obs)
    env.close()


@pytest.mark.parametrize("make", [
    lambda: GymnasiumEnv("msrl/Counter-v0"), lambda: GymnasiumEnv("CartPole-v1"), lambda: EnvPoolEnv("CartPole-v1"),
    lambda: PettingZooEnv("mpe2.simple_tag_v3"),
])
def test_the_reset_key_alone_decides(make):
    env = make()

    def run(state, key):
        state, obs = env.reset(state, key)
        out = [obs]
        for t in range(60):
            action = np.full(env.spec.batch(env.spec.action, 3), t % 2, np.int32)
            state, step = env.step(state, action, KEY)
            out += [step.obs, step.reward]
        return out

    a, b = env.init(jax.random.key(1), 3), env.init(jax.random.key(2), 3)
    first, second = run(a, KEY), run(b, KEY)
    again = run(a, KEY)  # after other episodes, in the same handle
    jax.tree.map(np.testing.assert_array_equal, first, second)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = run(b, jax.random.key(8))
    assert not all(np.array_equal(x, y) for x, y in zip(first, other, strict=True))
    env.close()


def test_images_stay_bytes_and_choices_count_from_zero():
    env = GymnasiumEnv("msrl/Pixels-v0")
    assert env.spec.observation == Box((4, 5, 3), 0.0, 255.0, "uint8") and env.spec.action == MultiDiscrete((3, 2))
    state, obs = start(env, 2)
    assert obs.dtype == np.uint8
    _, step = env.step(state, np.array([[2, 1], [0, 0]], np.int32), KEY)
    assert step.obs.dtype == np.uint8
    assert step.obs[:, 0, 0, 0].tolist() == [2 + 11, 0 + 10]
    env.close()


def test_observations_that_are_choices():
    single, double = GymnasiumEnv("msrl/Rooms-v0"), GymnasiumEnv("msrl/DoubleRooms-v0")
    assert single.spec.observation == Discrete(5) and double.spec.observation == MultiDiscrete((5, 5))
    action = np.array([0, 4, 2], np.int32)
    for env, final in ((single, action), (double, np.stack([action, action], 1))):
        state, obs = start(env, 3)
        assert obs.dtype == np.int32 and obs.shape == final.shape and (obs >= 0).all() and (obs < 4).all()
        _, step = env.step(state, action, KEY)
        np.testing.assert_array_equal(step.final_obs, final)
        assert step.final_obs.dtype == np.int32 and step.terminated.tolist() == [False, True, False]
        assert (step.obs[1] < 4).all()
        env.close()


def test_envpool_images_have_their_channels_last():
    env = EnvPoolEnv("Pong-v5")
    assert env.spec.observation == Box((84, 84, 4), 0.0, 255.0, "uint8")
    state, _ = start(env, 2)
    for _ in range(4):
        state, step = env.step(state, np.zeros(2, np.int32), KEY)
    assert step.obs.shape == (2, 84, 84, 4) and step.obs.dtype == np.uint8 and step.obs.flags.c_contiguous
    # The channels are the last four frames: consecutive ones are nearly the same picture.
    frames = step.obs[0].astype(float)
    assert np.abs(frames[..., 2] - frames[..., 3]).mean() < 5 < frames.std()
    env.close()


def test_arrays_handed_out_are_never_written_to_again():
    for env in (GymnasiumEnv("msrl/Counter-v0"), EnvPoolEnv("CartPole-v1")):
        state, obs = start(env)
        kept, copies = [obs], [obs.copy()]
        for _ in range(30):
            state, step = env.step(state, np.ones(4, np.int32), KEY)
            kept += [step.obs, step.final_obs, step.reward, step.terminated]
            copies += [x.copy() for x in kept[-4:]]
        jax.tree.map(np.testing.assert_array_equal, kept, copies)
        env.close()


def test_environments_cross_processes_by_name():
    for env in (GymnasiumEnv("CartPole-v1"), EnvPoolEnv("CartPole-v1"), PettingZooEnv("mpe2.simple_spread_v3")):
        start(env, 1)
        assert pickle.loads(pickle.dumps(env)).spec == env.spec
        env.close()


def bounds(space):
    box = codec(space, role="action", env="x").space
    return box.low, box.high


def test_bounds_are_scalars_where_they_can_be():
    assert bounds(spaces.Box(-2, 2, (3,))) == (-2.0, 2.0)
    assert bounds(spaces.Box(np.array([[0, -1]]), np.array([[1, 1]]), dtype=np.float64)) == (((0.0, -1.0),), 1.0)
    widest = np.finfo(np.float32).max
    assert bounds(spaces.Box(-widest, widest, (2,))) == (-np.inf, np.inf)
    assert bounds(spaces.Box(np.finfo(np.float32).tiny, widest, (2,))) == (-np.inf, np.inf)


@pytest.fixture
def parallel(monkeypatch):
    """A module with the toy's parallel_env, made with the given arguments; all that were made are in `module.made`."""

    def build(**kwargs):
        module = ModuleType("toy_parallel")
        module.__spec__ = sys.__spec__  # find_spec asks for one
        module.made = []

        def parallel_env():
            module.made.append(toys.Parallel(**kwargs))
            return module.made[-1]

        module.parallel_env = parallel_env
        monkeypatch.setitem(sys.modules, "toy_parallel", module)
        return module

    return build


@pytest.mark.parametrize("lives, terminated", [(("3t", "5t"), True), (("3t", "5c"), False), (("3c", "5t"), False)])
def test_agents_that_end_early_are_zeros_until_the_last_one_ends(parallel, lives, terminated):
    module = parallel(lives=lives)
    env = PettingZooEnv("toy_parallel")
    assert env.spec.observation == Box((3,)) and env.spec.agents == ("agent_0", "agent_1")
    state, obs = start(env, 2)
    first = obs[:, 1, 0]  # the toy starts to count where its seed says
    np.testing.assert_array_equal(obs[:, 0], np.stack([first, [1, 1], [0, 0]], 1))
    for t in range(1, 6):
        state, step = env.step(state, np.array([[0, 1], [2, 2]], np.int32), KEY)
        alive = float(t <= 3)
        np.testing.assert_array_equal(step.reward, [[1 * alive, 2], [3 * alive, 3]])
        np.testing.assert_array_equal(step.final_obs[:, 0], alive * np.stack([first + t, [1, 1], [0, 0]], 1))
        np.testing.assert_array_equal(step.final_obs[:, 1], np.stack([first + t, [2, 2], [2, 2]], 1))
        assert step.done.tolist() == [t == 5] * 2 and step.terminated.tolist() == [t == 5 and terminated] * 2
        if t < 5:
            np.testing.assert_array_equal(step.obs, step.final_obs)
    assert (step.obs[:, 0, 1:] == [1, 0]).all() and (step.obs[:, 1, 1:] == 2).all()  # both agents live again
    env.close()
    assert len(module.made) == 3 and all(each.closed for each in module.made)


BREAKING = {  # method → what becomes of what it returns, and what is said of it
    "reset": [
        (lambda seen, infos: seen, "returns {agent_0: float32[2], agent_1: float32[3]}."),
        (lambda seen, infos: (seen, None), "gives infos that are NoneType None."),
        (lambda seen, infos: ({}, infos), "gives observations without agent_0, which takes part."),
        (lambda seen, infos: ({each: seen[each][None] for each in seen}, infos),
         "gives agent_0 an observation that is float32[1, 2]."),
    ],
    "step": [
        (lambda seen, *rest: (seen, *rest[:3]), "returns a tuple of 4."),
        (lambda *five: (*five[:4], []), "gives infos that are []."),
        (lambda seen, rewards, *rest: (seen, {agent: [1.0, 2.0] for agent in rewards}, *rest),
         "gives agent_0 a reward that is a list."),
        (lambda seen, rewards, ends, *rest: (seen, rewards, dict.fromkeys(ends, "no"), *rest),
         "gives agent_0 a terminated that is str 'no'."),
    ],
}


@pytest.mark.parametrize("method, broken, message", [(name, *each) for name in BREAKING for each in BREAKING[name]])
def test_agents_that_are_given_something_else(parallel, monkeypatch, method, broken, message):
    """Named with the environment's own line, by the step that is made before training."""
    original = getattr(toys.Parallel, method)
    monkeypatch.setattr(toys.Parallel, method, functools.wraps(original)(
        lambda self, *args, **kwargs: broken(*original(self, *args, **kwargs))))
    parallel(lives=("5t", "5t"))
    with pytest.raises(EnvError) as caught:
        PettingZooEnv("toy_parallel").probe()
    assert caught.value.what.startswith(f"Parallel.{method} {message}"), caught.value
    assert caught.value.also.file == "tests/envs/toys.py"


ONE_ARRAY = "An {} is one array here: Box, Discrete or MultiDiscrete (with one row of choices).\n" \
    "Register the environment with a wrapper that gives one of these: " \
    "gymnasium.wrappers.FlattenObservation turns Dict and Tuple observations into a Box."


@pytest.mark.parametrize("make, message", [
    (lambda _: GymnasiumEnv("msrl/Words-v0"),
     "gymnasium:msrl/Words-v0 has observations of the space Dict('a': Discrete(2)).\n"
     + ONE_ARRAY.format("observation")),
    (lambda _: GymnasiumEnv("msrl/Messages-v0"),
     f"gymnasium:msrl/Messages-v0 has actions of the space {toys.Messages.action_space}.\n"
     + ONE_ARRAY.format("action")),
    (lambda parallel: parallel(actions=[spaces.Discrete(3), spaces.Discrete(4)]) and PettingZooEnv("toy_parallel"),
     "pettingzoo:toy_parallel has agents with the action spaces Discrete(3), Discrete(4).\n"
     "All agents' actions make one array, so they must be the same Discrete or Box.\n"
     "Wrap the environment so that all agents have the widest one, in a module with a parallel_env()."),
    (lambda parallel: parallel(observations=[spaces.Box(0, 1, (2, 2)), spaces.Box(0, 1, (3,))])
     and PettingZooEnv("toy_parallel"),
     "pettingzoo:toy_parallel has agents that observe Box(2, 2), Box(3,).\n"
     "All agents' observations make one array: equal Boxes, or vectors that are padded to the longest.\n"
     "Wrap the environment so that its agents observe vectors, in a module with a parallel_env()."),
    (lambda _: EnvPoolEnv("FetchReach-v1"), None),
])
def test_spaces_that_do_not_fit(make, message, parallel):
    with pytest.raises(EnvError) as caught:
        make(parallel)
    if message is None:  # the space is long
        assert str(caught.value).startswith("envpool:FetchReach-v1 has observations of the space Dict(")
        assert str(caught.value).endswith(ONE_ARRAY.format("observation"))
    else:
        assert str(caught.value) == message
