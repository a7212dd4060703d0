"""Traces of real runs: they hold together under every distribution and backend, and change nothing but the time."""

import itertools
import json
import time
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from msrl.api import Agent
from msrl.pipeline import Deployment, Program, compile
from msrl.runtime.bottleneck import as_json, measure
from msrl.runtime.perfetto import trace_json
from msrl.runtime.tracing import LIMIT, Trace
from tests.backends.stations import Pickled
from tests.matrix.comparing import assert_same, strict
from tests.matrix.herds import Herd, Herding
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor, HostCorridor, WholeActor, WholeLearner

pytestmark = pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache entry")

COARSE, FINE = "single-learner-coarse", "single-learner-fine"


def watched(trainer, env, deployment, **settings) -> Program:
    return compile(trainer, env, deployment=deployment, profile=LIMIT, **settings)


def check(program: Program, began: float, ended: float) -> dict:
    """The file of a run that has ended: events of an instance are apart or inside one another, and arrows lead from
    where something is sent to where it is taken, which is over later: whoever takes the newest there is may have begun
    before it was sent."""
    tracks = program.tracks()
    found = json.loads(trace_json([tracks], Trace()))["traceEvents"]
    events = [event for event in found if event["ph"] == "X"]
    for thread in {event["tid"] for event in events}:
        # Viewers sort by time alone: of two that begin at once, the outer one comes first in the file.
        mine = sorted((event for event in events if event["tid"] == thread), key=lambda event: event["ts"])
        open_until = []
        for event in mine:
            end = event["ts"] + event["dur"]
            while open_until and event["ts"] >= open_until[-1] - 1e-3:  # a nanosecond, as numbers are decimal
                open_until.pop()
            assert all(end <= until + 1e-3 for until in open_until), event
            open_until.append(end)
    for track in tracks:
        spent = sum(track.trace.own.values())
        assert 0 < spent <= track.trace.ended - track.trace.began <= ended - began
        assert all(began <= event.start <= event.end <= ended for event in track.trace.events)
    sends = Counter(event["id"] for event in found if event["ph"] == "s")
    takes = Counter(event["id"] for event in found if event["ph"] == "f")
    assert sends == takes and set(sends.values()) <= {1}
    spots = {(event["tid"], event["ts"]): event["name"] for event in events if event["cat"] == "move"}
    for event in found:
        if event["ph"] in "sf":
            verb = "send" if event["ph"] == "s" else "receive"
            assert spots[event["tid"], event["ts"]].startswith(verb)
    starts = {event["id"]: event["ts"] for event in found if event["ph"] == "s"}
    ends = {(event["tid"], event["ts"]): event["ts"] + event["dur"] for event in events if event["cat"] == "move"}
    assert all(starts[event["id"]] <= ends[event["tid"], event["ts"]] for event in found if event["ph"] == "f")
    return {"arrows": len(sends), "events": events, "names": {event["name"] for event in events}}


def checked(program: Program) -> dict:
    began = time.perf_counter()
    assert list(program.run())
    return check(program, began, time.perf_counter())


@pytest.mark.parametrize(("name", "deployment", "settings"), [
    ("Plain", Deployment(), {}), ("Plain", Deployment(COARSE, "threads", 2), {}),
    ("Plain", Deployment(FINE, "inline", 2), {}), ("While", Deployment(COARSE, "inline", 2), {}),
    ("Plain", Deployment(COARSE, "inline", 2), dict(strict=True)),
    ("Plain", Deployment("multi-learner", "threads", learners=2), dict(learner_shards=2)),
    ("Plain", Deployment("central", "inline", learners=2), dict(learner_shards=2)),
], ids=lambda x: getattr(x, "distribution", None))
def test_a_trace_holds_together(name, deployment, settings):
    program = watched(LOOPS[name], Corridor(), deployment, shards=2, **settings)
    found = checked(program)
    moved = Counter()
    for track in program.tracks():
        moved.update(key for event in track.trace.events for key in event.taken)
    assert all(count == 1 for count in moved.values())
    assert found["arrows"] == len(moved) == sum(len(event.sent) for track in program.tracks()
                                               for event in track.trace.events)
    assert bool(moved) == (deployment.distribution != "local")


def test_what_is_told_of_a_run():
    program = watched(LOOPS["Plain"], HostCorridor(), Deployment(COARSE, "threads", 2), shards=2)
    found = checked(program)
    assert {"env.step", "env.reset", "actor.act", "learner.learn", "send weights", "receive weights"} <= {
        name for joined in found["names"] for name in joined.split(" + ")}
    (line,) = {event["args"]["lines"]["env.step"] for event in found["events"] if event["name"] == "env.step"}
    assert line.startswith("loops_parts.py:")
    weights = next(event for event in found["events"] if event["name"] == "send weights")
    assert weights["args"] == {"bytes": 8, "to": ["actor 0", "actor 1"]} and weights["cat"] == "move"
    waits = [event for event in found["events"] if event["cat"] == "wait"]
    assert {"wait for the host to look"} < {event["name"] for event in waits}
    assert all(event["name"].startswith("wait for ") for event in waits)
    for one, other in itertools.pairwise(event for event in found["events"] if event["tid"] == 10000):
        assert (one["cat"], one["name"]) != ("wait", other["name"])  # one wait is not told as two


