"""`msrl resume`: what it goes on with, and what it refuses."""

import dataclasses
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import msrl as package
from msrl.deployment import Host
from msrl.errors import UsageError
from msrl.feasibility import fitted
from msrl.resuming import resumed
from msrl.runtime import checkpoints
from msrl.runtime.fingerprint import TOLD
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
    assert manifest["about"]["run"] == {name: config[name] for name in TOLD}
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
It has 0-00000004, 0-00000008, 0-00000010.
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
Train it further, up to a higher number of steps: msrl resume run --total-steps N
Play what it has learnt: msrl eval run
""")


def test_a_finished_run_is_trained_further(msrl, train):
    """To the same weights as a run that was to be as long from the start."""
    whole = train("--run-dir", "whole", "--total-steps", "640")
    train("--run-dir", "run", "--total-steps", "320")
    code, out, err = msrl("resume", "run", "--total-steps", "640", "--json")
    assert code == 0, err
    assert "resume       from the checkpoint 0-00000010, after 320 steps\n" \
        "changed      total_steps is 640 from here on; it was 320\n" in err
    found = json.loads(out.splitlines()[-1])
    for name in ("weights_sha256", "env_steps", "eval_return_mean", "status"):
        assert found[name] == whole[name], name
    rows, wanted = (Path(run, "metrics.jsonl").read_text().splitlines() for run in ("run", "whole"))
    assert [without_time(row) for row in rows] == [without_time(row) for row in wanted]
    assert package.resume("run", total_steps=960, progress=False).env_steps == 960
    assert msrl("resume", "run", "--total-steps", "960")[2] == """\
UsageError: The run run has made 960 steps already.
--total-steps 960 counts from its beginning.
Give a higher number: msrl resume run --total-steps 1920
See docs/resuming.md.
"""


@pytest.mark.parametrize("spread", [(), ("--strict",), ("--distribution", "single-learner-coarse", "--actors", "2")])
def test_a_finished_while_is_trained_further(msrl, train, spread):
    """To the same weights, too, though nobody knows before that a pass is the last."""
    more = ("--shards", "2", *spread)
    whole = train("--run-dir", "whole", "--total-steps", "640", *more, algorithm="TinyWhile")
    train("--run-dir", "run", "--total-steps", "320", *more, algorithm="TinyWhile")
    assert [each.name for each in Path("run/checkpoints").iterdir()] == ["0-00000010"]
    code, out, err = msrl("resume", "run", "--total-steps", "640", "--json")
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    for name in ("weights_sha256", "env_steps", "eval_return_mean", "status"):
        assert found[name] == whole[name], name


def test_a_finished_run_that_nobody_waited_in_is_trained_further(msrl, train):
    """Actors finish their passes after the learner's last, so that there is a checkpoint of the end."""
    train("--run-dir", "run", "--total-steps", "320", "--shards", "2", "--distribution", "single-learner-coarse-async",
          "--actors", "2")
    assert [each.name for each in Path("run/checkpoints").iterdir()] == ["0-00000010"]
    code, out, err = msrl("resume", "run", "--total-steps", "640", "--json")
    assert code == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["status"] == "finished" and found["per_seed"][0]["steps"]["trained"] == 640


def test_a_longer_run_that_was_killed_stays_longer(msrl, train, stopped):
    """What was given on purpose is in config.json, and needs no second giving, though no checkpoint knows of it yet."""
    whole = train("--run-dir", "whole", "--total-steps", "640")
    shutil.copytree("run/checkpoints/0-00000008", "0-00000008")
    assert msrl("resume", "run", "--total-steps", "640")[0] == 0
    shutil.rmtree("run/checkpoints")
    shutil.copytree("0-00000008", "run/checkpoints/0-00000008")
    set_config(status="running")
    code, out, err = msrl("resume", "run", "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["weights_sha256"] == whole["weights_sha256"]


def set_config(**changed):
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, **changed}))
    return config


def test_settings_that_were_changed_by_hand(msrl, stopped):
    config = set_config()
    set_config(config={**config["config"], "noise": 0.25, "normalise": True, "widths": [2, 3]}, eval_episodes=7)
    told = """\
UsageError: The run run was made with other settings than its config.json says: eval_episodes, noise, widths, normalise.
eval_episodes is 7 there, and 5 in the checkpoint 0-00000010.
noise is 0.25 there, and 0.5 in the checkpoint 0-00000010.
widths is [2, 3] there, and [1] in the checkpoint 0-00000010.
normalise is True there, and False in the checkpoint 0-00000010.
Put back what was changed, or say that it is on purpose: msrl resume run --eval-episodes 7 --noise 0.25 --widths 2 3 \
--normalise.
See docs/resuming.md.
"""
    assert msrl("resume", "run") == (2, "", told)
    with pytest.raises(UsageError, match="says: noise, widths, normalise"):
        package.resume("run", eval_episodes=7, progress=False)


