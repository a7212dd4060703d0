"""Environments that raise or hang are replaced, and the run goes on as if nothing had happened."""

import re
import threading
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from mpe2 import simple_spread_v3

from msrl import envs, pipeline
from msrl.errors import EnvError, MsrlError
from msrl.pipeline import weights_sha256
from tests.envs.test_saved_batches import steps
from tests.matrix.test_algorithms import TINY


class Shaky(CartPoleEnv):
    """Fails at chosen steps and resets, counted over all of them; each time only once."""

    counts = dict(step=0, reset=0)
    raises: frozenset = frozenset()  # ("step", number) or ("reset", number)
    hangs: frozenset = frozenset()
    always = False
    released = threading.Event()
    made = 0

    def __init__(self, **settings):
        super().__init__(**settings)
        Shaky.made += 1

    def trouble(self, what):
        Shaky.counts[what] += 1
        if (what, Shaky.counts[what]) in Shaky.raises or (Shaky.always and what == "step"):
            raise OSError(f"the simulator is gone at {what} {Shaky.counts[what]}")
        if (what, Shaky.counts[what]) in Shaky.hangs:
            Shaky.released.wait()

    def step(self, action):
        result = super().step(action)  # it fails half-way
        self.trouble("step")
        return result

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        self.trouble("reset")
        return result


@pytest.fixture
def shaky(monkeypatch):
    """Makes the environment, with trouble at these points."""
    if "Shaky-v0" not in gymnasium.registry:
        gymnasium.register("Shaky-v0", Shaky, max_episode_steps=500, disable_env_checker=True)
    made = []

    def make(raises=(), hangs=(), always=False):
        Shaky.counts, Shaky.made = dict(step=0, reset=0), 0
        monkeypatch.setattr(Shaky, "raises", frozenset(raises))
        monkeypatch.setattr(Shaky, "hangs", frozenset(hangs))
        monkeypatch.setattr(Shaky, "always", always)
        monkeypatch.setattr(Shaky, "released", threading.Event())
        made.append(envs.make("gymnasium:Shaky-v0"))
        return made[-1]

    yield make
    Shaky.released.set()
    for env in made:
        env.close()


def played(env, count=40, number=3):
    state, first = env.reset(env.init(jax.random.key(0), number), jax.random.key(1))
    return state, first, steps(env, state, count, 0)


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("raises", [[("step", 1)], [("step", 50)], [("step", 119)], [("reset", 2)], [("reset", 5)],
                                    [("step", 20), ("step", 60), ("step", 61), ("reset", 9)],
                                    [("step", number) for number in range(50, 58)]], ids=str)  # on the way back, too
def test_what_raises_is_replaced(shaky, raises):
    _, first, wanted = played(shaky())
    state, other, found = played(shaky(raises=raises))
    assert state.failures == len(raises)
    assert Shaky.made == 1 + 3 + len(raises)  # one for its spaces, three at first, and of those only what failed
    assert_same((first, wanted), (other, found))


@pytest.mark.parametrize("hangs", [[("step", 50)], [("reset", 2)], [("step", 50), ("step", 51), ("step", 60)]], ids=str)
def test_what_hangs_is_replaced(shaky, hangs):
    _, first, wanted = played(shaky())
    env = shaky(hangs=hangs)
    env.timeout = 0.5
    state, other, found = played(env)
    assert state.failures == len(hangs)
    assert Shaky.made == 1 + 3 + len(hangs)
    assert_same((first, wanted), (other, found))


def test_each_has_its_time(shaky, monkeypatch):
    """A batch may take longer than any of its environments."""
    env, step = shaky(), Shaky.step
    env.timeout = 0.5
    monkeypatch.setattr(Shaky, "step", lambda self, action: time.sleep(0.1) or step(self, action))
    state, _, found = played(env, 1, number=8)
    assert state.failures == 0 and len(found) == 1


def test_one_that_is_back_from_hanging_leaves_the_others_alone(shaky):
    _, _, wanted = played(shaky(), 12)
    env = shaky(hangs=[("step", 4)])  # the first of three, at their second step
    env.timeout = 0.5
    before = {*threading.enumerate()}
    state, _, found = played(env, 6)
    hanging = next(thread for thread in {*threading.enumerate()} - before
                   if thread.name == "msrl-env" and thread is not state._aside.thread)
    Shaky.released.set()
    hanging.join(30)
    assert_same(wanted, found + steps(env, state, 6, 6))


