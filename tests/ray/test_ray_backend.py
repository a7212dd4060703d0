"""Instances as processes of one machine: the same bits as in one process, errors that say where, nothing left behind.

One Ray session serves all that can share it, as each takes seconds to start. The command line starts its own.
"""

import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import psutil
import pytest
import ray

from msrl import running
from msrl.backends import ray_backend
from msrl.errors import LostError, RunError, UsageError
from msrl.jobs import prepare
from msrl.pipeline import Deployment, compile, weights_sha256
from msrl.runtime.display import Display
from msrl.runtime.tracing import LIMIT
from tests.chaos.test_lost import Lines
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.effects import Logged
from tests.matrix.herds import Herd, Herding
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor
from tests.ray.breaking import Breaks, collapse, die

PPO = dict(num_envs=4, shards=2, rollout=4, total_steps=48, hidden=(8,), epochs=1, minibatches=2)
A2C = dict(num_envs=4, shards=2, rollout=4, hidden=(8,), strict=True)  # where any algorithm will do
COARSE = Deployment("single-learner-coarse", "ray", actors=2)
CPUS = 2  # of the session: room for four workers


@pytest.fixture(scope="module", autouse=True)
def session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_backend.os, "cpu_count", lambda: CPUS)
        assert ray_backend.join_cluster(None, workers=1)
    yield
    ray_backend.leave_cluster()
    assert not {*ray_backend.TOKEN} & os.environ.keys()


def hosts_of_workers() -> list[psutil.Process]:
    """The processes of workers that are under this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any("ray::Host" in word for word in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


# -- the user's files ------------------------------------------------------------------------------------------------


def test_workers_have_what_lies_beside_the_users_file(tmp_path):
    """Also what it is imported by: the learner's class is in the file, what it inherits from in another."""
    (tmp_path / "beside_for_ray.py").write_text("from msrl.algorithms.a2c import A2C\n\n\nclass Base(A2C):\n    pass\n")
    (tmp_path / "with_sibling.py").write_text("from beside_for_ray import Base\n\n\nclass Mine(Base):\n    pass\n")
    settings = dict(num_envs=2, rollout=2, total_steps=4, hidden=(4,), deployment=Deployment(
        "single-learner-coarse", "ray", actors=1))
    program = compile(f"{tmp_path / 'with_sibling.py'}:Mine", Corridor(), **settings)
    for file in tmp_path.glob("*.py"):
        file.unlink()  # another host does not have them
    assert [update.env_steps for update in program.run()][-1] == 4


# -- same result -----------------------------------------------------------------------------------------------------


def test_what_a_component_does_is_done_once(tmp_path):
    log = tmp_path / "log.txt"
    program = compile(Logged, Corridor(), strict=True, num_envs=4, shards=2, learner_shards=2, log=str(log))
    wanted = Outcome(*program.interpret())
    lines = log.read_text()
    log.unlink()
    found = strict(program.deployed(Deployment("multi-learner", "ray", learners=2)))
    assert log.read_text() == lines
    assert found.reports == wanted.reports


@pytest.mark.parametrize("deployment", [Deployment("single-learner-fine", "ray", actors=2),
                                        Deployment("central", "ray", learners=2)], ids=lambda d: d.distribution)
def test_a_loop_has_the_bits_of_the_interpreter(deployment):
    settings = dict(strict=True, shards=2, learner_shards=deployment.learners)
    wanted = Outcome(*compile(LOOPS["Counters"], Corridor(), **settings).interpret())
    found = strict(compile(LOOPS["Counters"], Corridor(), deployment=deployment, **settings))
    assert wanted.reports and found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


def test_a_checkpoint_goes_from_process_to_process():
    """Asked for while workers are on their way, it is of one point all the same."""
    settings = {**A2C, "total_steps": 320}
    here = compile("a2c", "CartPole-v1", **settings)
    there = compile("a2c", "CartPole-v1", deployment=COARSE, **settings)
    list(here.run())
    running, point = there.run(), None
    next(running)
    assert there.ask_checkpoint()
    while point is None:
        assert next(running, None) is not None
        point = there.taken()
    running.close()
    assert 0 < point.update < 20
    for deployment in (Deployment(), Deployment("single-learner-fine", "ray", actors=1)):
        other = compile("a2c", "CartPole-v1", deployment=deployment, start=point, **settings)
        assert list(other.run())[-1].env_steps == 320
        assert weights_sha256(other.params()) == weights_sha256(here.params())


