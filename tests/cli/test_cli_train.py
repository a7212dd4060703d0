"""`msrl train`: what it prints, what it leaves behind, and that it repeats itself."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import msrl as package
from msrl.jobs import prepare
from msrl.results import interquartile_mean
from msrl.running import run
from msrl.runtime.display import Display
from msrl.runtime.interrupts import Stop
from tests.cli.conftest import TINY

KEYS = {"algorithm", "env", "distribution", "backend", "seed", "env_steps", "compile_seconds", "train_seconds",
        "total_seconds", "steps_per_second", "eval_return_mean", "eval_return_std", "eval_episodes", "weights_sha256"}
FILES = {"config.json", "lease.json", "checkpoints", "deployment.toml", "reproduce.sh", "metrics.jsonl",
         "tensorboard", "weights", "result.json", "curve.png"}


def rows(run_dir: str) -> list[dict]:
    return [json.loads(line) for line in (Path(run_dir) / "metrics.jsonl").read_text().splitlines()]


def test_the_last_line_is_the_result(train):
    result = train("--run-dir", "run")
    assert result.keys() >= KEYS
    assert (result["algorithm"], result["env"], result["env_id"]) == (f"{TINY}:Tiny", "CartPole-v1", "jax:CartPole-v1")
    assert (result["distribution"], result["backend"], result["seed"]) == ("local", "inline", 0)
    assert (result["env_steps"], result["eval_episodes"], result["status"]) == (64, 5, "finished")
    assert result["total_seconds"] > result["compile_seconds"] + result["train_seconds"] > 0
    assert result["steps_per_second"] == pytest.approx(64 / result["train_seconds"], rel=0.5)
    assert len(result["weights_sha256"]) == 64
    assert result["restarts"] == 0


def test_what_goes_wrong_on_purpose_is_survived_and_written_down(train, msrl):
    wanted = train("--strict", "--run-dir", "sound")
    words = "--strict", "--backend", "threads", "--chaos", "kill:learner@2,delay:moves=1ms", "--run-dir"
    found = train(*words, "chaotic")
    assert found["restarts"] == 1 and found["weights_sha256"] == wanted["weights_sha256"]
    assert json.loads((Path("chaotic") / "config.json").read_text())["chaos"] == "kill:learner@2,delay:moves=1ms"
    assert "--chaos kill:learner@2,delay:moves=1ms" in (Path("chaotic") / "reproduce.sh").read_text()
    code, _, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--chaos", "kil:learner@2", "--run-dir", "no")
    assert (code, err) == (2, """\
