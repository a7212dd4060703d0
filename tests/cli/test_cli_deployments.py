"""Deployments through the command line: what they are read from, what is told of them, that all else still works."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import msrl as package
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.jobs import prepare
from tests.cli.conftest import TINY

ROOT = Path(__file__).parents[2]
COARSE, FINE = "single-learner-coarse", "single-learner-fine"
SHARDED = ("--shards", "2", "--num-envs", "4")


@pytest.mark.parametrize("distribution", [COARSE, FINE])
@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_evaluation_metrics_and_folder(train, distribution, backend):
    result = train("--run-dir", "run", *SHARDED, "--distribution", distribution, "--backend", backend, "--actors", "2",
                   "--eval-every", "1", "--normalise")
    assert (result["distribution"], result["backend"], result["env_steps"]) == (distribution, backend, 64)
    rows = [json.loads(line) for line in (Path("run") / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] == 64
    assert [row["env_steps"] for row in rows] == sorted(row["env_steps"] for row in rows)
    assert sum("loss" in row for row in rows) == 2
    assert sum("eval_return_mean" in row for row in rows) >= 1  # where the actors have been looked at
    assert rows[-1]["eval_return_mean"] == result["eval_return_mean"] or "loss" in rows[-1]
    assert Deployment.from_file(Path("run") / "deployment.toml") == Deployment(distribution, backend, 2)
    about = json.loads((Path("run") / "config.json").read_text())
    assert (about["distribution"], about["backend"]) == (distribution, backend)
    assert not {"distribution", "backend", "actors"} & about["config"].keys()


def test_a_run_is_repeated_and_played(train, msrl):
    first = train("--run-dir", "first", *SHARDED, "--distribution", COARSE, "--actors", "2", "--backend", "inline",
                  "--passes", "-fuse-instances")
    words = shlex.split((Path("first") / "reproduce.sh").read_text().splitlines()[-1])
    assert words[-4:] == [f"--distribution={COARSE}", "--backend=inline", "--actors=2", "--passes=-fuse-instances"]
    code, out, err = msrl(*words[1:], "--run-dir", "again", "--json")
    assert code == 0, err
    again = json.loads(out.splitlines()[-1])
    assert again["weights_sha256"] == first["weights_sha256"]
    assert (Path("again") / "deployment.toml").read_text() == (Path("first") / "deployment.toml").read_text()
    code, out, err = msrl("eval", "first", "--episodes", "5", "--json")
    assert code == 0, err
    assert json.loads(out)["eval_return_mean"] == first["eval_return_mean"]


def test_a_file_and_flags_that_override_it(train, msrl):
    Path("two.toml").write_text(f'distribution = "{COARSE}"\nbackend = "inline"\nactors = 2\n')
    result = train("--run-dir", "run", *SHARDED, "--deployment", "two.toml", "--backend", "threads")
    assert (result["distribution"], result["backend"]) == (COARSE, "threads")
    assert Deployment.from_file(Path("run") / "deployment.toml").actors == 2
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--deployment", "two.toml",
                          "--distribution", "local")
    assert (code, out) == (2, "")
    assert err.startswith("UsageError: 2 actors cannot be had under local.\n")


def test_people_are_told_where_it_runs(msrl):
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", "--eval-episodes", "5", "--run-dir", "run",
                          *SHARDED, "--distribution", COARSE, "--actors", "2")
    assert (code, err) == (0, "")
    assert out.splitlines()[2:4] == [f"deployment   {COARSE}: actor ×2, learner; threads",
                                     "engine       compiled stretches between moves"]
    assert out.splitlines()[-1] == (f"             msrl graph {TINY}:Tiny --env CartPole-v1 --distribution {COARSE} "
                                    "--actors 2 --shards 2")


REFUSED = {
    "more actors than shards": (("--distribution", COARSE, "--actors", "4"), """\
UsageError: 4 actors cannot share 1 shard.
A shard of the environments is the unit of replication, and each instance needs at least one.
Use --actors 1, or give the algorithm more shards: --shards 4.
See docs/distributions.md.
"""),
    "unknown pass": (("--passes", "-fuse-instance"), """\
UsageError: There is no pass 'fuse-instance'.
There are overlap, decide-branches, coalesce-moves, fuse-instances, call-back, fuse-stretches.
Did you mean fuse-instances?
"""),
    "unknown key of a file": (("--deployment", "bad.toml"), """\
UsageError: A deployment has no 'acters'.

  bad.toml:1
    1 | acters = 2
        ^^^^^^

