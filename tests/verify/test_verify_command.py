"""`msrl verify`: what it runs, what it prints, and how it leaves."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from msrl.cli.main import main
from msrl.distribution import DISTRIBUTIONS
from msrl.pipeline import Deployment, compile
from tests.cli.conftest import TINY
from tests.verify.breaking import break_message

# What test_partings.py compiles, too.
PPO = ("ppo", "--env", "CartPole-v1", "--rollout", "4", "--epochs", "1", "--minibatches", "2", "--hidden", "4")
COARSE, FINE = "single-learner-coarse", "single-learner-fine"
VARIES = r"\d+\.\d s|\d\.\de-\d+"
HASTE = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # what conftest.py sets so that programs compile sooner


@pytest.fixture
def verify(capsys, monkeypatch, tmp_path):
    """(exit code, standard output, standard error), with times and distances left out."""
    monkeypatch.setenv("MSRL_CACHE_DIR", "off")  # the tests have a cache of their own
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args):
        code = main(["verify", *map(str, args)])
        out, err = capsys.readouterr()
        assert not list(Path().iterdir())
        return code, re.sub(VARIES, "#", out), err

    return run


def test_a_single_learner_everywhere():
    """In a process of its own, with programs compiled as users have them: those of the tests are compiled in haste."""
    env = {name: value for name, value in os.environ.items() if name not in HASTE}
    words = (*PPO, "--instances", "1", "2", "--num-envs", "4", "--updates", "3")
    done = subprocess.run([sys.executable, "-m", "msrl.cli.main", "verify", *words], env={**env, "COLUMNS": "100"},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, re.sub(VARIES, "#", done.stdout), done.stderr) == (0, """\
ppo on jax:CartPole-v1, seed 0
updates 3, total_steps 48, num_envs 4, shards 4, learner_shards 1, rollout 4

distribution           backend  instances  result
local                  eager            1  same
local                  anew             1  same
local                  sizes            1  same
local                  process          1  same
local                  inline           1  same
local                  threads          1  same
single-learner-coarse  inline           1  same
single-learner-coarse  inline           2  same
single-learner-coarse  threads          1  same
single-learner-coarse  threads          2  same
single-learner-fine    inline           1  same
single-learner-fine    inline           2  same
single-learner-fine    threads          1  same
single-learner-fine    threads          2  same

14 cases against the interpreter, bit by bit: 14 same (#)
fast mode ends within # of strict mode's parameters, # of an array's largest
""", "")


def test_several_learners_and_what_is_refused(verify):
    assert verify(*PPO, "--learner-shards", "2", "--distributions", "multi-learner", "device-only", COARSE,
                  "--backends", "inline", "--instances", "2", "3", "8", "--every-call", "--num-envs", "4",
                  "--total-steps", "50") == (0, """\
ppo on jax:CartPole-v1, seed 0
updates 3, total_steps 50, num_envs 4, shards 4, learner_shards 2, rollout 4

distribution           backend  instances  result
multi-learner          inline           2  same
multi-learner          inline           3  refused: 2 learner shards cannot be divided among 3 learners.
multi-learner          inline           8  refused: 2 learner shards cannot be divided among 8 learners.
device-only            inline           2  same
device-only            inline           3  refused: 2 learner shards cannot be divided evenly among 3 learners.
device-only            inline           8  refused: 2 learner shards cannot be divided evenly among 8 learners.
single-learner-coarse  inline           2  same
single-learner-coarse  inline           3  same
single-learner-coarse  inline           8  refused: 8 actors cannot share 4 shards.

9 cases against the interpreter, bit by bit: 4 same, 5 refused (#)
fast mode ends within # of strict mode's parameters, # of an array's largest
""", "")


def test_a_trainer_of_ones_own_that_is_broken(verify, monkeypatch):
    """Tiny learns nothing from what it sees, so that only its calls can show it."""
    args = (f"{TINY}:Tiny", "--env", "gymnasium:CartPole-v1", "--steps", "2", "--instances", "2")
    code, out, err = verify(*args)
    assert (code, err) == (0, "")
    assert [line.split()[-1] for line in out.splitlines()[4:10]] == ["same"] * 6
    move = next(move for move in moves(COARSE) if move.startswith("$weights") and move != "$weights.1:learner>actor")
    break_message(monkeypatch, move, 1, 1, lambda weights: {"w": -weights["w"]})
    code, out, err = verify(*args, "--distributions", COARSE, FINE, "--backends", "threads", "--every-call")
    assert (code, err) == (1, "")
    shown = out.splitlines()
    assert re.sub(r"\(.*tiny.py:\d+\)", "(tiny.py)", "\n".join(shown[4:9])) == f"""\
{COARSE}  threads          2  differs: on the way, though not in the end
    op        actor.act (tiny.py), call 3: it is given another resources[0]['w']
    fragment  actor, instance 1
    shard     2
    update    2"""
    assert shown[9:] == [f"{FINE}    threads          2  same", "",
                         "2 cases against the interpreter, bit by bit: 1 same, 1 differs (#)", shown[-1]]


def moves(distribution: str) -> list[str]:
    program = compile(f"{TINY}:Tiny", "CartPole-v1", shards=2, deployment=Deployment(distribution, actors=2))
    return [move.id for move in program.placed.moves]


REFUSED = {
    "no algorithm": (("--env", "CartPole-v1"), """\
UsageError: msrl verify needs an algorithm.
There are a2c, a3c, dqn, impala, mappo, ppo, sac.
For instance: msrl verify ppo --env CartPole-v1
"""),
    "a flag of train": ((*PPO, "--actors", "2"), """\
UsageError: msrl verify ppo has no flag --actors.
Nothing it has is called alike.
See all of them: msrl verify ppo --help
"""),
    "unknown backend": ((*PPO, "--backends", "inline", "thread"), """\
UsageError: There is no backend 'thread'.
There are inline, threads, ray, eager, anew, sizes, process.
Did you mean threads?
"""),
    "unknown distribution": ((*PPO, "--distributions", "single-learner-corse"), f"""\
UsageError: There is no distribution 'single-learner-corse'.
There are {', '.join(DISTRIBUTIONS)}.
Did you mean single-learner-coarse?
"""),
    "no instances": ((*PPO, "--instances", "2", "0"), """\
UsageError: --instances is 0.
It must be 1 or more.
Give it another value, or leave it out.
"""),
    "two lengths": ((*PPO, "--updates", "2", "--total-steps", "64"), """\
UsageError: Both --updates and --total-steps are given.
Each says how long to run.
Leave out one of them.
"""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_compiled(verify, case):
    args, message = REFUSED[case]
    assert verify(*args) == (2, "", message)


def test_where_all_is_refused_nothing_is_verified(verify):
    code, out, err = verify(f"{TINY}:Tiny", "--env", "CartPole-v1", "--distributions", COARSE, "--instances", "9",
                            "--backends", "inline")
    assert (code, err) == (2, """\
UsageError: Nothing was compared.
Every case was refused, for the reasons above.
Ask for other distributions, backends or instances.
""")
    assert "refused: 9 actors cannot share 4 shards." in out
