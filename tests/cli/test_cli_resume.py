"""`msrl resume`: what it goes on with, and what it refuses."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import msrl as package
from msrl.errors import UsageError
from msrl.resuming import resumed
from tests.cli.conftest import TINY

ALGORITHM = f"{TINY}:Tiny"


@pytest.fixture
def stopped(train):
    """A run that was killed after some checkpoints: a folder."""
    whole = train("--run-dir", "run", "--total-steps", "320", "--checkpoint-every", "4")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "status": "running"}))
    return whole


def test_goes_on_where_it_was(msrl, stopped):
    rows = Path("run/metrics.jsonl").read_text().splitlines()
    code, out, err = msrl("resume", "run", "--algorithm", ALGORITHM, "--checkpoint", "0-00000004", "--json")
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    assert (found["status"], found["env_steps"]) == ("finished", stopped["env_steps"])
    assert found["weights_sha256"] == stopped["weights_sha256"]  # of one program, in fast mode too
    again = Path("run/metrics.jsonl").read_text().splitlines()
    assert [without_time(row) for row in again] == [without_time(row) for row in rows]
    assert json.loads(Path("run/config.json").read_text())["status"] == "finished"


def test_a_checkpoint_says_what_it_is_of(stopped):
    config = json.loads(Path("run/config.json").read_text())
    manifest = json.loads(Path("run/checkpoints/0-00000004/manifest.json").read_text())
    assert manifest["about"]["run"] == {name: config[name] for name in (
        "algorithm", "env", "config", "versions", "flags")}
    assert set(manifest["about"]["run"]["versions"]) == {"python", "jax", "jaxlib", "msrl"}
    assert all(len(part["sha256"]) == 64 for shards in manifest["parts"].values() for part in shards.values())


def test_names_cannot_leave_the_folder(msrl, stopped):
    """Neither a checkpoint's nor a seed's, though there is a sound run where they point to."""
    shutil.copytree("run", "other/run")
    for name in ("../../other/run/checkpoints/0-00000004", "0-00000004/../0-00000004", "/etc", ""):
        code, _, err = msrl("resume", "run", "--algorithm", ALGORITHM, "--checkpoint", name)
        assert (code, err.splitlines()[0]) == (2, f"UsageError: The run run has no checkpoint {name!r}.")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "seeds": ["../../other/run/weights/0"]}))
    for command in ("resume", "eval"):
        code, _, err = msrl(command, "run", "--algorithm", ALGORITHM)
        assert (code, err.splitlines()[0]) == (2, "UsageError: run is not a run folder.")


def without_time(row: str) -> dict:
    return {name: value for name, value in json.loads(row).items() if name != "seconds"}


def test_from_python(stopped):
    found = package.resume("run", algorithm=ALGORITHM, progress=False)
    assert (found.status, found.weights_sha256) == ("finished", stopped["weights_sha256"])


def test_several_seeds_one_after_another(msrl, train):
    """The first of two seeds was done when the run was killed."""
    both = train("--run-dir", "run", "--seeds", "2", "--total-steps", "160", "--checkpoint-every", "2",
                 "--env", "gymnasium:CartPole-v1")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "status": "running"}))
    code, out, err = msrl("resume", "run", "--algorithm", ALGORITHM, "--checkpoint", "1-00000002", "--json")
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    for name in ("per_seed", "weights_sha256", "env_steps", "eval_return_mean"):
        assert found[name] == both[name], name


@pytest.mark.parametrize(("args", "told"), [
    (["run", "--algorithm", ALGORITHM, "--checkpoint", "0-00000005"], """\
UsageError: The run run has no checkpoint '0-00000005'.
It has 0-00000004, 0-00000008.
Leave --checkpoint out for the newest.
"""),
    (["nowhere"], """\