It has distribution, backend, actors, learners, max_lag, address, hosts, devices, passes, worker_timeout.
Did you mean actors?
See docs/distributions.md.
"""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(msrl, case):
    Path("bad.toml").write_text("acters = 2\n")
    flags, message = REFUSED[case]
    assert msrl("train", f"{TINY}:Tiny", "--env", "CartPole-v1", *flags) == (2, "", message)
    assert [path.name for path in Path().iterdir()] == ["bad.toml"]


OWN = """
from msrl.distribution.policy import DistributionPolicy

class OnDevice(DistributionPolicy):
    name, summary, counts, traceable_only, device_each = "on-device", "", ("learners",), True, True
    def fragments(self, graph, with_actors): ...

class ByAgent(DistributionPolicy):
    name, summary, axis = "by-agent", "", "agent"
    def fragments(self, graph, with_actors): ...
"""


@pytest.mark.parametrize("policy, env, flags, message", [
    ("OnDevice", "gymnasium:CartPole-v1", (), """\
UsageError: gymnasium:CartPole-v1 cannot run under own.py:OnDevice.
own.py:OnDevice compiles the whole loop for the device, and this environment is a Python object.
Use the JAX version, --env CartPole-v1, or keep the environment on the host: --distribution single-learner-fine.
See docs/distributions.md.
"""),
    ("OnDevice", "CartPole-v1", ("--learners", "64", "--num-envs", "64", "--shards", "64",
                                 "--learner-shards", "64"), """\
UsageError: own.py:OnDevice with 64 instances needs 64 devices.
Each takes one, and there is 1.
Use 1, or let the CPU count as 64: XLA_FLAGS=--xla_force_host_platform_device_count=64
See docs/distributions.md.
"""),
    ("ByAgent", "CartPole-v1", (), """\
UsageError: jax:CartPole-v1 cannot run under own.py:ByAgent.
The distribution is replicated over agents, and this environment has one.
Use an environment with several agents, like --env simple_spread, or --distribution single-learner-coarse, which is \
replicated over environments.
See docs/distributions.md.
"""),
])
def test_what_a_policy_of_ones_own_declares_is_checked(msrl, policy, env, flags, message):
    Path("own.py").write_text(OWN)
    code, out, err = msrl("train", f"{TINY}:Tiny", "--env", env, "--distribution", f"own.py:{policy}", *flags)
    assert (code, out, err) == (2, "", message)
    assert sorted(path.suffix for path in Path().iterdir() if path.is_file()) == [".py"]


def test_refused_before_jax_is_imported():
    args = ["train", "ppo", "--env", "CartPole-v1", "--distribution", "single-learner-course"]
    program = f"import sys; from msrl.cli.main import main; print(main({args}), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert done.stderr.startswith("UsageError: There is no distribution 'single-learner-course'.\n")


def test_from_python(tmp_path):
    flags = dict(shards=2, actors=2, total_steps=32)
    program = package.compile(f"{TINY}:Tiny", "CartPole-v1", distribution=COARSE, backend="inline", **flags)
    assert [worker.program.fragment.name for worker in program.workers] == ["actor", "actor", "learner"]
    (tmp_path / "d.toml").write_text(Deployment(FINE, "inline").to_toml())
    job = prepare(f"{TINY}:Tiny", "CartPole-v1", deployment=tmp_path / "d.toml", **flags)
    assert job.deployment == package.Deployment(FINE, "inline", 2)
    with pytest.raises(UsageError) as caught:
        package.compile(f"{TINY}:Tiny", "CartPole-v1", seeds=2, deployment=job.deployment, shards=2)
    assert str(caught.value) == f"""\
2 seeds cannot be trained at once under {FINE}.
They share one compiled program, and a distribution has several.
Train them one after another: msrl.train does, and so does `msrl train --seeds`."""


def test_seeds_follow_one_another_when_spread_out(train):
    result = train("--run-dir", "run", *SHARDED, "--distribution", FINE, "--seeds", "2", "--total-steps", "32")
    assert [row["seed"] for row in result["per_seed"]] == [0, 1]


def test_hosts_and_devices_are_repeated_by_the_file(tmp_path):
    from msrl.jobs import command
    job = prepare(f"{TINY}:Tiny", "CartPole-v1", devices=1)
    assert shlex.split(command(job, tmp_path))[-2:] == ["--deployment", str(tmp_path / "deployment.toml")]
