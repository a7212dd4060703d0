"""Updates that are not finite, from the command line: what is said, what is written down, and how it is done again."""

import json
from pathlib import Path

import numpy as np
import pytest

from msrl import running
from msrl.errors import NonFiniteError, UsageError
from msrl.faults import replay
from msrl.jobs import prepare
from msrl.runtime import checkpoints
from msrl.runtime.display import Display
from tests.finite import spoiling

FILE = Path(spoiling.__file__)
WALK = f"{FILE}:Walk"
FLAGS = ("--eval-episodes", "1", "--run-dir", "run")


@pytest.fixture
def stopped(msrl):
    """A run that has met one, with a checkpoint from before: (exit code, what it said)."""
    code, _, err = msrl("train", WALK, "--env", f"{FILE}:Spoilt", "--checkpoint-every", "1", *FLAGS)
    return code, err


def test_stops_with_all_there_is_to_say(stopped):
    code, err = stopped
    assert code == 1
    line = next(number for number, text in enumerate(FILE.read_text().splitlines(), 1) if "msrl.report(" in text)
    assert err == f"""\
NonFiniteError: Update 3 is not finite: batch.reward, metrics.loss, params/w.

  {FILE}:{line}
{line:>5} | msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

It came after 48 environment steps. What it would have made of the learner is not kept.
The batch, the learner's state and the key are in run/faults/update-3.
To do it again: msrl replay run/faults/update-3 --algorithm={WALK} --env={FILE}:Spoilt
See docs/non-finite.md.
"""
    assert json.loads(Path("run/config.json").read_text())["status"] == "failed"
    assert [each.name for each in checkpoints.listed(Path("run"))] == ["0-00000001", "0-00000002"]
    assert not any(file.suffix in (".pkl", ".pickle") for file in Path("run/faults").rglob("*"))


def test_what_was_written_down_comes_to_the_same(msrl, stopped):
    code, out, _ = msrl("replay", "run/faults/update-3", "--algorithm", WALK)
    assert code == 1
    assert out.splitlines()[1] == "not finite   batch.reward, metrics.loss, params/w"
    assert out.startswith(f"update       3 of {WALK} on {FILE}:Spoilt, after 48 environment steps, {FILE}:")


def test_a_cure_shows_in_what_was_written_down(msrl, stopped, tmp_path):
    """A learner that takes no notice of such rewards."""
    cured = tmp_path / "cured.py"
    cured.write_text(FILE.read_text().replace("batch.reward[..., None]", "jnp.nan_to_num(batch.reward)[..., None]"))
    code, out, err = msrl("replay", "run/faults/update-3", "--algorithm", f"{cured}:Walk")
    assert code == 1, err
    assert out.splitlines()[1] == "not finite   batch.reward"


def test_a_file_that_only_the_folder_names_is_not_executed(msrl, stopped, monkeypatch, tmp_path):
    monkeypatch.setenv("MSRL_CACHE_DIR", str(tmp_path / "elsewhere"))
    code, _, err = msrl("replay", "run/faults/update-3")
    assert code == 2
    assert f"If you trust it: msrl replay run/faults/update-3 --algorithm {WALK}" in err


def test_what_is_damaged_is_refused(msrl, stopped):
    Path("run/faults/update-3/manifest.json").write_text("{}")
    code, _, err = msrl("replay", "run/faults/update-3")
    assert code == 2
    assert err == """\
UsageError: run/faults/update-3 is not an update that was written down.
Its manifest.json is missing, or is not one that a run writes.
Name a folder under RUN_DIR/faults.
"""


def test_a_stopped_run_goes_on_without_the_update(msrl, stopped):
    code, out, err = msrl("resume", "run", "--non-finite", "skip", "--json")
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    assert "skipped      1 updates that were not finite" in err
    assert (found["status"], found["updates_skipped"], found["env_steps"]) == ("finished", 1, 96)
    assert found["per_seed"][0]["steps"] == {"produced": 96, "trained": 80, "dropped": {"non-finite": 16},
                                             "in_flight": 0}
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [row.get("updates_skipped") for row in rows] == [None, None, 1, 1, 1, 1]
    job = prepare(WALK, f"{FILE}:Spoilt", non_finite="skip", eval_episodes=1)
    assert found["weights_sha256"] == running.run(job, None, Display()).weights_sha256


class Lines(Display):
    def __init__(self):
        self.lines = []

    def say(self, *lines):
        self.lines += lines


def test_goes_back_and_takes_other_keys(tmp_path):
    job = prepare(WALK, f"{FILE}:Unlucky", seed=0, non_finite="rollback", checkpoint_every=1, eval_episodes=1)
    lines = Lines()
    found = running.run(job, tmp_path / "run", lines)
    assert [line for line in lines.lines if line.startswith("back")] == [
        "back         Update 3 is not finite: batch.reward, metrics.loss, params/w. Going on from 32 steps (1 of 3 "
        "times)."]
    assert (found.status, found.env_steps, found.updates_skipped) == ("finished", 96, 0)
    assert np.isfinite(found.params["w"]).all()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [16, 32, 48, 64, 80, 96]
    streams = [checkpoints.read(path).about["stream"] for path in checkpoints.listed(tmp_path / "run")]
    assert streams == [1, 1, 1]
    # What made it go back is written down all the same.
    assert replay(tmp_path / "run" / "faults" / "update-3").found == ("batch.reward", "metrics.loss", "params/w")


def test_goes_back_to_what_is_kept_in_memory(monkeypatch):
    """Without a run folder, too."""
    monkeypatch.setattr(running, "SNAPSHOT_SECONDS", 0.0)
    job = prepare(WALK, f"{FILE}:Unlucky", seed=0, non_finite="rollback", eval_episodes=1)
    lines = Lines()
    found = running.run(job, None, lines)
    (back,) = (line for line in lines.lines if line.startswith("back"))
    assert back.endswith(("Going on from 16 steps (1 of 3 times).", "Going on from 32 steps (1 of 3 times)."))
    assert (found.status, found.env_steps, found.restarts) == ("finished", 96, 1)
    assert np.isfinite(found.params["w"]).all()


def test_goes_back_to_the_beginning_and_not_for_ever():
    job = prepare(WALK, f"{FILE}:Spoilt", non_finite="rollback", restarts=1, eval_episodes=1)
    lines = Lines()
    with pytest.raises(NonFiniteError) as caught:
        running.run(job, None, lines)
    assert [line for line in lines.lines if line.startswith("back")] == [
        "back         Update 3 is not finite: batch.reward, metrics.loss, params/w. Going on from 0 steps (1 of 1 "
        "times)."]
    assert caught.value.instead == \
        "With a run folder, the batch and the learner's state are kept, and the update can be done again."


def test_a_word_that_is_none_is_refused():
    with pytest.raises(UsageError) as caught:
        prepare("ppo", "CartPole-v1", non_finite="never")
    assert str(caught.value) == """\
--non-finite is 'never'.
It says what becomes of updates that are not finite.
Use one of stop, skip, rollback, ignore.
See docs/non-finite.md."""