def test_a_way_back_that_fails_is_gone_again(shaky):
    """Restoring, too, is many steps, of which some fail by chance."""
    env = shaky()
    state, _ = env.reset(env.init(jax.random.key(0), 3), jax.random.key(1))
    steps(env, state, 8, 0)
    saved = state.save()
    wanted = steps(env, state, 20, 8)
    env = shaky(raises=[("step", 2), ("step", 12), ("reset", 5)], hangs=[("step", 20)])
    env.timeout = 0.5
    fresh = env.init(jax.random.key(5), 3)
    fresh.restore(saved)
    assert fresh.failures == 4
    assert_same(wanted, steps(env, fresh, 20, 8))


def test_many_that_fail_at_one_step_are_replaced(shaky):
    """Each has its tries: of many environments, some fail in every step. Two steps lead back, then it is made again."""
    number = 12
    _, first, wanted = played(shaky(), 5, number)
    state, other, found = played(shaky(raises=[("step", 2 * number + 1 + 4 * one) for one in range(8)]), 5, number)
    assert state.failures == 8
    assert_same((first, wanted), (other, found))


def test_one_that_comes_to_another_place_begins_anew(shaky, monkeypatch):
    """Not every environment does the same again: then its episode is broken off, and so are the others'."""
    env = shaky(raises=[("step", 50)])
    state, _ = env.reset(env.init(jax.random.key(0), 3), jax.random.key(1))
    before = steps(env, state, 16, 0)
    original = Shaky.__init__

    def slower(self, **settings):  # are those made from now on
        original(self, **settings)
        self.tau = 0.03

    monkeypatch.setattr(Shaky, "__init__", slower)
    first, second = steps(env, state, 2, 16)
    assert first.truncated.all() and not first.terminated.any() and not first.reward.any()
    np.testing.assert_array_equal(first.final_obs, before[-1].obs)
    assert not second.done.any()


def test_copies_of_several_agents_are_replaced_one_by_one(monkeypatch):
    env, original = envs.make("pettingzoo:mpe2.simple_spread_v3"), simple_spread_v3.parallel_env
    made = []

    def shaky():
        made.append(copy := original())
        step, number = copy.step, len(made)

        def stepped(actions):
            result = step(actions)
            if (number, copy.unwrapped.steps) in ((2, 7), (4, 3)):  # one of the first three, and the one in its stead
                raise OSError("gone")
            return result

        copy.step = stepped
        return copy

    _, first, wanted = played(env, 30)
    monkeypatch.setattr(simple_spread_v3, "parallel_env", shaky)
    state, other, found = played(env, 30)
    assert state.failures == 2 and len(made) == 5
    assert_same((first, wanted), (other, found))


def test_what_fails_every_time_is_raised(shaky):
    env = shaky(always=True)
    state, _ = env.reset(env.init(jax.random.key(0), 2), jax.random.key(1))
    with pytest.raises(EnvError) as raised:
        steps(env, state, 1, 0)
    assert raised.value.also is not None and raised.value.also.text.startswith('raise OSError(f"the simulator is gone')
    assert re.sub(r"at step \d+", "at step N", str(raised.value.retold(also=None))) == (
            "An environment failed 5 times in a row at the same step.\n"
            "The last time it raised OSError: the simulator is gone at step N\n"
            "What fails every time is not mended by another try: see the traceback.")
    assert isinstance(raised.value.__cause__, OSError)


def test_a_run_on_shaky_environments_has_the_bits_of_one_on_sound_ones(shaky):
    _, settings = TINY["ppo"]

    def run(**trouble):
        program = pipeline.compile("ppo", shaky(**trouble), strict=True, num_envs=4, shards=2, **settings)
        for _ in program.run():
            pass
        return weights_sha256(program.params())

    assert run(raises=[("step", 3), ("reset", 3), ("step", 17), ("step", 30)]) == run()


def test_a_run_that_cannot_go_on_says_where(shaky):
    _, settings = TINY["ppo"]
    program = pipeline.compile("ppo", shaky(always=True), num_envs=4, **settings)
    with pytest.raises(MsrlError) as raised:
        for _ in program.run():
            pass
    assert raised.value.span is not None and "env_step" in raised.value.span.text
