"""Bad input: one clear message with the remedy, exit code 2, and nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import msrl as package
from msrl.cli.main import origin
from msrl.errors import RunError, Span, UsageError
from tests.cli.conftest import TINY

LIST = "msrl.envs.list_envs() lists what is built in, and explains the forms gymnasium:<id>, envpool:<id>, " \
    "pettingzoo:<module> and <path>.py:<Class>."
CASES = {
    "no algorithm": (["train"], """\
UsageError: msrl train needs an algorithm.
There are a2c, a3c, dqn, impala, mappo, ppo, sac.
For instance: msrl train ppo --env CartPole-v1
"""),
    "unknown algorithm": (["train", "pqo", "--env", "CartPole-v1"], """\
UsageError: there is no algorithm 'pqo'. Did you mean ppo or mappo?
The algorithms are a2c, a3c, dqn, impala, mappo, ppo, sac.
For one of your own: write path/to/file.py:TrainerClass.
"""),
    "unknown flag": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--nois", "3"], f"""\
UsageError: msrl train {TINY}:Tiny has no flag --nois.
Did you mean --noise?
See all of them: msrl train {TINY}:Tiny --help
"""),
    "a flag of another library": (["train", "ppo", "--env", "CartPole-v1", "--lr", "3e-4"], """\
UsageError: msrl train ppo has no flag --lr.
Did you mean --learning-rate?
See all of them: msrl train ppo --help
"""),
    "one that may mean two": (["train", "sac", "--env", "Pendulum-v1", "--lr=3e-4"], """\
UsageError: msrl train sac has no flag --lr.
Did you mean --actor-learning-rate or --critic-learning-rate?
See all of them: msrl train sac --help
"""),
    "a flag of a library with other words": (["train", "dqn", "--env", "CartPole-v1", "--buffer_size", "9"], """\
UsageError: msrl train dqn has no flag --buffer_size.
Did you mean --capacity?
See all of them: msrl train dqn --help
"""),
    "a flag like no other": (["eval", "run", "--zzzzzz=3"], """\
UsageError: msrl eval has no flag --zzzzzz.
Nothing it has is called alike.
See all of them: msrl eval --help
"""),
    "unknown command": (["trian", "ppo"], """\
UsageError: There is no command 'trian'. Did you mean train?
The commands are train, resume, eval, replay, graph, verify, list, new, docs.
See: msrl --help
"""),
    "a seed of more than 64 bits": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--seed", str(2**64)], """\
UsageError: The seed is 18446744073709551616.
It must be a whole number from -2147483648 to 4294967295: JAX takes 32 bits of it, and a longer one would give the \
random numbers of another.
Give --seed (in Python: seed=) another value.
"""),
    "the last of several seeds": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--seed", str(2**32 - 1), "--seeds",
                                   "2"], "UsageError: The seed is 4294967296."),
    "a seed of a thousand bits": (["verify", f"{TINY}:Tiny", "--env", "CartPole-v1", "--seed", str(2**1000)],
                                  "UsageError: The seed is a number of more than 128 bits."),
    "an empty environment": (["train", f"{TINY}:Tiny", "--env", ""], f"""\
EnvError: '' does not name an environment.
It is empty.
{LIST}
"""),
    "a prefix alone": (["graph", f"{TINY}:Tiny", "--env", "gymnasium:"], f"""\
EnvError: 'gymnasium:' does not name an environment.
There is nothing behind the colon.
{LIST}
"""),
    "an id that is a path": (["train", f"{TINY}:Tiny", "--env", "gymnasium:../x"], f"""\
EnvError: There is no environment 'gymnasium:../x'.
No known id resembles it.
{LIST}
"""),
    "a module that is a path": (["train", f"{TINY}:Tiny", "--env", "pettingzoo:../x"], """\