UsageError: nowhere is not a run folder.
There is no nowhere/config.json.
Name a folder that `msrl train` made, for instance one under runs/.
"""),
    (["run", "--algorithm", ALGORITHM, "--actors", "9", "--distribution", "single-learner-coarse"],
     "UsageError: 9 actors cannot share 1 shard.\n"),
    (["run", "--algorithm", f"{TINY}:Other"], "Other"),
    (["run", "--seed", "3"], "UsageError: msrl resume has no flag --seed.\n"),
], ids=["checkpoint", "folder", "actors", "class", "flag"])
def test_what_is_refused(msrl, stopped, args, told):
    before = sorted(path.name for path in Path("run").rglob("*"))
    code, out, err = msrl("resume", *args)
    assert (code, out) == (2, "")
    assert err == told if told.startswith("UsageError") and told.count("\n") > 1 else told in err
    assert sorted(path.name for path in Path("run").rglob("*")) == before


def test_killed_before_its_first_checkpoint(msrl, stopped):
    """It starts again from the beginning, and says so."""
    shutil.rmtree("run/checkpoints")
    code, out, err = msrl("resume", "run", "--algorithm", ALGORITHM, "--json")
    assert code == 0, err
    assert "resume       The run has no checkpoint yet: it starts again from the beginning.\n" in err
    assert json.loads(out.splitlines()[-1])["weights_sha256"] == stopped["weights_sha256"]


def test_killed_while_its_folder_was_made(msrl, stopped):
    """In a folder that was there already, as a disk of its own may be."""
    for each in Path("run").iterdir():
        if each.name not in ("lease.json", "deployment.toml"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    assert msrl("resume", "run") == (2, "", """\
UsageError: The run in run was killed while its folder was being made.
It has no config.json, and nothing was trained yet.
Train it again, with the same command: the folder counts as empty.
See docs/resuming.md.
""")


def test_a_finished_run(msrl, train):
    train("--run-dir", "run")
    assert msrl("resume", "run") == (2, "", """\
UsageError: The run run is finished.
There is nothing left of it to do.
Play what it has learnt: msrl eval run
""")


def test_a_file_that_nobody_has_named_is_not_executed(msrl, stopped, tmp_path):
    """A folder from elsewhere: it names a file that would leave a trace."""
    bad = tmp_path / "bad.py"
    bad.write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    config = json.loads(Path("run/config.json").read_text())
    for command, flag, changed in (("resume", "algorithm", {"algorithm": f"{bad}:Bad"}),
                                   ("resume", "env", {"env_id": f"{bad}:Bad"}),
                                   ("eval", "algorithm", {"algorithm": f"{bad}:Bad"}),
                                   ("eval", "env", {"env_id": f"{bad}:Bad"})):
        Path("run/config.json").write_text(json.dumps({**config, **changed}))
        assert msrl(command, "run") == (2, "", f"""\
UsageError: The run's {flag} is a file, {bad}:Bad.
You have not named it on this machine, and what only a folder names is not executed.
If you trust it: msrl {command} run --{flag} {bad}:Bad
See docs/security.md.
""")
    Path("run/config.json").write_text(json.dumps(config))
    (Path("run") / "deployment.toml").write_text(f'distribution = "{bad}:Bad"\n')
    assert msrl("resume", "run")[2].startswith("UsageError: The run's distribution is a file")
    assert not (tmp_path / "trace").exists()


def test_a_file_that_was_named_needs_no_second_naming(msrl, stopped):
    assert msrl("resume", "run")[0] == 0
    assert msrl("eval", "run", "--episodes", "1")[0] == 0


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_config_that_is_not_ours_is_told_of(data):
    """A value of another kind, a key that is missing, text that is cut off: a message, and no traceback."""
    good = dict(algorithm="ppo", env="CartPole-v1", env_id="jax:CartPole-v1", config={}, seeds=[0], strict=False,
                eval_every=0, eval_episodes=1, checkpoint_every=0, checkpoint_keep=1, restarts=0, env_timeout=0.0,
                profile=False, non_finite="stop", status="running", flags={}, observation="Box(4,) of float32",
                action="Discrete(2) of int32", agents=0)
    name = data.draw(st.sampled_from(sorted(good)))
    simple = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=3)
    junk = simple | st.lists(simple, max_size=2) | st.dictionaries(st.text(max_size=2), simple, max_size=2)
    value = data.draw(junk.filter(lambda value: type(value) is not type(good[name])))
    text = json.dumps({**good, name: value})
    with TemporaryDirectory() as folder:
        (Path(folder) / "deployment.toml").write_text(package.Deployment().to_toml())
        (Path(folder) / "config.json").write_text(data.draw(st.sampled_from([text, text[:-1], text[:20], "", "[]"])))
        with pytest.raises(UsageError):
            resumed(Path(folder))