def test_agent_shards_have_the_bits_of_one_process():
    settings = dict(strict=True, shards=2, agent_shards=4)
    here = compile(Herding, Herd(), **settings)
    there = compile(Herding, Herd(), deployment=Deployment("environments", "ray", learners=3), **settings)
    wanted, found = list(here.run()), list(there.run())
    assert wanted[0].metrics and found[0].metrics == wanted[0].metrics
    assert weights_sha256(there.params()) == weights_sha256(here.params())
    assert there.evaluate(2)[0].returns.tolist() == here.evaluate(2)[0].returns.tolist()


def test_fast_learners_of_several_processes_are_one_program():
    """Nothing is sent: gradients move by collectives. The environment and the actors stay in their processes."""
    deployment = Deployment("multi-learner", "ray", learners=2)
    here = compile("ppo", "CartPole-v1", **PPO, learner_shards=2)
    there = compile("ppo", "CartPole-v1", deployment=deployment, **PPO, learner_shards=2)
    wanted, found = list(here.run())[-1], list(there.run())[-1]
    assert [worker.messages for worker in there.workers] == [0, 0]
    assert found.env_steps == wanted.env_steps == 48
    for ours, theirs in zip(jax.tree.leaves(here.params()), jax.tree.leaves(there.params()), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("deployment", [
    Deployment("single-learner-coarse-async", "ray", actors=2, max_lag=4),
    Deployment("central-async", "ray", learners=2)], ids=lambda deployment: deployment.distribution)
def test_first_come_first_served(deployment):
    program = compile("impala", "CartPole-v1", deployment=deployment, learner_shards=deployment.learners, num_envs=4,
                      shards=2, rollout=4, total_steps=160, hidden=(8,), checkpoint_every=2)
    updates, points = [], []
    for update in program.run():
        updates.append(update)
        points.append(program.taken())
    last = updates[-1].accounts
    assert last["trained"] == 160
    taken = [point.about["ledger"] for point in points if point]
    assert taken and all(each["produced"] == each["trained"] + sum(each["dropped"].values()) for each in taken)
    assert last["produced"] == last["trained"] + sum(last["dropped"].values()) + last["in_flight"]
    assert sum(last["lags"].values()) == 2 * 10


def test_where_time_goes_is_told_by_every_process():
    """On one clock: what is taken was sent before, up to the precision with which clocks are compared."""
    program = compile(LOOPS["Plain"], Corridor(), shards=2, deployment=COARSE, profile=LIMIT)
    began = time.perf_counter()
    assert list(program.run())
    ended, tracks = time.perf_counter(), program.tracks()
    for track in tracks:
        track.trace.align()
        assert began < track.trace.began < track.trace.ended < ended
        assert 0 < sum(track.trace.own.values()) <= track.trace.ended - track.trace.began
    events = [event for track in tracks for event in track.trace.events]
    sent = {key: event.start for event in events for key in event.sent}
    taken = {key: event.end for event in events for key in event.taken}
    assert sent.keys() == taken.keys() and all(sent[key] <= taken[key] + 0.005 for key in sent)
    assert {"compute", "move", "wait", "compile"} == {event.kind for event in events}


def test_in_fast_mode_what_a_run_reached_is_there_after_it_was_stopped():
    program = compile(LOOPS["Plain"], Corridor(), shards=2, deployment=COARSE, profile=LIMIT)
    run = program.run()
    assert next(run).metrics
    before = weights_sha256(program.params())
    assert next(run).env_steps > 0
    processes = hosts_of_workers()
    assert len(processes) == 3 and os.getpid() not in {process.pid for process in processes}
    run.close()
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert weights_sha256(program.params()) != before
    assert [len(track.trace.events) > 0 for track in program.tracks()] == [True] * 3


def test_one_place_has_its_results_at_the_end():
    program = compile(LOOPS["Plain"], Corridor(), strict=True, deployment=Deployment("local", "ray"))
    wanted, reports = program.interpret()
    *_, last = program.run()
    assert reports and last.env_steps
    assert_same(wanted, dict(program.resources))


# -- errors ----------------------------------------------------------------------------------------------------------


def fails(how) -> RunError:
    program = compile(LOOPS["Plain"], Breaks(how), strict=True, shards=2,
                      deployment=Deployment("single-learner-fine", "ray", actors=1))
    with pytest.raises(RunError) as caught:
        list(program.run())
    assert psutil.wait_procs(hosts_of_workers(), timeout=30)[1] == []
    return caught.value


def test_an_error_of_the_users_has_its_line():
    error = fails(collapse)
    assert error.what == "`env.step` fails: ValueError."
    assert error.why == "the corridor collapsed\nIt happened in instance 0 of fragment env."
    assert error.span is not None and error.span.text.strip() == "step = msrl.env_step(act.action)"
    assert 'raise ValueError("the corridor collapsed")' in str(error.__cause__)


def test_a_worker_that_is_killed_is_named():
    assert re.sub(r"in \S+/ray for", "in FOLDER for", str(fails(die))) == """\
The worker of instance 0 of fragment env died.
Its process ended or its host was lost, and the others cannot go on without it.
See Ray's logs in FOLDER for its last words; often it ran out of memory."""


class Reaper(Display):
    """At some updates, kills a worker's process: {update: number of the worker}."""

    def __init__(self, victims: dict[int, int], monkeypatch):
        self.victims, self.lines, self.updates, supervise = victims, [], 0, ray_backend.RayBackend._supervise

        def spied(backend, actors, began):
            self.actors = actors
            return supervise(backend, actors, began)

        monkeypatch.setattr(ray_backend.RayBackend, "_supervise", spied)

    def update(self, state):
        self.updates += 1
        if self.updates in self.victims:
            ray.kill(self.actors[self.victims[self.updates]])

    def say(self, *lines):
        self.lines += lines


def test_a_run_that_loses_workers_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "BACK_OFF", 0.0)
    settings = {**A2C, "total_steps": 160, "eval_episodes": 2}
    wanted = running.run(prepare("a2c", "CartPole-v1", **settings), None, Display())
    job = prepare("a2c", "CartPole-v1", deployment=COARSE, checkpoint_every=3, restarts=2, **settings)
    reaper = Reaper({2: 1, 9: 2}, monkeypatch)
    found = running.run(job, tmp_path / "run", reaper)
    first, second = (line for line in reaper.lines if line.startswith("lost"))
    assert first == ("lost         The worker of instance 1 of fragment actor died. "
                     "Going on from 0 steps (1 of 2 times).")
    assert re.fullmatch("lost         The worker of instance 0 of fragment learner died. "
                        r"Going on from (48|96) steps \(2 of 2 times\).", second)  # as far as all had been heard of
    assert found.weights_sha256 == wanted.weights_sha256
    assert found.per_seed[0]["steps"] == wanted.per_seed[0]["steps"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["episodes"] for row in rows) == sum(update.episodes for update in wanted.curve)
    assert not hosts_of_workers()


