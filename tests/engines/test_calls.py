"""Environments on the host that compiled loops call: what they see, and what becomes of what they raise."""

from typing import Any

import jax
import numpy as np
import pytest

from msrl.algorithms import load
from msrl.api import Box, Component, Discrete, Env, EnvSpec, Step
from msrl.backends import worker
from msrl.buffers import Rollout
from msrl.comparing import distance
from msrl.engines.calls import HostCalls, fitted
from msrl.errors import EnvError, NonFiniteError, RunError
from msrl.ir.graph import Stretch, calls, walk
from msrl.pipeline import Deployment, compile

SETTINGS = dict(num_envs=2, warmup=8, total_steps=400, batch_size=64, capacity=512, hidden=(8,))
NEVER = 10**6
PPO: Any = load("ppo")


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
    for a, b in zip(one.params()[0]["params"]["output"].values(), two.params()[0]["params"]["output"].values(),
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
    with pytest.raises(EnvError, match=r"^Stairs\.step gives a reward that is float32\[1\]\."):
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
        monkeypatch.setattr(worker, "PIECE_SECONDS", seconds)
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


# -- the buffers that such loops fill ----------------------------------------------------------------------------------


def ppo(deployment: Deployment, algorithm: Any = PPO, **more):
    settings = dict(num_envs=4, shards=2, rollout=4, minibatches=2, total_steps=64, hidden=(8,))
    return compile(algorithm, "gymnasium:CartPole-v1", deployment=deployment, **{**settings, **more})


class OnTheHost(PPO):
    def buffers(self):
        return {"rollout": Rollout(self.config.rollout, where="host")}


@pytest.mark.parametrize(("deployment", "algorithm", "where"), [
    (Deployment(), PPO, "device"),
    (Deployment("single-learner-coarse", "threads"), PPO, "device"),
    (Deployment(), OnTheHost, "host"),
    (Deployment(passes="-call-back"), PPO, "host"),
    (Deployment("single-learner-fine", "threads"), PPO, "host"),  # its loop sends and receives, so Python steps it
])
def test_a_rollout_is_where_it_is_filled(deployment, algorithm, where):
    program = ppo(deployment, algorithm)
    worker = next(w for w in program.workers if "rollout" in w.program.fragment.components)
    assert worker.ops.world.buffers["rollout"].where == where
    assert program.world.buffers["rollout"].where == "host"  # for the interpreter
    whole = isinstance(worker.program.nodes[-1], Stretch)  # the loop that trains, with its sample and its learn
    assert whole == (where == "device" and deployment.distribution == "local")


class Two(PPO):
    """Its second buffer is filled outside of the loop that steps the environment, and before something on the host."""

    def buffers(self):
        return {**super().buffers(), "ends": Rollout(1)}

    def components(self):
        return {"clock": Clock()}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(
                    "rollout", obs=obs, action=act.action, log_prob=act.log_prob, reward=step.reward,
                    terminated=step.terminated, done=step.done, final_obs=step.final_obs)
                obs = step.obs
            msrl.replay_buffer_insert("ends", reward=step.reward)
            msrl.call("clock", "tick", step.reward)
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))
            msrl.report(last=msrl.replay_buffer_sample("ends").reward.mean())


class Clock(Component):
    traceable = False

    def init(self, key):
        return np.zeros(())

    def tick(self, state, key, reward):
        return state + 1, np.float32(0)

    def output_shape(self, method, *args):
        return jax.ShapeDtypeStruct((), np.float32)


def test_each_is_where_it_is_filled():
    program = ppo(Deployment(), Two, shards=1)
    found = {name: buffer.where for name, buffer in program.workers[0].ops.world.buffers.items()}
    assert found == {"rollout": "device", "ends": "host"}
    assert [look.metrics["last"] for look in program.run() if look.metrics] == [1.0] * 4


class Apart(Two):
    """Its second buffer is filled by a loop that steps no environment."""

    def buffers(self):
        return {**PPO.buffers(self), "copies": Rollout(3)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                obs = self.one_step(msrl, obs)
            for _ in range(3):
                msrl.replay_buffer_insert("copies", obs=obs)
            msrl.call("clock", "tick", obs)
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))
            msrl.report(same=msrl.replay_buffer_sample("copies").obs.std(0).max())

    def one_step(self, msrl, obs):
        act = msrl.agent_act(obs)
        step = msrl.env_step(act.action)
        msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, log_prob=act.log_prob, reward=step.reward,
                                  terminated=step.terminated, done=step.done, final_obs=step.final_obs)
        return step.obs


def test_a_loop_that_steps_nothing_does_not_count():
    """It would call the host if its buffer were there, and not if it were inside: neither is a reason to move it."""
    program = ppo(Deployment(), Apart, shards=1)
    found = {name: buffer.where for name, buffer in program.workers[0].ops.world.buffers.items()}
    assert found == {"rollout": "device", "copies": "host"}
    assert all(look.metrics["same"] < 1e-6 for look in program.run() if look.metrics)


@pytest.mark.parametrize("distribution", ["local", "single-learner-coarse"])
def test_what_is_learnt_does_not_depend_on_it(distribution):
    found = []
    for passes in ("", "-call-back"):
        program = ppo(Deployment(distribution, "threads" if distribution != "local" else "inline", passes=passes))
        *_, last = program.run()
        found.append(program.params())
        assert last.env_steps == 64
    assert distance(*found)[0] < 1e-4


@pytest.mark.parametrize(("first", "then"), [("", "-call-back"), ("-call-back", "")])
def test_a_checkpoint_of_the_one_is_one_of_the_other(first, then):
    whole = ppo(Deployment(passes=first), checkpoint_every=1)
    points = [point for _ in whole.run() if (point := whole.taken())]
    assert len(points) > 1
    other = ppo(Deployment(passes=then), start=points[0])
    for _ in other.run():
        pass
    assert distance(whole.params(), other.params())[0] < 1e-4