def test_whom_an_instance_waits_for():
    """The learner of an inline run comes last, so that actors wait for its weights."""
    program = watched(LOOPS["Plain"], Corridor(), Deployment(COARSE, "inline", 2), shards=2)
    checked(program)
    waits = [event for event in program.tracks()[0].trace.events if event.name == "wait for weights from learner"]
    assert waits and all(event.args == {"from": ["learner 0"]} for event in waits)


@pytest.mark.parametrize("deployment", [Deployment("single-learner-coarse-async", "threads", 2, max_lag=1),
                                        Deployment("single-learner-coarse-async", "inline", 2),
                                        Deployment("central-async", "threads", learners=2)],
                         ids=lambda d: f"{d.distribution}-{d.backend}")
def test_a_trace_of_those_who_do_not_wait_holds_together(deployment):
    program = watched(LOOPS["Plain"], Corridor(), deployment, learner_shards=deployment.learners, shards=2, updates=10)
    found = checked(program)
    if deployment.learners == 1:  # every trajectory that was learnt from, and weights that somebody took
        lead = program.lead.exchange.lead
        taken = [key for track in program.tracks() for event in track.trace.events for key in event.taken
                 if key[0] == lead]
        assert len(taken) == len(set(taken)) == 2 * 10 < found["arrows"]
    else:
        assert found["arrows"]


def test_a_trace_comes_back_from_another_process():
    program = watched(LOOPS["Plain"], Corridor(), Deployment(COARSE, "inline", 2), shards=2, strict=True)
    program.backend = Pickled(program)
    began = time.perf_counter()
    assert list(program.run())
    assert check(program, began, time.perf_counter())["arrows"]


@pytest.mark.parametrize(("trainer", "env", "deployment", "settings"), [
    (LOOPS["Plain"], Corridor(), Deployment(), {}),
    (LOOPS["TwoBuffers"], Corridor(), Deployment(COARSE, "threads", 2), {}),
    (LOOPS["Rated"], Corridor(), Deployment("multi-learner", "inline", learners=2), dict(learner_shards=2)),
    (LOOPS["Rated"], Corridor(), Deployment("central", "threads", learners=2), dict(learner_shards=2)),
    (Herding, Herd(), Deployment("environments", "threads", learners=2), dict(agent_shards=4)),
], ids=lambda x: getattr(x, "distribution", None))
def test_watching_changes_no_bit(trainer, env, deployment, settings):
    def run(**more):
        return strict(compile(trainer, env, deployment=deployment, strict=True, shards=2, **settings, **more))

    plain, seen = run(), run(profile=LIMIT)
    assert seen.reports == plain.reports and plain.reports
    assert_same(plain.resources, seen.resources)


def test_a_worker_that_nobody_watches_has_nothing_around_it():
    program = compile(LOOPS["Plain"], Corridor(), deployment=Deployment(COARSE, "inline", 2), shards=2)
    exchange = program.lead.exchange
    assert list(program.run()) and program.tracks() == []
    assert program.lead.exchange is exchange and program.lead.inbox.exchange is exchange


# -- the bottleneck --------------------------------------------------------------------------------------------------


SECONDS = 0.02  # in which a slow op sleeps: it takes no core from others, nor waits for one


class SlowCorridor(HostCorridor):
    def step(self, state, action, key):
        time.sleep(SECONDS)
        return super().step(state, action, key)


def nap(x):
    time.sleep(8 * SECONDS)
    return x


class SlowLearner(WholeLearner):
    def learn(self, state, key, batch, *extra):
        state, out = super().learn(state, key, batch, *extra)
        slow = jax.pure_callback(nap, jax.ShapeDtypeStruct((), jnp.int32), out["total"])
        return state, {**out, "total": slow}


class SlowToLearn(LOOPS["Plain"]):
    def agent(self):
        return Agent(WholeActor(), SlowLearner())


def summary(trainer, env, backend):
    program = watched(trainer, env, Deployment(COARSE, backend, 2), shards=2, updates=6)
    assert list(program.run())
    return as_json(*measure([program.tracks()], Trace()))


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_slow_environment_is_the_bottleneck(backend):
    found = summary(LOOPS["Plain"], SlowCorridor(), backend)
    assert found["bottleneck"] == "actor" and ", mostly env.step; learner is idle " in found["line"]
    *actors, learner, _ = found["instances"]
    for actor in actors:
        assert actor["compute"] > learner["compute"]
        assert actor["ops"]["env.step"] >= 4 * 6 * SECONDS
    assert learner["idle"] > learner["compute"]


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_slow_learner_is_the_bottleneck(backend):
    found = summary(SlowToLearn, HostCorridor(), backend)
    assert found["bottleneck"] == "learner" and ", mostly learner.learn" in found["line"]
    *actors, learner, _ = found["instances"]
    assert all(learner["compute"] > actor["compute"] and actor["idle"] > actor["compute"] for actor in actors)
    assert learner["idle"] + learner["compute"] + learner["move"] <= 1
