"""A cluster shrinks and grows: the run goes on with as many instances as there are places for, to the same bits."""

import os
import re
import subprocess
import sys
from pathlib import Path

from msrl import elastic
from msrl.deployment import Deployment, Host
from msrl.elastic import Elastic, room
from msrl.errors import UsageError

# In a process of its own: another module's session is of one host, and a process can join but one cluster.
SCRIPT = """
import time
import ray
from ray.cluster_utils import Cluster
from msrl import elastic, running
from msrl.jobs import prepare
from msrl.pipeline import Deployment
from msrl.runtime.display import Display

running.BACK_OFF = running.SNAPSHOT_SECONDS = elastic.LOOK_SECONDS = 0.0
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, include_dashboard=False), connect=True)
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
settings = dict(num_envs=4, shards=4, rollout=4, total_steps=640, hidden=(8,), epochs=1, minibatches=2, strict=True,
                eval_episodes=2)
wanted = running.run(prepare("ppo", "CartPole-v1", **settings), None, Display())


class Weather(Display):
    '''Takes a host away after some updates, and brings one when the run has become smaller.'''
    updates, lost = 0, False

    def update(self, state):
        self.updates += 1
        if self.updates == 3:
            cluster.remove_node(second, allow_graceful=False)
        elif self.lost:
            self.lost = False
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()

    def say(self, *lines):
        for line in lines:
            self.lost = self.lost or line.startswith("room") and "for 1 actors" in line
            print("MSRL", line, flush=True)


job = prepare("ppo", "CartPole-v1", restarts=5, deployment=Deployment(
    "single-learner-coarse", "ray", actors=3, address=cluster.address), **settings)
found = running.run(job, None, Weather())
print("MSRL", found.weights_sha256 == wanted.weights_sha256, found.per_seed[0]["steps"] == wanted.per_seed[0]["steps"])
ray.shutdown()
cluster.shutdown()
"""


def test_hosts_leave_and_come():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=Path(__file__).parents[2],
                          capture_output=True, text=True, check=False, env={
                              **os.environ, "RAY_health_check_period_ms": "300",  # so that a loss is known soon
                              "RAY_health_check_failure_threshold": "3"})
    assert done.returncode == 0, done.stderr
    said = [line.removeprefix("MSRL ") for line in done.stdout.splitlines() if line.startswith("MSRL ")]
    assert said[3].startswith("engine") and said[4].startswith("lost         The worker of instance ")
    told = [re.sub(r"[\d,]+ steps", "# steps", line) for line in said[5:] if not line.startswith("lost")]
    assert told == ["room         for 1 actors (3 were asked for).", "grown        Going on from # steps.",
                    "room         for 3 actors (3 were asked for).", "True True"], done.stdout


# -- what there is room for ------------------------------------------------------------------------------------------


class Ray:
    """A cluster, by host."""

    def __init__(self, **rooms):
        self.now = rooms

    def joined(self):
        return True

    def rooms(self, address):
        return self.now


class Placed:
    """As much of a worker as is asked for."""

    def __init__(self, fragment):
        self.program = type("Program", (), {"fragment": type("Fragment", (), {"name": fragment})})


def on(monkeypatch, cluster, asked, fragments, refused=()):
    def possible(deployment):
        if deployment.actors in refused:
            raise UsageError("no")

    monkeypatch.setattr(elastic, "ray_backend", lambda: cluster)
    monkeypatch.setattr(elastic, "LOOK_SECONDS", 0.0)
    each = Elastic(asked, possible)
    each.seen([Placed(name) for name in fragments])
    return each


COARSE = Deployment("single-learner-coarse", "ray", actors=4)


def test_as_many_as_there_is_room_for_and_as_the_algorithm_can_have(monkeypatch):
    cluster = Ray(a=2, b=2)
    run = on(monkeypatch, cluster, COARSE, ["actor"] * 4 + ["learner"], refused=(3,))
    assert run.fit() == COARSE.replace(actors=2) and not run.could_grow()
    cluster.now = {"a": 2, "b": 2, "c": 2}
    assert run.could_grow() and run.fit() == COARSE and not run.could_grow()
    cluster.now = {"a": 1}
    assert run.fit() == COARSE  # which the backend refuses, with what is missing


def test_named_hosts_take_turns(monkeypatch):
    asked = COARSE.replace(hosts=(Host("a"), Host("b")))
    cluster = Ray(a=3, b=3, c=9)
    run = on(monkeypatch, cluster, asked, ["actor"] * 4 + ["learner"])
    assert run.fit() == asked
    cluster.now = {"a": 3, "c": 9}
    assert run.fit() == asked.replace(actors=2, hosts=(Host("a"),))
    assert room({"a": 3, "b": 1}, asked.hosts) == 2


def test_a_cluster_for_one_run_does_not_change(monkeypatch):
    cluster = Ray(a=1)
    cluster.joined = lambda: False
    assert on(monkeypatch, cluster, COARSE, ["actor"] * 4 + ["learner"]).fit() == COARSE