EnvError: There is no PettingZoo environment '../x'.
It is not the path of a module.
Write the path of a module that has one, such as pettingzoo:mpe2.simple_spread_v3.
"""),
    "a file without a class": (["train", f"{TINY}:Tiny", "--env", "maze.py"], """\
EnvError: 'maze.py' does not say which class is the environment.
Write path/to/file.py:Class.
"""),
    "no steps": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--total-steps", "0"], """\
UsageError: total_steps is 0.
It must be a whole number, 1 or more.
Give --total-steps (in Python: total_steps=) another value.
"""),
    "evaluation backwards": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-every", "-1"], """\
UsageError: eval_every is -1.
It must be a whole number, 0 or more.
Give --eval-every (in Python: eval_every=) another value.
"""),
    "uneven shards": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--shards", "3"], """\
UsageError: 4 environments cannot be divided into 3 shards.
All shards have the same number of environments, so that they run the same program.
Use --shards with a divisor of 4, or change --num-envs.
"""),
    "nothing to learn from": (["train", "ppo", "--env", "CartPole-v1", "--rollout", "0"], """\
UsageError: rollout is 0.
It must be a whole number, 1 or more.
Give --rollout (in Python: rollout=) another value.
"""),
    "nothing to divide into": (["train", "mappo", "--env", "simple_spread", "--minibatches", "0"], """\
UsageError: minibatches is 0.
It must be a whole number, 1 or more.
Give --minibatches (in Python: minibatches=) another value.
"""),
    "a layer of nothing": (["train", "dqn", "--env", "CartPole-v1", "--hidden", "64", "0"], """\
UsageError: hidden is (64, 0).
It must be a tuple, and each entry a whole number, 1 or more.
Give --hidden (in Python: hidden=) another value.
"""),
    "a replay too small": (["graph", "sac", "--env", "Pendulum-v1", "--capacity", "100"], """\
UsageError: capacity is 100, and batch_size 128.
The replay must hold a whole batch, and what all environments bring in one step.
Give --capacity 128 or more, or --batch-size 100 or less (in Python: capacity=, batch_size=).
"""),
    "a field that is a flag": (["train", f"{TINY}:Clashing", "--env", "CartPole-v1"], """\
UsageError: ClashingConfig has a field 'seed'.
It is an option of `msrl train`, and a flag has one meaning.
Give the field another name.
"""),
    "wrong type": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--num-envs", "many"],
                   "Error parsing --num-envs: invalid literal for int() with base 10: 'many'"),
    "wrong choice": (["graph", f"{TINY}:Tiny", "--env", "CartPole-v1", "--format", "dot"],
                     "invalid choice 'dot' for argument '--format'"),
    "no environment": (["train", f"{TINY}:Tiny"], "--env ENV"),
    "unknown environment": (["train", f"{TINY}:Tiny", "--env", "CartPoll-v1"],
                            "EnvError: There is no environment 'CartPoll-v1'.\nThe nearest that are known: CartPole"),
    "a word too many": (["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "more"], "Unrecognized options: more"),
    "no episodes": (["eval", "run", "--episodes", "0"], "UsageError: --episodes is 0.\nIt must be 1 or more.\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(msrl, tmp_path, case):
    args, message = CASES[case]
    code, out, err = msrl(*args)
    assert (code, out) == (2, "")
    if message.endswith("\n"):
        assert err == message
    else:  # not ours alone: part of a box, or of a list that grows
        assert message in err
        assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_run_folder_that_is_not_empty(msrl):
    Path("taken").mkdir()
    (Path("taken") / "thesis.tex").write_text("years of work")
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--run-dir", "taken")
    assert (code, out) == (2, "")
    assert err == """\
UsageError: The run folder taken is not empty.
A run never writes over another one.
Name another with --run-dir, or remove this one.
"""
    assert [path.name for path in Path("taken").iterdir()] == ["thesis.tex"]


def test_a_run_folder_that_is_a_file(msrl):
    Path("taken").write_text("")
    assert msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--run-dir", "taken") == (2, "", """\
