"""A run that is asked to stop, at every kind of moment: it ends well, and goes on to where it would have got."""

import dataclasses
import json
import time

import pytest

import msrl as package
from msrl.backends import worker
from msrl.jobs import prepare
from msrl.resuming import resumed
from msrl.running import Run, Stopped, run
from msrl.runtime import checkpoints
from msrl.runtime.chaos import parse
from msrl.runtime.display import Display, State
from msrl.runtime.interrupts import Stop
from tests.cli.conftest import TINY

SETTINGS = dict(total_steps=1280, num_envs=4, shards=4, eval_episodes=2)
COARSE = dict(distribution="single-learner-coarse", actors=2)
SPREAD = {"inline": {}, "threads": dict(backend="threads"), "coarse inline": {**COARSE, "backend": "inline"},
          "coarse threads": {**COARSE, "backend": "threads"},
          "fine threads": dict(distribution="single-learner-fine", actors=2, backend="threads")}
ASYNC = {"coarse-async": dict(distribution="single-learner-coarse-async", actors=2, backend="threads")}


class Asks(Display):
    """Asks to stop at the `count`th time of a moment."""

    def __init__(self, moment: str, count: int = 1):
        self.stop, self.moment, self.left = Stop(), moment, count
        self.evaluated: list[tuple[int, int]] = []

    def reach(self, moment: str) -> None:
        self.left -= moment == self.moment
        if not self.left:
            self.stop.ask()

    def say(self, *lines):
        self.reach("announced")

    def begin(self, total):
        self.reach("compiling")

    def update(self, state):
        self.reach("update")

    def evaluate(self, ended, episodes):
        self.evaluated.append((ended, episodes))
        self.reach("evaluating")


