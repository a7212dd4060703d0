"""Runs that are killed at any moment, and go on in another process, here or elsewhere: to the same bits."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import TINY

ROOT = Path(__file__).parents[2]
ALGORITHM = f"{TINY}:Tiny"
RUN = ("train", ALGORITHM, "--env", "CartPole-v1", "--strict", "--json", "--eval-episodes", "2", "--num-envs", "4",
       "--shards", "4", "--total-steps", "960", "--checkpoint-every", "3")
COARSE = ("--distribution", "single-learner-coarse", "--actors", "2")
FINE = ("--distribution", "single-learner-fine", "--actors", "3")


def msrl(folder: Path, *args: str) -> subprocess.Popen:
    clean = {name: value for name, value in os.environ.items() if name not in ("PJRT_NPROC", "XLA_FLAGS")}
    return subprocess.Popen([sys.executable, "-u", "-m", "msrl.cli.main", *args], cwd=folder, text=True,
                            env={**clean, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def result(process: subprocess.Popen) -> dict:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return result(msrl(tmp_path_factory.mktemp("undisturbed"), *RUN, "--run-dir", "run"))


def kill_after(process: subprocess.Popen, folder: Path, rows: int) -> None:
    """SIGKILL once there are so many rows of metrics; at 0, as soon as there is a folder."""
    metrics = folder / "run" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < rows:
        with pytest.raises(subprocess.TimeoutExpired):  # it is still there
            process.wait(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(("first", "then"), [((), COARSE), (COARSE, FINE)], ids=["coarse", "fine"])
def test_killed_and_resumed(tmp_path, undisturbed, first, then):
    draw = random.Random(len(then) + 2 * len(first))  # where it is killed; each case has its own
    kill_after(msrl(tmp_path, *RUN, *first, "--run-dir", "run"), tmp_path, draw.randrange(12))
    kill_after(msrl(tmp_path, "resume", "run", "--algorithm", ALGORITHM, *then), tmp_path, draw.randrange(12, 26))
    found = result(msrl(tmp_path, "resume", "run", "--algorithm", ALGORITHM, "--json"))
    assert (found["status"], found["env_steps"]) == ("finished", 960)
    assert found["weights_sha256"] == undisturbed["weights_sha256"]
    assert found["eval_return_mean"] == undisturbed["eval_return_mean"]
    rows = [json.loads(line)["env_steps"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == sorted(rows) and rows[-1] == 960


def test_asked_to_stop_and_resumed(tmp_path, undisturbed):
    """Without --checkpoint-every, there is one where the run was stopped."""
    process = msrl(tmp_path, *RUN[:-2], *COARSE, "--run-dir", "run")
    assert process.stderr is not None
    for line in process.stderr:
        if " steps/s" in line:
            break
    process.send_signal(signal.SIGTERM)
    stopped = result(process)
    assert (stopped["status"], stopped["resumable"]) == ("interrupted", True)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    found = result(msrl(tmp_path, "resume", "moved", "--algorithm", ALGORITHM, "--backend", "inline", "--json"))
    assert found["weights_sha256"] == undisturbed["weights_sha256"]


def test_two_runs_into_one_folder(tmp_path):
    """One trains there, the other is refused, whichever comes first; what is there is of one run."""
    (tmp_path / "run").mkdir()
    two = [msrl(tmp_path, *RUN, "--seed", str(seed), "--run-dir", "run") for seed in (1, 2)]
    told = [process.communicate() for process in two]
    assert sorted(process.returncode for process in two) == [0, 2], told
    (out, _), (_, err) = told if two[0].returncode == 0 else told[::-1]
    assert [line for line in err.splitlines() if line in (
        "UsageError: The run in run is still going on.", "UsageError: The run folder run is not empty.")], err
    won = json.loads(out.splitlines()[-1])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {won["seed"]} == {config["seed"]} == {row["seed"] for row in rows}