UsageError: --chaos cannot be told 'kil:learner@2'.
A fault is KIND:WHAT@WHEN or delay:moves=TIME; kinds are kill, hang, raise, nan, delay.
For instance: kill:learner@2
See docs/reliability.md#faults-on-purpose.
""")
    code, _, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--chaos", "kill:learner@2", "--run-dir", "no")
    assert code == 2 and err.startswith("UsageError: --chaos kill:learner@2 is not possible on inline.\n")
    assert not Path("no").exists()


def test_the_run_folder(train):
    result = train("--run-dir", "run", "--seed", "3", "--noise", "0.25", "--widths", "2", "3", "--eval-every", "2")
    folder = Path("run")
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "result.json").read_text()) == result
    about = json.loads((folder / "config.json").read_text())
    assert about["config"] == {"total_steps": 64, "num_envs": 4, "shards": 1, "learner_shards": 1, "agent_shards": 1,
                               "noise": 0.25, "widths": [2, 3], "normalise": False, "steps": 8}
    assert (about["status"], about["seed"], about["seeds"], about["strict"]) == ("finished", 3, [3], False)
    assert (about["observation"], about["action"], about["agents"]) == ("Box(4,) of float32", "Discrete(2) of int32", 0)
    assert about["versions"].keys() == {"python", "jax", "jaxlib", "msrl"}
    assert about["versions"]["msrl"] == package.__version__
    seen = rows("run")
    assert [row["env_steps"] for row in seen] == [32, 64]
    assert seen[0].keys() == {"seed", "env_steps", "seconds", "episodes", "episode_return", "episode_length", "steps",
                             "loss"}
    assert seen[1]["eval_return_mean"] == result["eval_return_mean"]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (folder / "weights").iterdir()] == ["3"]
    assert list((folder / "tensorboard" / "3").glob("events.out.tfevents.*"))
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_the_folder_says_how_to_repeat_the_run(train, msrl):
    first = train("--run-dir", "first", "--seed", "5", "--noise", "0.125", "--normalise")
    line = (Path("first") / "reproduce.sh").read_text().splitlines()[-1]
    words = shlex.split(line)
    assert words[:3] == ["msrl", "train", f"{TINY}:Tiny"]
    code, out, err = msrl(*words[1:], "--run-dir", "again", "--json")
    assert code == 0, err
    again = json.loads(out.splitlines()[-1])
    assert again["weights_sha256"] == first["weights_sha256"]
    assert again["eval_return_mean"] == first["eval_return_mean"]


def test_people_are_told_what_was_picked_and_what_to_do_next(msrl):
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-episodes", "5", "--run-dir", "run")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [f"algorithm    {TINY}:Tiny, seed 0",
                         "environment  jax:CartPole-v1: Box(4,) to Discrete(2), 4 side by side",
                         "engine       one compiled program"]
    assert lines[3].startswith("32 of 64 steps (50%) | ")
    assert lines[5].startswith("return       ") and lines[5].endswith(" over 5 episodes")
    assert lines[6].startswith("speed        ")
    assert lines[7:] == ["run folder   run", "next         msrl eval run", "             tensorboard --logdir run",
                         f"             msrl graph {TINY}:Tiny --env CartPole-v1"]


def test_without_a_name_the_folder_is_under_runs(train):
    result = train("--seed", "2")
    assert result["run_dir"].startswith("runs/Tiny-CartPole-v1-2-")
    assert {path.name for path in Path(result["run_dir"]).iterdir()} == FILES


def test_an_environment_on_the_host(msrl):
    code, out, _ = msrl("train", f"{TINY}:Tiny", "--env", "gymnasium:CartPole-v1", "--eval-episodes", "2",
                        "--run-dir", "run", "--normalise")
    assert code == 0
    assert "engine       compiled stretches around the host environment" in out.splitlines()
    assert rows("run")[-1]["env_steps"] == 64


def test_seeds_share_one_program_where_it_is_traceable(train):
    result = train("--seeds", "5", "--run-dir", "run")
    means = [seed["eval_return_mean"] for seed in result["per_seed"]]
    assert [seed["seed"] for seed in result["per_seed"]] == [0, 1, 2, 3, 4]
    assert result["eval_return_mean"] == pytest.approx(np.mean(means))
    assert result["eval_return_iqm"] == pytest.approx(np.mean(sorted(means)[1:4]))
    assert result["env_steps"] == 5 * 64
    assert [row["seeds"] for row in rows("run")] == [5, 5]
    assert {path.name for path in (Path("run") / "weights").iterdir()} == set("01234")
    alone = train("--seed", "3", "--run-dir", "alone")
    assert alone["eval_return_mean"] == pytest.approx(means[3], rel=1e-5)


def test_seeds_follow_one_another_on_the_host(train):
    result = train("--seeds", "2", "--run-dir", "run", env="gymnasium:CartPole-v1")
    assert [(row["seed"], row["env_steps"]) for row in rows("run")] == [(0, 32), (0, 64), (1, 32), (1, 64)]
    alone = train("--seed", "1", "--run-dir", "alone", env="gymnasium:CartPole-v1")
    assert result["per_seed"][1]["weights_sha256"] == alone["weights_sha256"]
    assert result["per_seed"][1]["eval_return_mean"] == alone["eval_return_mean"]


def test_the_interquartile_mean_leaves_out_the_outer_quarters():
    assert interquartile_mean([1000.0, 2.0, 4.0, -50.0]) == 3.0
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3.0  # three have no quarter to leave out


def test_a_failure_leaves_what_was_reached(msrl):
    code, out, err = msrl("train", f"{TINY}:Failing", "--env", "CartPole-v1", "--run-dir", "run", "--json",
                          "--total-steps", "640")
    assert (code, out) == (1, "")
    lines = TINY.read_text().splitlines()
    line = lines.index('            msrl.report(tick=msrl.call("bomb", "tick"))') + 1
    raised = next(number for number, text in enumerate(lines, 1) if "The bomb went off" in text)
    assert err.endswith(f"""
