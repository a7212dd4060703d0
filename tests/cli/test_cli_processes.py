"""What only a process of its own can show: signals, strict mode, a whole algorithm."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import TINY

ROOT = Path(__file__).parents[2]
LONG = ("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--total-steps", "40000000", "--run-dir", "run", "--json")


def start(folder: Path, *args: str, **variables: str) -> subprocess.Popen:
    """A command, or a program if there is but one argument."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PJRT_NPROC", "XLA_FLAGS")}
    return subprocess.Popen(
        [sys.executable, "-u", *(("-c",) if len(args) == 1 else ("-m", "msrl.cli.main")), *args], cwd=folder, text=True,
        env={**clean, "PYTHONPATH": str(ROOT), **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until_training(process: subprocess.Popen) -> None:
    """Reads until the first line of progress."""
    assert process.stderr is not None
    for line in process.stderr:
        if " steps/s" in line:
            return
    pytest.fail(f"it never began; exit code {process.wait()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_well(tmp_path, number):
    process = start(tmp_path, *LONG)
    until_training(process)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 0
    assert f"{number.name}: stopping after the current update. Once more stops at once." in err.splitlines()
    assert "run folder   run" in err.splitlines()
    assert f"resume       msrl resume run --algorithm={TINY}:Tiny" in err.splitlines()
    result = json.loads(out.splitlines()[-1])
    assert (result["status"], result["resumable"], result["eval_return_mean"]) == ("interrupted", True, None)
    folder = tmp_path / "run"
    assert json.loads((folder / "config.json").read_text())["status"] == "interrupted"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] == result["env_steps"] > 0
    assert (folder / "curve.png").is_file() and (folder / "weights" / "0").is_dir()
    assert len(list((folder / "checkpoints").iterdir())) == 1


def test_a_second_signal_ends_it_at_once(tmp_path):
    """A chunk of this run takes minutes, so the first signal alone would be waited for."""
    process = start(tmp_path, *LONG, "--total-steps", "2000000000", "--steps", "1000000", "--num-envs", "1000")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("engine"):
            break
    process.send_signal(signal.SIGINT)
    assert "Once more" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.communicate()
    assert not (tmp_path / "run").exists()  # there was nothing to keep


STUCK = """
import gymnasium, jax, jax.numpy as jnp
from gymnasium.envs.classic_control import CartPoleEnv

product, ones, made = jax.jit(lambda x: x @ x), jnp.ones((300, 300)), []

class Stuck(CartPoleEnv):
    def step(self, action):
        made.append(action)
        hangs = len(made) == 20
        while hangs:
            product(ones).block_until_ready()
        return super().step(action)

gymnasium.register("Stuck-v0", Stuck, max_episode_steps=20)
"""


def test_an_environment_that_hangs_to_the_end_leaves_the_exit_code_alone(tmp_path):
    """It is in C++, time and again, while the interpreter ends."""
    (tmp_path / "stuck.py").write_text(STUCK)
    process = start(tmp_path, "train", f"{TINY}:Tiny", "--env", "gymnasium:stuck:Stuck-v0", "--env-timeout", "1",
                    "--total-steps", "64", "--eval-episodes", "2", "--run-dir", "run", "--json",
                    PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["status"] == "finished"
    assert err.count("An environment failed (TooLong") == 1


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_script_may_end_amid_a_run(tmp_path, backend):
    process = start(tmp_path, f"""
import msrl
program = msrl.compile({f"{TINY}:Tiny"!r}, "CartPole-v1", total_steps=40_000_000, deployment=msrl.Deployment(
    distribution="single-learner-coarse", backend={backend!r}))
updates = program.run()
next(updates)""")
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_a_script_may_end_while_a_thread_of_its_own_trains(tmp_path):
    process = start(tmp_path, f"""
import threading
import msrl
updates = msrl.compile({f"{TINY}:Tiny"!r}, "CartPole-v1", total_steps=400_000_000).run()
begun = threading.Event()
threading.Thread(target=lambda: [begun.set() for _ in updates], daemon=True).start()
begun.wait()""")
    assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_strict_mode_pins_itself_and_repeats_to_the_bit(tmp_path):
    both = ("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--strict", "--json", "--eval-episodes", "5", "--run-dir")
    program = f"from msrl.cli.main import main; main([*{both}, 'a']); main([*{both}, 'b'])"
    process = start(tmp_path, program)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert err.splitlines().count("engine       strict, op by op") == 2
    about = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (about["strict"], about["flags"]["pinned"], about["flags"]["PJRT_NPROC"]) == (True, True, "1")
    first, second = (json.loads(line) for line in out.splitlines())
    assert first["weights_sha256"] == second["weights_sha256"]


def test_strict_mode_keeps_no_other_settings(tmp_path):
    process = start(tmp_path, "train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--strict", PJRT_NPROC="2")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[:2] == ["UsageError: Strict mode cannot keep PJRT_NPROC=2.",
                                    "Results have equal bits only under equal settings."]
    assert err.splitlines()[2].startswith("Unset it, or set: PJRT_NPROC=1 XLA_FLAGS=")