def job(**settings):
    return prepare(f"{TINY}:Tiny", "CartPole-v1", **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def whole():
    """What a run comes to that nobody stops."""
    known = {}

    def find(spread: str):
        if spread not in known:
            known[spread] = package.train(f"{TINY}:Tiny", "CartPole-v1", progress=False,
                                          **{**SETTINGS, **(SPREAD | ASYNC)[spread]})
        return known[spread]

    return find


@pytest.mark.parametrize("moment, count", [("announced", 1), ("compiling", 1), ("update", 1), ("update", 5)])
@pytest.mark.parametrize("spread", SPREAD)
def test_it_goes_on_to_where_it_would_have_got(tmp_path, whole, spread, moment, count):
    asks = Asks(moment, count)
    stopped = run(job(**SPREAD[spread]), tmp_path / "run", asks, asks.stop)
    assert (stopped.status, stopped.resumable, stopped.eval_return_mean) == ("interrupted", True, None)
    assert stopped.env_steps < 1280
    assert json.loads((tmp_path / "run" / "config.json").read_text())["status"] == "interrupted"
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert (found.status, found.env_steps) == ("finished", 1280)
    assert found.weights_sha256 == whole(spread).weights_sha256
    assert found.eval_return_mean == whole(spread).eval_return_mean


@pytest.mark.parametrize("spread", ASYNC)
def test_where_nobody_waits_it_stops_as_well(tmp_path, spread):
    asks = Asks("update", 2)
    stopped = run(job(**ASYNC[spread], total_steps=128_000), tmp_path / "run", asks, asks.stop)
    assert (stopped.status, stopped.resumable) == ("interrupted", True)
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert found.status == "finished"


def test_a_checkpoint_that_is_being_written_is_finished(tmp_path, whole, monkeypatch):
    asks, write = Asks("never"), checkpoints.write_checkpoint

    def asked(*given):
        asks.stop.ask()
        write(*given)

    monkeypatch.setattr(checkpoints, "write_checkpoint", asked)
    stopped = run(job(checkpoint_every=3), tmp_path / "run", asks, asks.stop)
    assert (stopped.status, stopped.resumable) == ("interrupted", True)
    assert all(checkpoints.read(each) for each in checkpoints.listed(tmp_path / "run"))
    monkeypatch.undo()
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert found.weights_sha256 == whole("inline").weights_sha256


def test_an_evaluation_amid_training_is_left_for_the_checkpoint(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("msrl.engines.evaluation.PIECE_SECONDS", 0.0)
    asks = Asks("evaluating")
    stopped = run(job(eval_every=4, noise=0.0), tmp_path / "run", asks, asks.stop)
    assert len(asks.evaluated) == 1
    assert (stopped.status, stopped.resumable, stopped.env_steps < 640) == ("interrupted", True, True)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_the_last_evaluation_is_left_and_the_run_is_finished(tmp_path, monkeypatch, env):
    """All that was to be learnt has been, and is kept: there is nothing to go on with."""
    monkeypatch.setattr("msrl.engines.evaluation.PIECE_SECONDS", 0.0)
    asks = Asks("evaluating")
    mine = dataclasses.replace(job(total_steps=64), base=prepare(f"{TINY}:Tiny", env).base)
    result = run(mine, tmp_path / "run", asks, asks.stop)
    (ended, episodes), = asks.evaluated
    assert ended < episodes == 2
    assert (result.status, result.env_steps, result.eval_return_mean) == ("finished", 64, None)
    assert (tmp_path / "run" / "weights" / "0").is_dir()


def test_a_run_that_goes_on_and_is_stopped_before_its_first_update_is_as_it_was(tmp_path, whole):
    asks = Asks("update", 3)
    stopped = run(job(), tmp_path / "run", asks, asks.stop)
    mine, start = resumed(tmp_path / "run", algorithm=f"{TINY}:Tiny")
    stop = Stop()
    stop.ask()
    with pytest.raises(Stopped) as told:
        run(mine, tmp_path / "run", Display(), stop, start=start)
    assert (told.value.checkpoint, told.value.steps) == (True, stopped.env_steps)
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert found.weights_sha256 == whole("inline").weights_sha256


def test_stopped_before_anything_there_is_nothing(tmp_path):
    stop = Stop()
    stop.ask()
    with pytest.raises(Stopped) as told:
        run(job(), tmp_path / "run", Display(), stop)
    assert (told.value.checkpoint, (tmp_path / "run").exists()) == (False, False)


def test_seeds_one_after_another_go_on_with_the_next(tmp_path):
    """The first is done when the wish to stop comes; the second has a checkpoint that knows of it."""
    settings = dict(seeds=2, strict=True, total_steps=256)
    undisturbed = package.train(f"{TINY}:Tiny", "CartPole-v1", progress=False, **{**SETTINGS, **settings})
    asks = Asks("update", 9)
    stopped = run(job(**settings), tmp_path / "run", asks, asks.stop)
    assert (stopped.status, stopped.resumable, len(stopped.per_seed)) == ("interrupted", True, 2)
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert (found.status, found.weights_sha256) == ("finished", undisturbed.weights_sha256)


def test_workers_that_are_lost_while_it_stops_are_not_waited_for(tmp_path, whole, monkeypatch):
    """Who stops a whole job may end its workers before the run itself has heard of it."""
    stop, attempt = Stop(), Run.attempt

    def loses(self, seed, seeds):
        try:
            attempt(self, seed, seeds)
        finally:
            stop.ask()

    monkeypatch.setattr(Run, "attempt", loses)
    mine = dataclasses.replace(job(**COARSE, backend="threads", checkpoint_every=2), chaos=parse("kill:actor@9"))
    with pytest.raises(Stopped) as told:
        run(mine, tmp_path / "run", Display(), stop)
    monkeypatch.undo()
    assert told.value.checkpoint and told.value.steps > 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["status"] == "interrupted"
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert found.weights_sha256 == whole("coarse threads").weights_sha256


def test_a_clock_that_jumps_back_changes_nothing(tmp_path, whole, monkeypatch):
    """Lengths of time are measured by a clock that nobody sets."""
    real = time.time

    class SetsBack(Asks):
        def update(self, state):
            monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
            super().update(state)

    asks = SetsBack("update", 3)
    stopped = run(job(checkpoint_every=2), tmp_path / "run", asks, asks.stop)
    assert asks.left <= 0
    monkeypatch.undo()  # the clock is back where it was, before what has been written
    found = package.resume(tmp_path / "run", algorithm=f"{TINY}:Tiny", progress=False)
    assert stopped.total_seconds >= stopped.train_seconds >= 0 and found.train_seconds >= 0
    assert found.weights_sha256 == whole("inline").weights_sha256
    seconds = [json.loads(line)["seconds"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert seconds == sorted(seconds) and seconds[0] >= 0


def test_what_a_resume_compiles_is_counted_once(tmp_path, monkeypatch):
    """By the engine, and as part of getting ready. Else training would have taken less than no time so far."""
    asks, begin = Asks("update", 3), worker.begin
    run(job(), tmp_path / "run", asks, asks.stop)
    shown: list[State] = []

    class Shows(Display):
        def update(self, state):
            shown.append(state)

    def compiles(self, share):
        self.count_compiling(1000.0)
        return begin(self, share)

    monkeypatch.setattr(worker, "begin", compiles)
    mine, start = resumed(tmp_path / "run", algorithm=f"{TINY}:Tiny")
    run(mine, tmp_path / "run", Shows(), start=start)
    assert shown and all(state.seconds > 0 for state in shown)
