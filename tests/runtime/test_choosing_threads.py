"""How many threads XLA has is chosen by `msrl train`, and by nobody else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from msrl import Deployment
from msrl.distribution import load
from msrl.runtime.threads import few
from tests.cli.conftest import TINY

ROOT = Path(__file__).parents[2]
LARGE = ("--batch-size", "2048", "--hidden", "128", "128")


def run(folder: Path, *args: str, **variables: str) -> str:
    """A command, or a program if there is but one argument: what it says."""
    clean = {name: value for name, value in os.environ.items() if name != "PJRT_NPROC"}
    done = subprocess.run([sys.executable, *(("-c",) if len(args) == 1 else ("-m", "msrl.cli.main")), *args],
                          cwd=folder, env={**clean, "PYTHONPATH": str(ROOT), **variables}, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(folder: Path, *args: str, **variables: str) -> str | None:
    """The threads that a run folder tells of."""
    run(folder, "train", "dqn", "--env", "CartPole-v1", "--total-steps", "200", "--warmup", "100", "--num-envs", "10",
        "--eval-episodes", "1", "--run-dir", "run", *args, **variables)
    return threads(folder)


def threads(folder: Path) -> str | None:
    return json.loads((folder / "run" / "config.json").read_text())["flags"]["PJRT_NPROC"]


def test_small_programs_have_one(tmp_path):
    assert train(tmp_path) == "1"


def test_large_ones_have_as_many_as_there_are_cores(tmp_path):
    assert train(tmp_path, *LARGE) is None


def test_the_user_has_the_last_word(tmp_path):
    assert train(tmp_path, PJRT_NPROC="3") == "3"


def test_on_one_device(tmp_path):
    assert train(tmp_path, "--distribution", "device-only") == "1"


def test_a_run_that_goes_on_has_what_it_had(tmp_path):
    """Reading its checkpoint starts JAX, before there is a program to choose for."""
    run(tmp_path, f"""
from msrl.cli import main
from msrl.pipeline import Program
whole = Program.run

def cut_short(self):
    for number, update in enumerate(whole(self)):
        if number == 3:
            raise KeyboardInterrupt
        yield update

Program.run = cut_short
main.main(["train", {f"{TINY}:Tiny"!r}, "--env", "CartPole-v1", "--total-steps", "4000", "--eval-episodes", "1",
           "--checkpoint-every", "1", "--run-dir", "run"])""")
    assert threads(tmp_path) == "1"
    run(tmp_path, "resume", "run", "--algorithm", f"{TINY}:Tiny")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["status"], config["flags"]["PJRT_NPROC"]) == ("finished", "1")


def test_a_script_keeps_its_threads(tmp_path):
    """It may have larger things to do afterwards."""
    said = run(tmp_path, f"""
import os
import msrl
msrl.train({f"{TINY}:Tiny"!r}, "CartPole-v1", total_steps=64, eval_episodes=1, progress=False)
print(os.environ.get("PJRT_NPROC"))""")
    assert said == "None\n"


def test_nothing_of_ours_starts_jax_before_the_choice(tmp_path):
    said = run(tmp_path, """
from jax._src import xla_bridge
from msrl import algorithms, envs
from msrl.engines.library import make_ops
from msrl.engines.shapes import find_shapes
from msrl.engines.world import make_world
from msrl.envs.wrappers import observed
from msrl.frontend.lower import lower

CONTINUOUS, SEVERAL = ["Pendulum-v1", "gymnasium:Pendulum-v1"], ["simple_spread", "simple_tag"]
CHOICES = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "gymnasium:CartPole-v1", "envpool:CartPole-v1"]
for algorithm in algorithms.ALGORITHMS:
    for name in {"sac": CONTINUOUS, "mappo": SEVERAL, "ppo": CONTINUOUS + CHOICES}.get(algorithm, CHOICES):
        cls, env = algorithms.load(algorithm), envs.make(name)
        settings = algorithms.configured(cls, None, {})
        wrapped = cls.wrap(observed(env, None, None), settings)
        trainer = cls(settings, wrapped.spec)
        world = make_world(trainer, wrapped)
        graph = lower(trainer, tuple(world.buffers), tuple(world.own))
        ops = make_ops(world, graph)
        find_shapes(graph, ops)
        env.close()
        assert ops.tracing.work.total and not xla_bridge.backends_are_initialized(), (algorithm, name)
        print(algorithm, name)""")
    assert len(said.splitlines()) > 25


@pytest.mark.parametrize(("deployment", "found"), [
    (Deployment(), True),
    (Deployment("single-learner-coarse"), True),
    (Deployment("single-learner-coarse", actors=2), False),
    (Deployment("single-learner-coarse", "inline", actors=2), False),
    (Deployment("single-learner-coarse", "ray", actors=2), True),
    (Deployment("single-learner-coarse-async"), True),
    (Deployment("single-learner-coarse-async", actors=2), False),
    (Deployment("multi-learner", learners=2), False),
    (Deployment("multi-learner", "inline", learners=2), False),
    (Deployment("multi-learner", "ray", learners=2), True),
    (Deployment("device-only"), True),
    (Deployment("device-only", learners=2), False),
], ids=str)
def test_many_instances_in_a_process_need_several(deployment, found):
    assert few(deployment, load(deployment.distribution)) is found