def test_without_checkpoints_a_run_goes_on_from_what_is_kept_in_memory(monkeypatch):
    """The one that leads dies by its own hand, at a pass drawn from a recorded seed, while snapshots are asked for:
    there is one under way at every update. Messages are late."""
    monkeypatch.setattr(running, "BACK_OFF", 0.0)
    monkeypatch.setattr(running, "SNAPSHOT_SECONDS", 0.0)
    settings = {**A2C, "total_steps": 160, "eval_episodes": 2}
    wanted = running.run(prepare("a2c", "CartPole-v1", **settings), None, Display())
    display, chaos = Lines(), f"kill:learner@{random.Random(5).randint(6, 10)},delay:moves=1ms"
    job = prepare("a2c", "CartPole-v1", deployment=COARSE, restarts=1, chaos=chaos, **settings)
    found = running.run(job, None, display)
    (line,) = display.lines
    assert re.fullmatch("lost         The worker of instance 0 of fragment learner died. "
                        r"Going on from [1-9][0-9]* steps \(1 of 1 times\).", line)  # and not from the beginning
    assert found.restarts == 1
    assert found.weights_sha256 == wanted.weights_sha256
    assert found.per_seed[0]["steps"] == wanted.per_seed[0]["steps"]


def test_an_update_that_is_not_finite_is_left_out_as_in_one_process():
    settings = {**A2C, "total_steps": 96, "eval_episodes": 1, "non_finite": "skip", "chaos": "nan:reward@9"}
    wanted = running.run(prepare("a2c", "CartPole-v1", **settings), None, Display())
    found = running.run(prepare("a2c", "CartPole-v1", deployment=COARSE, **settings), None, Display())
    assert found.updates_skipped == wanted.updates_skipped == 1
    assert found.weights_sha256 == wanted.weights_sha256


