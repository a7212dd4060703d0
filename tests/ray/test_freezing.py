"""Workers that freeze, and a cluster whose head dies: the run goes on to the same bits, with nothing left behind."""

import os
import re
import signal
import time

import psutil
import pytest
from ray._private import worker as ray_worker

from msrl import running
from msrl.backends import ray_backend
from msrl.errors import ClusterError
from msrl.jobs import prepare
from msrl.pipeline import Deployment, compile
from msrl.runtime.display import Display
from tests.matrix.loops import LOOPS
from tests.ray.breaking import Breaks, linger

A2C = dict(num_envs=4, shards=2, rollout=4, hidden=(8,), strict=True, total_steps=160, eval_episodes=2)
PATIENCE = 10  # seconds: little enough to wait for, and more than a busy machine makes a heartbeat wait


class Fate(Display):
    """At an update, does something to the run's processes."""

    def __init__(self, at: int, strike, monkeypatch):
        self.at, self.strike, self.lines, self.updates, self.struck = at, strike, [], 0, None
        supervise = ray_backend.RayBackend._supervise

        def spied(backend, actors, began):
            self.backend = backend
            return supervise(backend, actors, began)

        monkeypatch.setattr(ray_backend.RayBackend, "_supervise", spied)
        monkeypatch.setattr(running, "BACK_OFF", 0.0)

    def update(self, state):
        self.updates += 1
        if self.updates == self.at:
            self.struck = [psutil.Process(number) for number in self.strike(self.backend)]

    def say(self, *lines):
        self.lines += [line for line in lines if line.startswith("lost")]


def freeze(backend):
    os.kill(backend.processes[1], signal.SIGSTOP)
    return [backend.processes[1]]


def behead(backend):
    os.kill(ray_worker._global_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)
    return list(backend.processes)


@pytest.mark.parametrize("strike, lost", [
    (freeze, "The worker of instance 1 of fragment actor does not answer."),
    (behead, "Ray's process gcs_server died.")], ids=lambda value: getattr(value, "__name__", ""))
def test_the_run_goes_on_to_the_same_bits(strike, lost, tmp_path, monkeypatch):
    wanted = running.run(prepare("a2c", "CartPole-v1", **A2C), None, Display())
    fate = Fate(3, strike, monkeypatch)
    deployment = Deployment("single-learner-coarse", "ray", actors=2, worker_timeout=PATIENCE)
    job = prepare("a2c", "CartPole-v1", deployment=deployment, checkpoint_every=2, restarts=1, **A2C)
    found = running.run(job, tmp_path / "run", fate)
    (line,) = fate.lines
    assert re.fullmatch(rf"lost         {re.escape(lost)} Going on from [0-9]+ steps \(1 of 1 times\)\.", line)
    assert found.weights_sha256 == wanted.weights_sha256
    assert psutil.wait_procs(fate.struck, timeout=30)[1] == []
    assert not ray_backend.joined()


def test_a_long_step_is_no_silence():
    """Twice the time-out, in one step of an environment that Python is busy with."""
    program = compile(LOOPS["Plain"], Breaks(linger), strict=True, shards=2, updates=2,
                      deployment=Deployment("single-learner-fine", "ray", actors=1, worker_timeout=PATIENCE))
    began = time.monotonic()
    assert list(program.run())
    assert time.monotonic() - began > 2 * PATIENCE


def test_a_cluster_of_others_that_is_gone_ends_the_run(tmp_path, monkeypatch):
    """With what it takes to go on; `dead_processes` of a cluster that is not ours are nobody's to replace."""
    monkeypatch.setattr("msrl.backends.heartbeat.HEAD_SECONDS", 3.0)
    make = ray_backend.make_head

    def as_of_others():
        head = make()
        head.dead = None
        return head

    monkeypatch.setattr(ray_backend, "make_head", as_of_others)
    fate, path = Fate(6, behead, monkeypatch), tmp_path / "run"
    job = prepare("a2c", "CartPole-v1", deployment=Deployment("single-learner-coarse", "ray", actors=2),
                  checkpoint_every=2, **{**A2C, "total_steps": 160_000})
    with pytest.raises(ClusterError) as caught:
        running.run(job, path, fate)
    assert re.fullmatch(rf"""The Ray cluster at 127\.0\.0\.1:\d+ is gone\.
Its head has not answered for \d+ seconds\.
Start it again, and then go on with the run\.
The run can go on from {path}/checkpoints/0-\d+: msrl resume {path}""", str(caught.value))
    assert '"status": "failed"' in (path / "config.json").read_text()
    assert psutil.wait_procs(fate.struck, timeout=60)[1] == []
