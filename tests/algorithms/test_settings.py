"""Settings that cannot be: refused when a configuration is made, in words; and the same for those of one's own."""

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import pytest

import msrl
from msrl.algorithms import ALGORITHMS, load
from msrl.api import Config, Count, Range, Widths
from msrl.api.ranges import check_value
from msrl.errors import UsageError

COUNT, NATURAL = "a whole number, 1 or more", "a whole number, 0 or more"
PORTION, POSITIVE, NOT_NEGATIVE = "a number from 0 to 1", "a finite number above 0", "a finite number, 0 or more"
WIDTHS = "a tuple, and each entry a whole number, 1 or more"
BAD = {
    COUNT: (0, -1, 1.0, "8", None), NATURAL: (-1, 0.5), PORTION: (-0.1, 2, math.nan),
    POSITIVE: (0, -1.0, math.inf, math.nan), NOT_NEGATIVE: (-1, math.inf, math.nan, "0.1"),
    WIDTHS: ((64, 0), (-1,), (2.0,), 64),
}
EVERY = {"total_steps": COUNT, "num_envs": COUNT, "shards": COUNT, "learner_shards": COUNT, "agent_shards": COUNT,
         "hidden": WIDTHS, "gamma": PORTION}
ROLLOUT = {**EVERY, "rollout": COUNT, "epochs": COUNT, "minibatches": COUNT, "learning_rate": NOT_NEGATIVE,
           "gae_lambda": PORTION, "clip": POSITIVE, "value_coef": NOT_NEGATIVE, "entropy_coef": NOT_NEGATIVE,
           "max_grad_norm": POSITIVE}
REPLAY = {**EVERY, "warmup": NATURAL, "capacity": COUNT, "batch_size": COUNT, "tau": PORTION}
ONE_STEP = {name: ROLLOUT[name] for name in ROLLOUT if name not in ("epochs", "minibatches", "clip", "gae_lambda")} | {
    "decay": PORTION, "epsilon": NOT_NEGATIVE}
SETTINGS = {
    "a2c": {**ONE_STEP, "gae_lambda": PORTION}, "a3c": {**ONE_STEP, "gae_lambda": PORTION},
    "impala": {**ONE_STEP, "vtrace_lambda": PORTION, "clip_rho": POSITIVE, "clip_c": POSITIVE},
    "ppo": ROLLOUT, "mappo": ROLLOUT,
    "dqn": {**REPLAY, "learning_rate": NOT_NEGATIVE, "train_every": COUNT, "target_every": COUNT,
            "huber_delta": POSITIVE, "max_grad_norm": POSITIVE, "epsilon_start": PORTION, "epsilon_end": PORTION,
            "epsilon_fraction": PORTION},
    "sac": {**REPLAY, "actor_learning_rate": NOT_NEGATIVE, "critic_learning_rate": NOT_NEGATIVE,
            "alpha_learning_rate": NOT_NEGATIVE, "initial_alpha": POSITIVE},
}
ANYTHING = {"target_entropy"}  # numbers of any size and sign


@dataclass(frozen=True)
class MyConfig(Config):
    num_envs: int = 4  # declared again, without a range
    depth: Annotated[int, "a remark of somebody else's", Range(2, 5, whole=True)] = 3
    widths: Widths = ()
    turns: Count = 1

    def check(self):
        if self.depth > self.num_envs:
            raise UsageError("too deep.")


def complaint(make, **fields):
    with pytest.raises(UsageError) as caught:
        make(**fields)
    return str(caught.value)


def expected(name, value, allowed):
    flag = name.replace("_", "-")
    return f"{name} is {value!r}.\nIt must be {allowed}.\nGive --{flag} (in Python: {name}=) another value."


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_number_has_a_range(algorithm):
    """Or a new setting would be forgotten here."""
    fields = dataclasses.fields(load(algorithm).Config)
    assert {each.name for each in fields if not isinstance(each.default, bool)} - ANYTHING == set(SETTINGS[algorithm])