@pytest.mark.parametrize("changed", [{"seeds": [1]}, {"seeds": [0, 1]}, {"strict": True}])
def test_seeds_cannot_be_others(msrl, stopped, changed):
    set_config(**changed)
    code, _, err = msrl("resume", "run")
    assert code == 2
    assert err.endswith(f"is {next(iter(changed.values()))} there, and "
                        f"{[0] if 'seeds' in changed else False} in the checkpoint 0-00000010.\n"
                        "Put back what was changed.\nSee docs/resuming.md.\n")


def test_a_setting_given_on_purpose(msrl, train, stopped):
    code, out, err = msrl("resume", "run", "--noise", "0.25", "--no-normalise", "--checkpoint", "0-00000004", "--json")
    assert code == 0, err
    assert "changed      noise is 0.25 from here on; it was 0.5\n" in err and "normalise is" not in err
    assert json.loads(out.splitlines()[-1])["weights_sha256"] != stopped["weights_sha256"]
    assert set_config()["config"]["noise"] == 0.25
    assert "--noise 0.25" in Path("run/reproduce.sh").read_text()


def test_a_changed_config_without_a_checkpoint(msrl, stopped):
    shutil.rmtree("run/checkpoints")
    set_config(config={**set_config()["config"], "noise": 0.25})
    assert msrl("resume", "run") == (2, "", """\
UsageError: run/config.json was changed since the run wrote it.
It does not have its checksum, and there is no checkpoint to tell what was changed.
Put it back as it was, or train again with the settings that you want.
See docs/resuming.md.
""")


def test_seeds_that_were_trained_one_after_another(msrl, train):
    train("--run-dir", "run", "--seeds", "2", "--total-steps", "160", "--env", "gymnasium:CartPole-v1")
    assert msrl("resume", "run", "--total-steps", "320")[2] == """\
UsageError: The run run cannot be trained further.
Its seeds were trained one after another: there is no point at which all of them are.
Train each of its seeds in a run of its own.
See docs/resuming.md.
"""


def test_past_a_damaged_checkpoint(msrl, stopped):
    """Only if that is asked for."""
    for name in ("0-00000010", "0-00000008"):
        manifest = Path("run/checkpoints", name, "manifest.json")
        manifest.write_text(manifest.read_text()[:-9])
    assert msrl("resume", "run") == (2, "", """\
UsageError: The checkpoint run/checkpoints/0-00000010 cannot be used.
Its manifest.json is missing, or is not one that a run writes.
Go on from the newest sound one, 0-00000004: msrl resume run --auto
""")
    code, out, err = msrl("resume", "run", "--auto", "--json")
    assert code == 0, err
    assert err.startswith("""\
damaged      0-00000010: Its manifest.json is missing, or is not one that a run writes.
damaged      0-00000008: Its manifest.json is missing, or is not one that a run writes.
resume       from the checkpoint 0-00000004, after 128 steps
""")
    assert json.loads(out.splitlines()[-1])["weights_sha256"] == stopped["weights_sha256"]
    for manifest in Path("run/checkpoints").glob("*/manifest.json"):
        manifest.unlink()
    set_config(status="running")
    code, _, err = msrl("resume", "run", "--auto")
    assert (code, err.splitlines()[0]) == (2, "UsageError: No checkpoint of the run run can be used.")
    assert err.endswith("Train again: sh run/reproduce.sh\nSee docs/resuming.md.\n")


