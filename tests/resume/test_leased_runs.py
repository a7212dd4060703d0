"""Runs whose folder another process wants, takes away, or deletes."""

import shutil
from pathlib import Path

import pytest

from msrl.errors import UsageError
from msrl.jobs import prepare
from msrl.results import Result
from msrl.resuming import resumed
from msrl.running import run
from msrl.runtime.display import Display
from msrl.runtime.lease import FILE, Lease, LeaseError
from tests.cli.tiny import Tiny


class Meddling(Display):
    """Does something after the first update."""

    def __init__(self, meddle):
        self.meddle, self.done = meddle, False

    def update(self, state):
        if not self.done:
            self.done = True
            self.meddle()


def train(path: Path, meddle) -> Result:
    job = prepare(Tiny, "CartPole-v1", total_steps=320, checkpoint_every=2, eval_episodes=1)
    return run(job, path, Meddling(meddle))


def test_a_live_run_is_not_resumed(tmp_path):
    path, refused = tmp_path / "run", []

    def resume():
        with pytest.raises(UsageError) as caught:
            resumed(path)
        refused.append(caught.value.what)

    assert train(path, resume).status == "finished"
    assert refused == [f"The run in {path} is still going on."]


def test_a_run_folder_that_is_deleted_meanwhile(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(LeaseError) as lost:
        train(path, lambda: shutil.rmtree(path))
    assert lost.value.what == f"The run folder {path} is gone."
    assert not path.exists()


def test_a_run_that_has_lost_its_lease_writes_no_more(tmp_path):
    path, other = tmp_path / "run", []

    def take_over():
        (path / FILE).unlink()
        other.append(Lease.take(path))
        for name in ("metrics.jsonl", "config.json"):
            (path / name).write_text("the other's")

    with pytest.raises(LeaseError) as lost:
        train(path, take_over)
    assert lost.value.what == f"The run in {path} has lost its lease."
    other[0].check()
    assert {(path / name).read_text() for name in ("metrics.jsonl", "config.json")} == {"the other's"}
    assert not (path / "checkpoints").exists() and not (path / "weights").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_the_lease_is_given_back(tmp_path):
    train(tmp_path / "run", lambda: None)
    Lease.take(tmp_path / "run").check()