@pytest.mark.parametrize(("algorithm", "name", "allowed"), [
    (algorithm, name, allowed) for algorithm, names in SETTINGS.items() for name, allowed in names.items()])
def test_a_value_that_cannot_be(algorithm, name, allowed):
    make = load(algorithm).Config
    for value in BAD[allowed]:
        assert complaint(make, **{name: value}) == expected(name, value, allowed)
        assert complaint(partial(dataclasses.replace, make()), **{name: value}) == expected(name, value, allowed)


@pytest.mark.parametrize(("algorithm", "fields", "message"), [
    *((algorithm, dict(rollout=4, num_envs=2, minibatches=9), """\
minibatches is 9, and there are 8 steps to divide.
An update has num_envs * rollout steps, and a minibatch takes one at least.
Give --minibatches 8 or less, or more --num-envs or --rollout (in Python: minibatches=, num_envs=, rollout=).""")
      for algorithm in ("ppo", "mappo")),
    *((algorithm, dict(capacity=100), """\
capacity is 100, and batch_size 128.
The replay must hold a whole batch, and what all environments bring in one step.
Give --capacity 128 or more, or --batch-size 100 or less (in Python: capacity=, batch_size=).""")
      for algorithm in ("dqn", "sac")),
    *((algorithm, dict(capacity=100, batch_size=8, num_envs=101), """\
capacity is 100, and num_envs 101.
The replay must hold a whole batch, and what all environments bring in one step.
Give --capacity 101 or more, or --num-envs 100 or less (in Python: capacity=, num_envs=).""")
      for algorithm in ("dqn", "sac")),
])
def test_settings_that_do_not_fit_together(algorithm, fields, message):
    assert complaint(load(algorithm).Config, **fields) == message


@pytest.mark.parametrize(("algorithm", "fields"), [
    ("ppo", dict(rollout=4, num_envs=2, minibatches=8, gamma=1, gae_lambda=0, learning_rate=0.0, hidden=())),
    ("ppo", dict(num_envs=np.int64(8), gamma=np.float32(0.5), hidden=[64])),
    ("dqn", dict(capacity=128, num_envs=128, warmup=0, tau=1, epsilon_fraction=0.0)),
    ("sac", dict(capacity=128, target_entropy=-3.5)),
])
def test_what_is_just_within(algorithm, fields):
    made = load(algorithm).Config(**fields)
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize(("fields", "message"), [
    (dict(depth=6), expected("depth", 6, "a whole number from 2 to 5")),
    (dict(depth=1), expected("depth", 1, "a whole number from 2 to 5")),
    (dict(widths=(3, 0)), expected("widths", (3, 0), WIDTHS)),
    (dict(num_envs=0), expected("num_envs", 0, COUNT)),
    (dict(depth=5), "too deep."),
])
def test_a_configuration_of_ones_own(fields, message):
    assert complaint(MyConfig, **fields) == message


def test_annotations_may_be_strings():
    """As they are in a file that begins with `from __future__ import annotations`."""
    made = dataclasses.make_dataclass("Later", [("depth", "Count", 1)], bases=(Config,), frozen=True)
    made.__module__ = __name__
    assert complaint(made, depth=0) == expected("depth", 0, COUNT)


def test_a_value_alone():
    check_value("x", 0.5, Range(0, 1))
    assert complaint(check_value, name="x", value=0, allowed=Range(0, 1, above=True)) == \
        expected("x", 0, "a number above 0 and at most 1")


@pytest.mark.parametrize("name", ["eval_every", "eval_episodes", "checkpoint_keep", "restarts", "profile"])
def test_a_program_has_no_use_for_what_a_run_does(name):
    with pytest.raises(UsageError) as caught:
        msrl.compile("ppo", "CartPole-v1", **{name: 1})
    assert str(caught.value) == f"""\
msrl.compile has no setting {name!r}.
A program only trains: who runs it evaluates it, keeps its checkpoints and goes on.
Use msrl.train, or leave it out."""