UsageError: The run folder taken is a file.
Name another: --run-dir DIR.
""")


def test_a_setting_that_does_not_exist_in_python():
    with pytest.raises(UsageError, match="Tiny has no setting 'nois'"):
        package.train(f"{TINY}:Tiny", env="CartPole-v1", nois=3)


def test_a_number_of_steps_that_is_none_in_python():
    with pytest.raises(UsageError) as caught:
        package.train(f"{TINY}:Tiny", env="CartPole-v1", total_steps=1e6)
    assert str(caught.value) == """\
total_steps is 1000000.0.
It must be a whole number, 1 or more.
Give --total-steps (in Python: total_steps=) another value."""


def test_help(msrl):
    code, out, _ = msrl("train", "--help")
    assert code == 0
    assert "usage: msrl train [-h] [OPTIONS] ALGORITHM" in out
    assert "--total-steps" in out
    code, out, _ = msrl("train", f"{TINY}:Tiny", "--help")
    assert code == 0
    assert "How far the weights jump. (default: 0.5)" in out and "--eval-episodes" in out
    code, out, _ = msrl("--help")
    assert code == 0
    assert "train  Train an algorithm on an environment." in out


def test_the_algorithm_may_come_after_flags(msrl):
    code, out, err = msrl("graph", "--env", "CartPole-v1", f"{TINY}:Tiny")
    assert code == 0, err
    assert out.startswith("graph Tiny {")


def test_a_mistake_in_the_users_code_comes_with_its_traceback():
    span = Span("mine.py", 3, 1, 4, "msrl.env_step(action)")
    problem = RunError("`env.step` fails: ZeroDivisionError.", span=span)
    try:
        1 / 0  # noqa: B018 (for its traceback)
    except ZeroDivisionError as error:
        problem.__cause__ = RunError("within")
        problem.__cause__.__cause__ = error
    told = origin(problem)
    assert told.startswith("Traceback (most recent call last):\n") and "    1 / 0" in told
    assert told.endswith("\nZeroDivisionError: division by zero\n\n")
    problem.span = None  # not of a line of the loop
    assert origin(problem) == "" and origin(UsageError("no", span=span)) == ""


@pytest.mark.parametrize("method, message", [
    ("def agent(self): return [][7]", """\
IndexError.

  mine.py:6
    6 | def agent(self): return [][7]
                                ^^^^^

list index out of range
"""),
    ("def buffers(self): return np.zeros(2) @ np.zeros(3)", "(size 3 is different from 2)\n"),
    ("def wrap(env, config): return env.nothing", "'EpisodeStats' object has no attribute 'nothing'\n"),
])
def test_a_trainer_that_cannot_be_made(method, message, msrl):
    """It is told by its line: the rest of the traceback is ours."""
    Path("mine.py").write_text(
        f"import numpy as np\nfrom tests.cli.tiny import Tiny\n\n\nclass Mine(Tiny):\n    {method}\n")
    code, _, err = msrl("train", "mine.py:Mine", "--env", "CartPole-v1")
    assert code == 2 and err.startswith("UsageError: This line fails: ") and "Traceback" not in err, err
    assert err.endswith(message), err


@pytest.mark.parametrize("platform, why", [
    ("cuda", "No plug-in for cuda is installed, or it found no device."),
    ("nonsense", "Unable to initialize backend 'nonsense': Backend 'nonsense' is not in the list of known backends: "),
])
def test_a_platform_that_jax_cannot_start(platform, why, tmp_path):
    words = ["train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "msrl.cli.main", *words], capture_output=True,
                          env={**os.environ, "JAX_PLATFORMS": platform}, text=True, check=False, timeout=300)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"UsageError: JAX cannot start the platform '{platform}'.\n{why}" in done.stderr
    assert "\nUnset JAX_PLATFORMS, or set JAX_PLATFORMS=cpu." in done.stderr
    assert not (tmp_path / "run").exists()
