"""`msrl train --profile`: what it prints and what it leaves behind."""

import json
import shlex
from pathlib import Path

import msrl as package
from msrl.runtime.bottleneck import HOST
from tests.cli.conftest import TINY
from tests.cli.test_cli_train import FILES


def trace(run_dir) -> list[dict]:
    return json.loads((Path(run_dir) / "trace.json").read_text())["traceEvents"]


def test_a_profile_is_in_the_folder_and_in_the_result(train):
    result = train("--run-dir", "run", "--profile", "--eval-every", "1")
    assert {path.name for path in Path("run").iterdir()} == FILES | {"trace.json"}
    assert json.loads((Path("run") / "result.json").read_text())["profile"] == result["profile"]
    assert json.loads((Path("run") / "config.json").read_text())["profile"] is True
    assert "--profile" in shlex.split((Path("run") / "reproduce.sh").read_text())
    events = trace("run")
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert processes.keys() == {"all", HOST}
    host = [event["name"] for event in events if event["ph"] == "X" and event["pid"] == processes[HOST]
            and event["cat"] == "compute"]
    assert host == ["evaluate", "log", "evaluate", "log", "checkpoint", "evaluate"]  # two updates, and the end
    chunks = [event for event in events if event["ph"] == "X" and event["name"].startswith("actor.act + env.step")]
    assert len(chunks) == 2 and {event["cat"] for event in chunks} == {"compute"}


def test_without_it_there_is_none(train):
    result = train("--run-dir", "run")
    assert result["profile"] is None and not (Path("run") / "trace.json").exists()
    assert "--profile" not in (Path("run") / "reproduce.sh").read_text()


def test_it_says_who_is_the_bottleneck(msrl):
    code, out, _ = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--profile", "--eval-episodes", "5",
                        "--run-dir", "run", "--distribution", "single-learner-coarse", "--backend", "inline")
    assert code == 0
    (said,) = [line for line in out.splitlines() if line.startswith("profile  ")]
    assert said == f"profile      {json.loads((Path('run') / 'result.json').read_text())['profile']['line']}"
    assert "% at work" in said and "% of the time" in said
    assert "             open run/trace.json at https://ui.perfetto.dev" in out.splitlines()


def test_seeds_one_after_another_are_in_one_trace(train):
    result = train("--run-dir", "run", "--profile", "--seeds", "2", "--strict", "--total-steps", "32")
    learns = [event for event in trace("run") if event["name"] == "learner.learn"]
    assert len({event["tid"] for event in learns}) == 1 and len(learns) == 2
    instances = result["profile"]["instances"]
    assert [(each["fragment"], each["instance"]) for each in instances] == [("all", 0), (HOST, 0)]


def test_from_python_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = package.train(f"{TINY}:Tiny", env="CartPole-v1", progress=False, eval_episodes=2, profile=True)
    assert result.profile["bottleneck"] in ("all", HOST) and result.summary()["profile"] == result.profile
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_what_there_is(msrl):
    code, _, err = msrl("train", f"{TINY}:Failing", "--env", "CartPole-v1", "--profile", "--run-dir", "run",
                        "--total-steps", "1000")
    assert code == 1 and "The bomb went off." in err
    assert "bomb.tick" in {event["name"] for event in trace("run")}
