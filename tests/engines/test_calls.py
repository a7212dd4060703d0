"""Environments on the host that compiled loops call: what they see, and what becomes of what they raise."""

import jax
import numpy as np
import pytest

from msrl.api import Box, Discrete, Env, EnvSpec, Step
from msrl.backends import worker
from msrl.engines.calls import HostCalls, fitted
from msrl.errors import EnvError, NonFiniteError, RunError
from msrl.ir.graph import Stretch, calls, walk
from msrl.pipeline import Deployment, compile

SETTINGS = dict(num_envs=2, warmup=8, total_steps=400, batch_size=64, capacity=512, hidden=(8,))
NEVER = 10**6


class Stairs(Env):
    """On the host. Steps are counted from 1; at some of them something may go wrong."""

    traceable, draws, called_back = False, False, True
    spec = EnvSpec("stairs", Box((1,), 0, 10**6), Discrete(2))

    def __init__(self, raises: int = NEVER, spoils: int = NEVER, narrow: int = NEVER):
        self.raises, self.spoils, self.narrow = raises, spoils, narrow
        self.steps, self.actions = 0, []

    def init(self, key, num_envs):
        return np.zeros((num_envs, 1), np.float32)

    def reset(self, state, key):
        return state, state.copy()

    def step(self, state, action, key):
        self.steps += 1
        self.actions.append(np.array(action))
        if self.steps == self.raises:
            raise ZeroDivisionError("the stairs are broken")
        state = state + 1 if self.steps != self.narrow else state[:1]
        rewards = np.full(len(state), np.nan if self.steps == self.spoils else 1.0, np.float32)
        over = np.zeros(len(state), bool)
        return state, Step(state, rewards, over, over, state)


def run(env: Env, passes: str = "", **settings):
    program = compile("dqn", env, deployment=Deployment(passes=passes), **{**SETTINGS, **settings})
    looks = list(program.run())
    return program, looks


def test_both_ways_see_the_same():
    called, stepped = Stairs(), Stairs()
    (one, looks), (two, others) = run(called), run(stepped, "-call-back")
    assert any(isinstance(node, Stretch) for node in one.workers[0].program.nodes[-2:])
    assert called.steps == stepped.steps == 200
    assert np.array_equal(called.actions, stepped.actions)
    assert [look.env_steps for look in looks] == [look.env_steps for look in others]
    for a, b in zip(one.params()[0]["params"]["Dense_0"].values(), two.params()[0]["params"]["Dense_0"].values(),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("passes", ["", "-call-back"])
def test_what_it_raises_is_told_by_the_line(passes):
    env = Stairs(raises=50)
    with pytest.raises(RunError) as caught:
        run(env, passes)
    assert str(caught.value).startswith("`env.step` fails: ZeroDivisionError.\n")
    assert "msrl.env_step(act.action)" in caught.value.span.text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert env.steps == 50  # nobody steps it again


def test_it_is_not_stepped_after_a_learn_that_is_not_finite():
    counts = []
    for passes in ("", "-call-back"):
        env = Stairs(spoils=20)
        with pytest.raises(NonFiniteError):
            run(env, passes)
        counts.append(env.steps)
    assert counts[0] == counts[1] < 60


def test_a_step_of_another_shape():
    with pytest.raises(EnvError, match=r"An environment gave an array of \(1, 1\), and its spaces say \(2, 1\)\."):
        run(Stairs(narrow=30))


def test_other_dtypes_are_made_to_fit():
    found = fitted([1.0, 2.0], jax.ShapeDtypeStruct((2,), np.float32))
    assert found.dtype == np.float32


def test_a_problem_is_raised_once():
    host = HostCalls(lambda *given: None)
    host.check()
    host.problem = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        host.check()
    host.check()


def test_a_slow_one_lets_the_host_in(monkeypatch):
    """A chunk of many passes is made in several calls, by the clock; the host looks as often as it does anyway."""
    monkeypatch.setattr(worker, "LOOKS", 2)
    made, original = [], worker.Chunk.enter
    monkeypatch.setattr(worker.Chunk, "enter", lambda self, carried: made.append(1) or original(self, carried))
    looks, calls_made = [], []
    for seconds in (0.0, 60.0):  # all calls take too long, or could be longer
        monkeypatch.setattr(worker, "WHILE_SECONDS", seconds)
        made.clear()
        looks.append(len(list(compile("dqn", Stairs(), **SETTINGS).run())))
        calls_made.append(len(made))
    assert looks[0] == looks[1]
    assert calls_made[0] == 200 > 40 > calls_made[1]


def test_threads_that_wait_for_the_host_leave_some_to_compute(monkeypatch):
    """More instances than XLA has threads to spare step their environments in Python."""
    monkeypatch.setenv("PJRT_NPROC", "3")
    for actors, called in ((2, True), (3, False)):
        program = compile("ppo", "gymnasium:CartPole-v1", num_envs=6, shards=6, rollout=4, total_steps=96,
                          deployment=Deployment("single-learner-coarse", "threads", actors=actors))
        env = next(w for w in program.workers if "env" in w.program.fragment.components)
        loops = [node for node in walk(env.program.nodes) if isinstance(node, Stretch)
                 and any(call.method == "step" for call in calls(node.nodes))]
        assert bool(loops) == called
