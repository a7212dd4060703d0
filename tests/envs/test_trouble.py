"""Environments that go wrong on purpose: in the step that was named, once, and so that a run survives what it can."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from msrl import envs, pipeline
from msrl.envs.wrappers import EpisodeStats, Poisoned, observed
from msrl.errors import UsageError
from msrl.pipeline import weights_sha256
from msrl.runtime.chaos import parse
from tests.envs.test_supervised import assert_same, played
from tests.matrix.test_algorithms import TINY

NAME = "gymnasium:CartPole-v1"


@pytest.fixture
def env():
    found = envs.make(NAME)
    yield found
    found.close()


def test_steps_that_go_wrong_are_made_again(env, caplog):
    before = {*threading.enumerate()}  # others may have left some that hang
    _, first, wanted = played(env, 12)
    env.timeout = 0.2
    env.trouble([("raise", 1), ("hang", 5), ("raise", 12)])
    state, other, found = played(env, 12)
    assert state.failures == 3 and state.plays == 12
    aside = [thread for thread in {*threading.enumerate()} - before if thread.name == "msrl-env"]
    assert len(aside) == 2 and all(thread.daemon for thread in aside)  # one hangs, and would keep no process
    state.close()
    for thread in aside:
        thread.join(30)
    assert not any(thread.is_alive() for thread in aside)
    assert_same((first, wanted), (other, found))
    assert [record.getMessage() for record in caplog.records] == [
        "An environment failed (RuntimeError: --chaos raise:env); it is replaced.",
        "An environment failed (TooLong: It took more than 0.2 seconds); it is replaced.",
        "An environment failed (RuntimeError: --chaos raise:env); it is replaced."]
    assert played(env, 12)[0].failures == 0  # those who evaluate have none of it


def test_a_time_out_of_the_environments_own_is_raised_as_it_is(env):
    """It is not one of ours, and comes in time."""
    env.timeout = 30.0
    state, _ = env.reset(env.init(jax.random.key(0), 2), jax.random.key(1))

    def late():
        raise TimeoutError("the simulator does not answer")

    with pytest.raises(TimeoutError, match="the simulator does not answer"):
        state._in_time(late)


def test_what_would_hang_for_ever_is_refused(env):
    with pytest.raises(UsageError) as refused:
        env.trouble([("hang", 3)])
    assert str(refused.value) == """\
--chaos hang:env would hang for ever.
A step of the environment may take any time.
Say how many seconds it may take: --env-timeout 5
See docs/reliability.md#faults-on-purpose."""


def test_a_run_has_the_bits_of_one_that_nothing_befell(env):
    _, settings = TINY["ppo"]

    def run(chaos=""):
        program = pipeline.compile("ppo", env, strict=True, num_envs=4, shards=2, chaos=parse(chaos), **settings)
        for _ in program.run():
            pass
        return weights_sha256(program.params())

    assert run("raise:env@3,raise:env@7") == run()


# -- numbers that are none ---------------------------------------------------------------------------------------------


def rows(env, count):
    """Of every step: which rewards and observations are NaN, and the statistics at the end."""
    state, _ = env.reset(env.init(jax.random.key(0), 2), jax.random.key(1))
    found = []
    for number in range(count):
        state, step = env.step(state, env.xp.zeros(2, "int32"), jax.random.key(number))
        found.append((np.isnan(step.reward).tolist(), np.isnan(step.obs).any(1).tolist(),
                      np.isnan(step.final_obs).any(1).tolist()))
    return found, state


@pytest.mark.parametrize("name", [NAME, "jax:CartPole-v1"])
def test_the_first_environment_gives_nan_in_the_steps_that_were_named(name):
    """Also after episodes have ended: always to the left, a pole falls within ten steps."""
    base = envs.make(name)
    found, state = rows(Poisoned(base, (3, 22), (15,)), 24)
    clean, wanted = rows(EpisodeStats(base), 24)
    none, first = [False, False], [True, False]
    assert clean == [(none, none, none)] * 24
    assert [number for number, each in enumerate(found, 1) if each[0] == first] == [3, 22]
    assert [number for number, each in enumerate(found, 1) if each[1] == each[2] == first] == [15]
    assert sum(each == (none, none, none) for each in found) == 21
    assert jax.tree.structure(state) == jax.tree.structure(wanted)
    assert (state.own.episodes > 1).all()
    np.testing.assert_array_equal(state.own.return_sum, wanted.own.return_sum)
    base.close()


def test_evaluations_see_it_as_it_is():
    env = observed(envs.make("jax:CartPole-v1"), (1,))
    assert isinstance(env, Poisoned) and type(env.frozen([env.init(jax.random.key(0), 1)])) is EpisodeStats
    assert type(observed(envs.make("jax:CartPole-v1"))) is EpisodeStats


def test_in_a_compiled_run():
    _, settings = TINY["ppo"]
    program = pipeline.compile("ppo", "CartPole-v1", num_envs=4, chaos=parse("nan:reward@8"),
                               non_finite="ignore", **settings)
    for _ in program.run():
        pass
    assert all(bool(jnp.isnan(leaf).all()) for leaf in jax.tree.leaves(program.params()))
