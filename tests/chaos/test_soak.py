"""A short soak on threads: runs with faults at random points finish, add up, and leave nothing behind. `SECONDS` makes
it longer; `make soak` is the long one, with a bar for learning."""

import dataclasses
import os
import socket

import pytest

from benchmarks import soak
from benchmarks.soak import Held, Task, held
from msrl import running

SECONDS = 1.0  # at least two runs, whatever they take


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(running, "BACK_OFF", 0.0)
    monkeypatch.setattr(soak, "TIMEOUT", 0.5)
    monkeypatch.setattr(soak, "LEAVE_SECONDS", 0.0)  # other tests' processes are not waited for


SMALL = dict(strict=True, total_steps=384, num_envs=8, rollout=4, hidden=(4,), epochs=1, minibatches=2, shards=2,
             eval_episodes=1, distribution="single-learner-coarse", actors=2)


def test_runs_with_random_faults_leave_nothing_behind(capsys):
    task = Task("threads", env="gymnasium:CartPole-v1", bar=0.0, settings=SMALL, checkpoint_every=2)
    assert task.passes == 12
    assert soak.soak(task, SECONDS, every=3.0, seed=11) == []
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("threads  seed 11: 0 losses") and first.endswith("undisturbed")
    assert others and all("@" in line for line in others)


def test_what_is_left_is_told():
    before = Held(frozenset({1}), frozenset({"a"}), 2, 5, 9, frozenset())
    assert before.more_than(before) == []
    after = Held(frozenset({1, 7}), frozenset({"a", "b"}), 3, 5, 8, frozenset({"psm_1"}))
    assert after.more_than(before) == ["processes [7]", "threads ['b']", "shared memory ['psm_1']",
                                       "3 ports instead of 2"]


def test_handles_that_hold_something_count():
    before = held()
    with socket.socket() as port, socket.socket() as unused:
        assert held().more_than(before) == []  # neither listens nor leads anywhere
        port.bind(("127.0.0.1", 0))
        port.listen()
        assert held().more_than(before) == [f"{before.ports + 1} ports instead of {before.ports}"]
        unused.connect(port.getsockname())
        assert f"{before.connections + 1} connections instead of {before.connections}" in held().more_than(before)
    read, write = os.pipe()
    assert held().more_than(before) == [f"{before.files + 2} file handles instead of {before.files}"]
    os.close(read)
    os.close(write)
    assert held().more_than(before) == []


def test_a_run_that_misses_the_bar_has_the_weights_of_one_that_nothing_befell():
    task, chaos = Task("threads", bar=1000.0, settings=SMALL, checkpoint_every=2), ["kill:actor@3"]
    result = soak.train(task, chaos, 11)
    assert soak.complaints(task, chaos, 11, result) == []
    other = dataclasses.replace(result, weights_sha256="another")
    assert soak.complaints(task, chaos, 11, other) == [f"its return is {result.eval_return_mean}, below 1000"]
