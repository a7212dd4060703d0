"""Signals as a process meets them: which, when, on what backend. `make stops` has tens of random moments of each."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.stops import hear_all
from msrl.runtime import checkpoints
from tests.cli.conftest import TINY

ROOT = Path(__file__).parents[2]
SPREAD = ("--num-envs", "4", "--shards", "4", "--distribution", "single-learner-coarse", "--actors", "2")
LONG = ("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--total-steps", "40000000", "--run-dir", "run")
ENDLESS_PASS = ("--total-steps", "2000000000", "--steps", "1000000", "--num-envs", "1000")  # takes minutes
RESUME = f"resume       msrl resume run --algorithm={TINY}:Tiny"


class Command:
    """A process with a group of its own, whose output is read as it comes."""

    def __init__(self, folder: Path, *args: str, **variables: str):
        clean = {name: value for name, value in os.environ.items() if name not in ("PJRT_NPROC", "XLA_FLAGS")}
        hear_all()
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "msrl.cli.main", *args], cwd=folder, text=True, start_new_session=True,
            env={**clean, "PYTHONPATH": str(ROOT), **variables},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines: list[str] = []

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return
        pytest.fail(f"it never said {text!r}: {self.lines}, {self.process.communicate()}")

    def end(self) -> tuple[int, list[str], str]:
        """(exit code, lines of standard output, standard error)"""
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, [*self.lines, *out.splitlines()], err


def sound(run: Path) -> list[str]:
    """The checkpoints, each of which can be read."""
    return [each.name for each in checkpoints.listed(run) if checkpoints.read(each)]


def status(run: Path) -> str:
    return json.loads((run / "config.json").read_text())["status"]


def test_sigterm_under_threads(tmp_path):
    with Command(tmp_path, *LONG, *SPREAD) as command:
        command.until(" steps/s")
        command.process.send_signal(signal.SIGTERM)
        code, lines, err = command.end()
    assert (code, err) == (0, "")
    assert "SIGTERM: stopping after the current update. Once more stops at once." in lines and RESUME in lines
    assert (status(tmp_path / "run"), len(sound(tmp_path / "run"))) == ("interrupted", 1)


@pytest.mark.parametrize("moment, number", [("engine ", signal.SIGHUP), (" steps/s", signal.SIGTERM)])
def test_a_signal_to_all_of_the_group_under_ray(tmp_path, moment, number):
    """As Ray starts, and as it trains. A terminal that is closed tells all that were started from it; Ray is needed
    for the checkpoint. Ray's own handler would report SIGTERM as a crash."""
    with Command(tmp_path, *LONG, *SPREAD, "--backend", "ray") as command:
        command.until(moment)
        os.killpg(command.process.pid, number)
        code, lines, err = command.end()
    assert (code, err) == (0, "")
    assert RESUME in lines
    assert (status(tmp_path / "run"), len(sound(tmp_path / "run"))) == ("interrupted", 1)


def test_a_second_signal_leaves_the_last_checkpoint_whole(tmp_path):
    """The environments hang once there is a checkpoint, so that the first signal alone would be waited for."""
    (tmp_path / "hanging.py").write_text(HANGING)
    with Command(tmp_path, *LONG, "--env", "gymnasium:hanging:Hanging-v0", "--checkpoint-every", "2", "--num-envs", "1",
                 PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}") as command:
        command.until("hangs")
        command.process.send_signal(signal.SIGTERM)
        command.until("Once more stops at once.")
        command.process.send_signal(signal.SIGTERM)
        code, _, err = command.end()
    assert (code, status(tmp_path / "run")) == (143, "interrupted"), err
    assert sound(tmp_path / "run")


HANGING = """
import pathlib, time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Hanging(CartPoleEnv):
    def step(self, action):
        if any(pathlib.Path("run/checkpoints").glob("0-*")):
            print("hangs", flush=True)
            time.sleep(600)
        return super().step(action)

gymnasium.register("Hanging-v0", Hanging, max_episode_steps=20)
"""


def test_a_stop_takes_no_longer_than_its_grace_period(tmp_path):
    with Command(tmp_path, *LONG, *ENDLESS_PASS, "--grace", "0.5s") as command:
        command.until("engine ")
        command.process.send_signal(signal.SIGTERM)
        code, lines, _ = command.end()
    assert code == 143
    assert lines[-2:] == [
        "SIGTERM: stopping after the current update within 0.5 seconds. Once more stops at once.",
        "The grace period of 0.5 seconds is over: stopped at once."]


def test_a_closed_pipe_stops_it_as_a_signal_does(tmp_path):
    with Command(tmp_path, *LONG, "--checkpoint-every", "1") as command:
        command.until("engine ")
        command.process.stdout.close()
        err = command.process.stderr.read()
        code = command.process.wait(240)
    assert code == 0, err
    lines = err.splitlines()
    assert "SIGPIPE: stopping after the current update. Once more stops at once." in lines and RESUME in lines
    assert status(tmp_path / "run") == "interrupted" and sound(tmp_path / "run")


def test_a_closed_pipe_ends_other_commands_without_a_word(tmp_path):
    with Command(tmp_path, "list") as command:
        command.process.stdout.close()
        err = command.process.stderr.read()
        assert (command.process.wait(240), err) == (141, "")


def test_ascii_only(tmp_path):
    with Command(tmp_path, *LONG, *SPREAD, "--total-steps", "64", "--eval-episodes", "2",
                 PYTHONIOENCODING="ascii") as command:
        code, lines, err = command.end()
    assert (code, err) == (0, "")
    assert "deployment   single-learner-coarse: actor x2, learner; threads" in lines
    assert any(line.startswith("return       ") and " +/- " in line for line in lines)