def test_learners_of_one_group_are_lost_together_and_not_for_ever():
    """To the others of a group, the death of one is a failure of their program; all the same, it is a loss."""
    job = prepare("ppo", "CartPole-v1", deployment=Deployment("multi-learner", "ray", learners=2), restarts=0,
                  chaos="kill:learner@2", **PPO, learner_shards=2)
    with pytest.raises(LostError) as lost:
        running.run(job, None, Display())
    assert str(lost.value) == """\
The worker of instance 0 of fragment learner died.
--chaos kill:learner@2 ended it.
Allow for more losses with --restarts, or leave out --chaos."""


def test_what_the_cluster_does_not_have_is_refused():
    with pytest.raises(UsageError) as caught:
        ray_backend.set_aside(5, ())
    assert str(caught.value) == """\
The cluster has 2 CPUs, and 5 workers need 2.5.
Each instance has a process of its own, for which 0.5 CPUs are set aside.
Use fewer --actors or --learners, or add hosts."""
    with pytest.raises(UsageError) as caught:
        ray_backend.set_aside(1, ("10.0.0.1",))
    assert str(caught.value) == """\
The cluster has no host 10.0.0.1.
It has 127.0.0.1.
Use these addresses, or leave the hosts out."""
    with pytest.raises(UsageError) as caught:
        ray_backend.join_cluster("10.0.0.1:6379", 1)
    joined = ray.get_runtime_context().gcs_address
    assert str(caught.value) == f"""\
This process cannot join the Ray cluster at 10.0.0.1:6379.
It has joined the one at {joined}, and Ray allows one at a time.
Call ray.shutdown() first, or leave the address out."""


def test_what_others_hold_is_waited_for_and_no_longer(monkeypatch):
    held = ray_backend.set_aside(4, ())
    monkeypatch.setattr(ray_backend, "PLACE_SECONDS", 0.5)
    try:
        with pytest.raises(RunError) as caught:
            ray_backend.set_aside(1, ())
    finally:
        ray_backend.remove_placement_group(held)
    assert str(caught.value) == """\
The cluster did not set 0.5 CPUs aside within 0.5 seconds.
It has as many, but others hold them.
Wait until others have finished, add hosts, or use fewer --actors or --learners."""


def test_a_session_of_ones_own_is_out_of_reach_for_others():
    listening = [line.laddr.ip for process in psutil.Process().children(recursive=True)
                 if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
                 for line in process.net_connections("tcp") if line.status == psutil.CONN_LISTEN]
    assert len(listening) >= 3  # of Ray's own processes alone
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    address, token = ray.get_runtime_context().gcs_address, {name: os.environ[name] for name in ray_backend.TOKEN}
    stranger = {name: value for name, value in os.environ.items() if name not in token}
    for known, joins in (({}, False), ({**token, "RAY_AUTH_TOKEN": "a guess"}, False), (token, True)):
        ask = f"from ray._raylet import GcsClient; GcsClient({address!r}).internal_kv_keys(b'', None)"
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False, env={
            **stranger, **known, "RAY_gcs_rpc_server_reconnect_timeout_s": "2"})
        assert (done.returncode == 0) == joins, done.stderr


# -- from a shell ----------------------------------------------------------------------------------------------------


def carriers(mark: str) -> list[int]:
    """The processes that were started with this variable in their environment, whoever their parents are."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_the_command_starts_ray_and_leaves_nothing_of_it(tmp_path):
    mark = f"MSRL_MARK={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    words = shlex.split(
        "train ppo --env CartPole-v1 --distribution single-learner-coarse --backend ray --shards 2 --actors 2 "
        "--num-envs 4 --rollout 4 --total-steps 48 --epochs 1 --minibatches 2 --hidden 8 --eval-episodes 2 --json")
    done = subprocess.run([sys.executable, "-m", "msrl.cli.main", *words, "--run-dir", str(tmp_path / "run")],
                          env={**os.environ, name: value, "RAY_ADDRESS": "10.0.0.1:6379"}, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] == 48 and any("loss" in row for row in rows)
    assert result["env_steps"] == 48 and result["backend"] == "ray" and result["status"] == "finished"
    assert "Ray" not in done.stderr and "ray." not in done.stderr
    assert carriers(mark) == []
