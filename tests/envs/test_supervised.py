"""Environments that raise or hang are replaced, and the run goes on as if nothing had happened."""

import re
import threading

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

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
        Shaky.counts = dict(step=0, reset=0)
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


def played(env, count=40):
    state, first = env.reset(env.init(jax.random.key(0), 3), jax.random.key(1))
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
    assert_same((first, wanted), (other, found))


def test_what_hangs_is_replaced(shaky):
    _, first, wanted = played(shaky())
    env = shaky(hangs=[("step", 50)])
    env.timeout = 0.5
    state, other, found = played(env)
    assert state.failures == 1
    assert_same((first, wanted), (other, found))


def test_what_fails_every_time_is_raised(shaky):
    env = shaky(always=True)
    state, _ = env.reset(env.init(jax.random.key(0), 2), jax.random.key(1))
    with pytest.raises(EnvError) as raised:
        steps(env, state, 1, 0)
    assert re.sub(r"at step \d+", "at step N", str(raised.value)) == (
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