@pytest.mark.parametrize(("change", "why"), [
    (lambda said: said["about"].pop("done"), "done in its manifest.json is None."),
    (lambda said: said["about"].update(rows="3"), "rows in its manifest.json is '3'."),
    (lambda said: said["about"]["ledger"].pop("dropped"), "ledger.dropped in its manifest.json is None."),
    (lambda said: said["about"].update(env_steps=10**40), f"env_steps in its manifest.json is {10**40}."),
    (lambda said: said["about"]["run"].update(config=3), "run.config in its manifest.json is 3."),
])
def test_a_manifest_with_another_field(msrl, stopped, change, why):
    """Sealed, so that it is its own writer that has written it so: another version, or somebody else."""
    file = Path("run/checkpoints/0-00000010/manifest.json")
    said = json.loads(file.read_text())
    del said["sha256"]
    change(said)
    file.write_text(json.dumps({**said, "sha256": checkpoints.seal(said)}))
    assert msrl("resume", "run") == (2, "", f"""\
UsageError: The checkpoint run/checkpoints/0-00000010 cannot be used.
It is damaged, or of another version: {why}
Go on from the newest sound one, 0-00000008: msrl resume run --auto
""")


def test_a_manifest_without_a_part(msrl, stopped):
    """It is found where the run would begin with it."""
    file = Path("run/checkpoints/0-00000008/manifest.json")
    said = json.loads(file.read_text())
    name = next(name for name in said["parts"] if name.startswith("$learner"))
    del said["sha256"], said["parts"][name]
    file.write_text(json.dumps({**said, "sha256": checkpoints.seal(said)}))
    code, _, err = msrl("resume", "run", "--checkpoint", "0-00000008")
    assert code == 2
    assert err == """\
UsageError: `$learner` in the checkpoint is not what it is here.
The checkpoint has none.
Use the algorithm's source, the settings and the environment of the run.
"""


def test_a_checkpoint_under_another_name(msrl, stopped):
    Path("run/checkpoints/0-00000008").rename("run/checkpoints/0-00000099")
    assert msrl("resume", "run")[2].splitlines()[1] == "It is the checkpoint 0-00000008 under another name."


def test_metrics_that_are_not_what_the_run_wrote(msrl, stopped):
    """What was trained does not depend on them, so that the run goes on, and says so."""
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    Path("run/metrics.jsonl").write_text("\n".join([*lines[:2], "{", *lines[3:]]))
    code, _, err = msrl("resume", "run", "--json")
    assert code == 0
    assert "metrics      metrics.jsonl is not what the run wrote: of the 10 lines up to here, 2 can be read\n" in err


@pytest.mark.parametrize(("found", "given", "then"), [
    (dict(backend="ray", address="10.0.0.1:6379", distribution="single-learner-coarse", actors=2),
     dict(backend="threads"), dict(distribution="single-learner-coarse", backend="threads", actors=2)),
    (dict(backend="ray", address="10.0.0.1:6379", distribution="single-learner-coarse", actors=2,
          hosts=(Host("10.0.0.2"),)), dict(distribution="local", backend="inline"), dict()),
    (dict(distribution="single-learner-coarse-async", actors=2, max_lag=3),
     dict(distribution="single-learner-fine"), dict(distribution="single-learner-fine", actors=2)),
    (dict(distribution="multi-learner", learners=2, passes="+overlap"),
     dict(distribution="single-learner-coarse-async"), dict(distribution="single-learner-coarse-async")),
    (dict(distribution="single-learner-coarse", actors=2), dict(distribution="environments"),
     dict(distribution="environments")),
    (dict(backend="ray", address="10.0.0.1:6379"), dict(backend="threads", address="10.0.0.1:6379"),
     dict(backend="threads", address="10.0.0.1:6379")),
])
def test_what_was_not_given_is_no_reason_to_refuse(found, given, then):
    assert fitted(package.Deployment(**found), given) == package.Deployment(**then)


def test_a_deployment_that_was_changed_by_hand(msrl, stopped):
    Path("run/deployment.toml").write_text(package.Deployment("single-learner-coarse", actors=2).to_toml())
    assert msrl("resume", "run") == (2, "", """\
UsageError: run/deployment.toml was changed since the run wrote it: distribution, backend, actors.
distribution is 'single-learner-coarse' there, and 'local' in config.json.
backend is 'threads' there, and 'inline' in config.json.
actors is 2 there, and 1 in config.json.
Put it back as it was, or say that it is on purpose: msrl resume run --deployment run/deployment.toml
See docs/resuming.md.
""")


def test_a_ray_run_goes_on_here(msrl, stopped):
    """Neither the actors nor the address were given."""
    ray = package.Deployment("single-learner-coarse", "ray", actors=2, address="10.0.0.1:6379")
    Path("run/deployment.toml").write_text(ray.to_toml())
    set_config(deployment=json.loads(json.dumps(dataclasses.asdict(ray))))
    code, _, err = msrl("resume", "run", "--distribution", "local", "--backend", "inline")
    assert code == 0, err


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