RunError: The bomb went off.

  {TINY}:{line}
{line:>5} | msrl.report(tick=msrl.call("bomb", "tick"))
                         ^^^^^^^^^^^^^^^^^^^^^^^^^

  {TINY}:{raised}
{raised:>5} | {lines[raised - 1].strip()}
        {"^" * len(lines[raised - 1].strip())}

It was asked three times.
""")
    folder = Path("run")
    assert json.loads((folder / "config.json").read_text())["status"] == "failed"
    assert [row["env_steps"] for row in rows("run")] == [4, 8, 12]
    assert {path.name for path in folder.iterdir()} == FILES - {"result.json", "checkpoints"}
    code, out, _ = msrl("eval", "run", "--episodes", "3", "--json")
    assert code == 0 and json.loads(out)["eval_episodes"] == 3


def test_from_python_nothing_is_written(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    result = package.train(f"{TINY}:Tiny", env="CartPole-v1", total_steps=96, eval_episodes=3, progress=False)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
    assert [update.env_steps for update in result.curve] == [32, 64, 96]
    assert result.params["w"].shape == (4, 2)
    assert result.run_dir is None


def test_from_python_with_a_folder(tmp_path, train):
    result = package.train(f"{TINY}:Tiny", env="CartPole-v1", eval_episodes=5, progress=False, run_dir=tmp_path / "py")
    assert train("--run-dir", "cli")["weights_sha256"] == result.weights_sha256
    assert {path.name for path in (tmp_path / "py").iterdir()} == FILES


def test_compiling_from_python_gives_the_program():
    program = package.compile(f"{TINY}:Tiny", "CartPole-v1", total_steps=32)
    assert next(program.run()).env_steps == 32


def test_stopped_after_training_it_is_not_evaluated(tmp_path):
    """All updates are in, and the wish to stop comes with the question whether to evaluate."""
    class Late(Stop):
        asked = iter([False, False, False, True])

        def __call__(self):
            return next(self.asked)

    result = run(prepare(f"{TINY}:Tiny", "CartPole-v1"), tmp_path / "run", Display(), stop=Late())
    assert (result.status, result.env_steps, result.eval_return_mean) == ("finished", 64, None)
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


def test_a_loop_that_steps_no_environment_tells_its_passes(msrl):
    code, out, err = msrl("train", f"{TINY}:Offline", "--env", "CartPole-v1", "--eval-episodes", "1")
    assert code == 0, err
    assert " of the loop" in out and "steps (" not in out and "\nspeed        no steps in " in out


LOUD = f"""\\
import sys
from pathlib import Path

sys.path.insert(0, {str(Path(TINY).parent)!r})
from tiny import Tiny

class Loud(Tiny):
    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(2):
            print("pass", i)
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            msrl.report(msrl.agent_learn(obs))
"""


def test_the_loop_as_plain_python(msrl, tmp_path):
    (tmp_path / "loud.py").write_text(LOUD)
    words = ("train", "loud.py:Loud", "--env", "CartPole-v1")
    code, out, err = msrl(*words, "--eager")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["pass 0", "pass 1"]
    assert out.splitlines()[2].startswith("plain Python  8 steps, 2 reports; the last: loss ")
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["loud.py"]
    code, _, err = msrl(*words)
    assert code == 2
    assert "`print('pass', i)` is called for its effect." in err
    assert "`msrl train ... --eager`" in err


def test_plain_python_leaves_no_run_folder(msrl):
    assert msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eager", "--run-dir", "here") == (2, "", """\
UsageError: Both --eager and --run-dir are given.
A loop that runs as plain Python is there to be looked into: it runs once, in this process, and leaves nothing behind.
Leave out --run-dir, or --eager.
""")
