"""The run folder, apart from any run."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from msrl.errors import UsageError
from msrl.runtime import files
from msrl.runtime import folder as module
from msrl.runtime.folder import FAILED, INTERRUPTED, RUNNING, RunFolder, check_free, default_path
from msrl.runtime.lease import Lease, LeaseError


def folder(path) -> RunFolder:
    return RunFolder(path / "run", {"algorithm": "ppo", "env": "CartPole-v1"}, "msrl train ppo --env CartPole-v1")


def test_nothing_exists_before_it_is_opened(tmp_path):
    run = folder(tmp_path)
    run.close("finished")
    run.abandon()
    assert not list(tmp_path.iterdir())


def test_it_is_whole_at_every_moment(tmp_path):
    run = folder(tmp_path)
    run.open()
    run.row({"seed": 0, "env_steps": 8, "seconds": 0.1, "episode_return": None, "loss": float("nan")})
    assert json.loads((run.path / "config.json").read_text())["status"] == RUNNING
    assert json.loads((run.path / "metrics.jsonl").read_text()) == {
        "seed": 0, "env_steps": 8, "seconds": 0.1, "episode_return": None, "loss": None}
    assert (run.path / "reproduce.sh").read_text() == "#!/bin/sh\nmsrl train ppo --env CartPole-v1\n"
    run.abandon()
    assert json.loads((run.path / "config.json").read_text())["status"] == INTERRUPTED
    run.close("finished")  # comes too late to say so
    assert json.loads((run.path / "config.json").read_text())["status"] == INTERRUPTED


def test_a_name_that_is_taken_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "now")
    first = default_path("algos/mine.py:Mine", "pettingzoo:mpe2.simple_spread_v3", 4)
    assert str(first) == "runs/Mine-mpe2.simple_spread_v3-4-now"
    first.mkdir(parents=True)
    assert str(default_path("algos/mine.py:Mine", "pettingzoo:mpe2.simple_spread_v3", 4)) == f"{first}-2"


def test_names_of_algorithms_and_environments_stay_under_runs():
    for name in ("../../x", "/etc/passwd", "..", "a/b:../c", "x.py:Own", "ALE/Pong-v5"):
        path = default_path(name, name, 0)
        assert path.parent == Path("runs")
        assert path.resolve().parent == Path("runs").resolve()


def test_it_appears_with_all_that_resuming_takes(tmp_path, monkeypatch):
    """Killed before any of its writes, a run has left no folder of that name; after them, a whole one."""
    writes = []
    whole = {"config.json", "deployment.toml", "reproduce.sh", "lease.json"}

    class Killed(Exception):
        pass

    def killed_at(number):
        def write(path, content):
            if len(writes) == number:
                raise Killed
            writes.append(path)
            real(path, content)
        return write

    real = module.write
    for number in range(4):
        writes.clear()
        run = RunFolder(tmp_path / f"run-{number}", {"algorithm": "ppo", "env": "x"}, "msrl train")
        with monkeypatch.context() as patched:
            patched.setattr(module, "write", killed_at(number))
            try:
                run.open({"deployment.toml": b"x"})
            except Killed:
                assert not run.path.exists()
                continue
        assert number == 3
        assert whole <= {each.name for each in run.path.iterdir()}


def test_a_folder_that_is_there_already_is_a_run_once_it_has_its_config(tmp_path, monkeypatch):
    """It may be a disk of its own. One whose making was cut short counts as empty."""
    (tmp_path / "run").mkdir()
    run = folder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "_status", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.open({"deployment.toml": b"x"})
    run.release()
    assert {each.name for each in run.path.iterdir()} == {"lease.json", "deployment.toml", "reproduce.sh"}
    check_free(run.path)
    again = folder(tmp_path)
    again.open({"deployment.toml": b"x"})
    assert (run.path / "config.json").exists()
    with pytest.raises(UsageError, match="is not empty"):
        check_free(run.path)


@pytest.mark.parametrize("there", [True, False])
def test_of_two_runs_in_one_folder_the_second_is_refused(tmp_path, there, monkeypatch):
    """Also if the first makes it while the second is at it."""
    first, second = folder(tmp_path), folder(tmp_path)
    if there:
        first.open()
    else:
        fill = RunFolder._fill

        def late(self, *args):
            if self is second:
                first.open()
            fill(self, *args)

        monkeypatch.setattr(RunFolder, "_fill", late)
    with pytest.raises(UsageError) as refused:
        second.open()
    assert refused.value.what == (f"The run in {tmp_path}/run is still going on." if there else
                                  f"The run folder {tmp_path}/run is not empty.")
    first.check()
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_run_that_goes_on_forgets_its_result(tmp_path):
    """It tells of weights that will be others, also where the run fails before it has another result."""
    first = folder(tmp_path)
    first.open()
    first.close(INTERRUPTED, {"weights_sha256": "of the first"})
    first.release()
    assert (tmp_path / "run" / "result.json").exists()
    again = RunFolder(tmp_path / "run", dict(first.about), "", [], Lease.take(tmp_path / "run"))
    again.open()
    again.close(FAILED)
    again.release()
    assert not (tmp_path / "run" / "result.json").exists()


def test_nothing_is_written_to_a_folder_that_is_gone(tmp_path):
    run = folder(tmp_path)
    run.open()
    shutil.rmtree(run.path)
    for write in (lambda: run.row({"env_steps": 1}), lambda: run.keep(0, {}), lambda: run.close("finished"),
                  run.settle, run.abandon):
        with suppress(LeaseError):
            write()
        assert not run.path.exists()
    assert not run.opened


def test_files_are_on_disk_before_their_names_are(tmp_path, monkeypatch):
    """What a crash of the machine leaves: the order of the calls, as the kernel gets them."""
    calls = []

    def fsync(descriptor):
        calls.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))

    real = os.rename

    def rename(old, new):
        calls.append(("rename", Path(new)))
        real(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", rename)
    files.write(tmp_path / "file", b"content")
    (tmp_path / "aside" / "inner").mkdir(parents=True)
    (tmp_path / "aside" / "inner" / "leaf").write_bytes(b"x")
    files.put(tmp_path / "aside", tmp_path / "place")
    kinds = [(kind, path.name) for kind, path in calls]
    home = tmp_path.name
    assert kinds.pop(0)[1].startswith(".file.")
    assert kinds == [("rename", "file"), ("sync", home), ("sync", "leaf"), ("sync", "inner"),
                     ("sync", "aside"), ("rename", "place"), ("sync", home), ("sync", tmp_path.parent.name)]
