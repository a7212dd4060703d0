"""`msrl eval`: what was learnt plays the same later, and elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

NORMALISED = ("--normalise", "--shards", "2")


def evaluate(msrl, *args) -> dict:
    code, out, err = msrl("eval", *args, "--json")
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("env, flags", [("CartPole-v1", ()), ("CartPole-v1", NORMALISED),
                                        ("gymnasium:CartPole-v1", NORMALISED)])
def test_it_returns_what_training_did_at_its_end(msrl, train, env, flags):
    trained = train("--run-dir", "run", *flags, env=env)
    played = evaluate(msrl, "run", "--episodes", "5")
    assert played["eval_return_mean"] == trained["eval_return_mean"]
    assert played["eval_return_std"] == trained["eval_return_std"]


def test_normalisers_matter(msrl, train):
    """What the wrappers learnt is really read back: other statistics give other returns."""
    import numpy as np

    from msrl.runtime import weights

    train("--run-dir", "run", "--normalise")
    folder = Path("run") / "weights" / "0"
    kept = weights.load_arrays(folder)
    before = evaluate(msrl, "run", "--episodes", "20")["eval_return_mean"]
    kept["env"]["0"]["own"]["mean"] = np.array([0, 0, 5, 5], np.float32)
    shutil.rmtree(folder)
    weights.save(folder, kept)
    assert evaluate(msrl, "run", "--episodes", "20")["eval_return_mean"] != before


def test_weights_of_another_run_are_not_played(msrl, train):
    """Though they are sound, and of the same shape."""
    mine, other = train("--run-dir", "run"), train("--run-dir", "other", "--noise", "0.7")
    shutil.rmtree("run/weights/0")
    shutil.copytree("other/weights/0", "run/weights/0")
    assert msrl("eval", "run") == (2, "", f"""\
UsageError: The weights in run/weights/0 are not those that the run ended with.
They have the checksum {other['weights_sha256'][:12]}..., and result.json says {mine['weights_sha256'][:12]}...
Restore them from a copy, or train again.
""")
    Path("run/result.json").unlink()
    assert msrl("eval", "run") == (2, "", """\
UsageError: The weights in run cannot be verified.
The run is finished, and there is no result.json with the checksum of each seed's.
Restore it from a copy, or train again.
""")


def test_damaged_weights_are_not_played(msrl, train):
    train("--run-dir", "run")
    files = [each for each in Path("run/weights/0").rglob("*") if each.is_file()]
    file = max(files, key=lambda each: each.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert msrl("eval", "run") == (2, "", f"""\
UsageError: The weights in run/weights/0 cannot be used.
They are damaged: {file.relative_to('run/weights/0')} does not have its checksum.
Restore them from a copy, or train again.
""")


def test_every_seed_is_played(msrl, train):
    trained = train("--run-dir", "run", "--seeds", "2")
    played = evaluate(msrl, "run", "--episodes", "5")
    assert [(row["seed"], row["eval_return_mean"]) for row in played["per_seed"]] == [
        (row["seed"], row["eval_return_mean"]) for row in trained["per_seed"]]


def test_elsewhere_with_the_same_spaces(msrl, train):
    train("--run-dir", "run", "--normalise")
    played = evaluate(msrl, "run", "--episodes", "5", "--env", "gymnasium:CartPole-v1")
    assert (played["env_id"], played["trained_on"]) == ("gymnasium:CartPole-v1", "jax:CartPole-v1")


def test_people_read_it(msrl, train):
    trained = train("--run-dir", "run")
    code, out, err = msrl("eval", "run", "--episodes", "5")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "environment  jax:CartPole-v1"
    assert out.splitlines()[2].startswith(
        f"return       {trained['eval_return_mean']:.1f} ± {trained['eval_return_std']:.1f} over 5 episodes")


def test_other_spaces_are_refused(msrl, train):
    train("--run-dir", "run")
    code, out, err = msrl("eval", "run", "--env", "Acrobot-v1")
    assert (code, out) == (2, "")
    assert err == """\
EnvError: jax:Acrobot-v1 does not fit the weights of a run on jax:CartPole-v1.
Its observation space is Box(6,) of float32; the run's is Box(4,) of float32.
Evaluate on an environment with the same spaces, or train on this one.
"""


def test_a_folder_that_is_no_run(msrl):
    Path("empty").mkdir()
    code, out, err = msrl("eval", "empty")
    assert (code, out) == (2, "")
    assert err == """\
UsageError: empty is not a run folder.
There is no empty/config.json.
Name a folder that `msrl train` made, for instance one under runs/.
"""
    (Path("empty") / "config.json").write_text('{"status": "finished"}')
    assert msrl("eval", "empty")[2].splitlines()[1] == \
        "empty/config.json is not one that `msrl train` writes: it has no 'algorithm'."


def test_a_run_without_weights(msrl, train):
    train("--run-dir", "run")
    (Path("run") / "weights" / "0").rename("elsewhere")
    code, _, err = msrl("eval", "run")
    assert code == 2
    assert err == """\
UsageError: run has no weights.
The run's status is 'finished'.
Train it again: sh run/reproduce.sh
"""


def test_an_algorithm_that_has_changed(msrl, train):
    train("--run-dir", "run")
    file = Path("run") / "config.json"
    about = json.loads(file.read_text())
    about["config"]["speed"] = about["config"].pop("noise")
    file.write_text(json.dumps(about))
    code, _, err = msrl("eval", "run")
    assert code == 2
    assert err.splitlines()[0].startswith("UsageError: run was made with other settings than ")


def test_several_agents_elsewhere(msrl, train):
    train("--run-dir", "run", "--normalise", env="simple_spread")
    played = evaluate(msrl, "run", "--episodes", "4", "--env", "pettingzoo:mpe2.simple_spread_v3")
    assert played["env_id"] == "pettingzoo:mpe2.simple_spread_v3"
    assert played["eval_length_mean"] == 25
