"""The loop as plain Python: what a debugger sees, and that it means what the compiled loop means."""

import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import msrl
from msrl.comparing import Outcome, difference
from msrl.errors import LoweringError
from tests.matrix.comparing import check
from tests.matrix.toys import Corridor, HostCorridor, Whole


class Noisy(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        total = 0.0
        for i in range(3):
            step = self.walk(msrl, obs)
            print("pass", i, "total", total)
            total += 0.1
            if i == 1:
                breakpoint()
            obs = step.obs
            msrl.report(total=total, reward=step.reward.sum())

    def walk(self, msrl, obs):
        print("walks from", obs.shape)
        return msrl.env_step(msrl.agent_act(obs).action)


class Quiet(Whole):
    """Noisy without what is there for people."""

    def train(self, msrl):
        obs = msrl.env_reset()
        total = 0.0
        for _ in range(3):
            step = msrl.env_step(msrl.agent_act(obs).action)
            total += 0.1
            obs = step.obs
            msrl.report(total=total, reward=step.reward.sum())


def test_print_and_breakpoint_work(monkeypatch, capsys):
    seen = []

    def stopped():
        frame = inspect.currentframe().f_back
        seen.append((frame.f_code.co_filename, frame.f_lineno, frame.f_locals["i"], frame.f_locals["total"]))

    monkeypatch.setattr(sys, "breakpointhook", stopped)
    outcome = Outcome(*msrl.eager(Noisy, Corridor(), seed=3))
    lines, first = inspect.getsourcelines(Noisy.train)
    line = first + next(at for at, text in enumerate(lines) if "breakpoint()" in text)
    assert [each[:3] for each in seen] == [(__file__, line, 1)]
    assert seen[0][3] == np.float32(0.1) + np.float32(0.1)
    assert capsys.readouterr().out.splitlines() == [
        "walks from (4, 2)", "pass 0 total 0.0", "walks from (4, 2)", "pass 1 total 0.1", "walks from (4, 2)",
        "pass 2 total 0.2"]
    quiet = msrl.compile(Quiet, Corridor(), seed=3, strict=True)
    assert difference(Outcome(*quiet.interpret()), outcome) is None
    with pytest.raises(LoweringError, match=r"`msrl train ... --eager`, or `msrl.eager\(...\)`"):
        msrl.compile(Noisy, Corridor())


class InPlace(Whole):
    def train(self, msrl):
        step = msrl.env_step(msrl.agent_act(msrl.env_reset()).action)
        shaped = step.reward
        shaped += 10.0
        a = b = [1.0]
        a += [2.0]
        msrl.report(reward=step.reward.sum(), shaped=shaped.sum(), alias=sum(b), longer=sum(a))


@pytest.mark.parametrize("env", [Corridor, HostCorridor])
def test_augmented_assignment_makes_a_new_value(env):
    report, = check(InPlace, env()).reports
    assert report["shaped"] == report["reward"] + 40
    assert (report["alias"], report["longer"]) == (1, 3)


class Around(Whole):
    """What rewriting must leave as it is: closures, defaults, static methods, `super()`, comprehensions and lambdas."""

    def train(self, api):
        obs = api.env_reset()
        low = 0.5
        for i in range(2):
            low = self.step(api, obs, low, by=i + 1)
            obs = api.env_step(
                jnp.where(obs.sum(1) > 3,
                          api.agent_act(obs, low if low > 0.2 else 1).action, 0)).obs
            parts = [q * low for q in range(3)]
            api.report(low=low, parts=sum(parts), f=(lambda low: low + 1)(i), n=self.scaled(obs), name=len(f"{i}"))

    @staticmethod
    def step(msrl, x, y=2.0, *, by):
        y -= msrl.call("tally", "add", x) * 0 + 0.25 / by
        return y

    def scaled(self, x):
        return super().__getattribute__("spec").max_episode_steps * x.sum()


def test_what_rewriting_leaves_alone():
    assert [row["low"] for row in check(Around, Corridor()).reports] == [0.25, 0.125]


def test_arrays_of_the_host_are_jax_arrays():
    seen = []

    class Kinds(InPlace):
        def train(self, msrl):
            obs = msrl.env_reset()
            print(seen.append((type(obs), obs.dtype, type(obs.sum()))))

    msrl.eager(Kinds, HostCorridor())
    assert issubclass(seen[0][0], jax.Array)
    assert seen[0][1] == jnp.int32
