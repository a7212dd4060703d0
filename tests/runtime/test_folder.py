"""The run folder, apart from any run."""

import json
from pathlib import Path

from msrl.runtime.folder import INTERRUPTED, RUNNING, RunFolder, default_path


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
