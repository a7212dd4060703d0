"""Passes keep the bits: of the interpreter, or, for overlap, of the interpreter of the graph that it makes."""

import itertools

import jax
import numpy as np
import pytest

from msrl.backends.inline import Inline
from msrl.backends.workers import make_workers
from msrl.ir.graph import Flush, If, walk
from msrl.pipeline import Deployment, compile
from tests.matrix.comparing import Outcome, assert_same, stacked_like, strict, without_metrics
from tests.matrix.loops import LOOPS
from tests.matrix.toys import CalledCorridor, Corridor, HostCorridor, Whole

COARSE, FINE, MULTI = "single-learner-coarse", "single-learner-fine", "multi-learner"


class Filling(Whole):
    """A replay is filled before anything is learnt."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(8):
            step = msrl.env_step(msrl.agent_act(obs).action)
            msrl.replay_buffer_insert("replay", obs=obs, reward=step.reward)
            obs = step.obs
        msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("replay")))


def check(program, deployments):
    """Asserts that all of them leave what the interpreter does, and returns the messages sent in each."""
    wanted = Outcome(*program.interpret())
    assert wanted.reports
    sent = []
    for deployment in deployments:
        deployed = program.deployed(deployment)
        found = strict(deployed)
        assert found.reports == wanted.reports, deployment
        assert_same(wanted.resources, found.resources)
        sent.append(sum(worker.outbox.sent for worker in deployed.workers))
    return sent


class Decided(Whole):
    """Branches that always go one way, around ops and values that are used after them."""

    def train(self, msrl):
        obs, seen = msrl.env_reset(), 0
        for i in range(5):
            if i % 1 == 0:
                step = msrl.env_step(msrl.agent_act(obs).action)
                obs, seen = step.obs, seen + 1
                if i > 7:
                    seen = seen + 100
                else:
                    msrl.replay_buffer_insert("replay", obs=obs, reward=step.reward)
            if i >= 3:
                msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("replay")))
        msrl.report(seen=seen)


def test_branches_that_go_one_way_are_decided_and_say_the_same():
    program = compile(Decided, Corridor(), strict=True, shards=2)
    on, off = (Deployment(FINE, "inline", 2, passes=f"{sign}decide-branches") for sign in "+-")
    assert [sum(isinstance(node, If) for node in walk(program.deployed(each).placed.graph.nodes))
            for each in (on, off)] == [1, 3]
    check(program, [on, off, Deployment(COARSE, "threads", 2)])


@pytest.mark.parametrize("name", ["TwoBuffers", "Helpers", "Ends"])
def test_coalesced_messages_are_fewer_and_say_the_same(name):
    program = compile(LOOPS[name], Corridor(), strict=True, shards=2)
    for distribution in (COARSE, FINE):
        inline, threads, apart = check(program, [
            Deployment(distribution, "inline", 2), Deployment(distribution, "threads", 2),
            Deployment(distribution, "threads", 2, passes="-coalesce-moves")])
        assert inline == threads < apart


def test_held_messages_leave_at_the_bound(monkeypatch):
    monkeypatch.setattr("msrl.backends.outbox.HELD_BYTES", 100)
    program = compile(Filling, Corridor(), strict=True, shards=2)
    one = Deployment(COARSE, "inline", 2)
    assert any(isinstance(node, Flush) for worker in program.deployed(one).workers
               for node in worker.program.nodes)  # after a loop
    bounded, = check(program, [one])
    monkeypatch.undo()
    unbounded, = check(program, [one])
    # Weights; of each actor an observation and, of what fills the replay, one message or two.
    assert (unbounded, bounded) == (1 + 2 * (1 + 1), 1 + 2 * (1 + 2))


@pytest.mark.parametrize("name", ["Plain", "Branches", "TwoBuffers", "Rated"])
def test_overlap_is_its_own_interpreters(name):
    program = compile(LOOPS[name], Corridor(), strict=True, shards=2, deployment=Deployment(passes="+overlap"))
    check(program, [Deployment(COARSE, "inline", 2), Deployment(COARSE, "threads", 2), Deployment(FINE, "threads", 2),
                    Deployment()])


def test_overlap_changes_what_is_computed():
    lagging, plain = (compile(LOOPS["Plain"], Corridor(), strict=True, shards=2, deployment=Deployment(passes=passes))
                      .interpret()[0] for passes in ("+overlap", ""))
    assert not same(lagging["$weights"], plain["$weights"])


def test_overlap_with_several_learners():
    program = compile(LOOPS["Plain"], Corridor(), strict=True, shards=2, learner_shards=2,
                      deployment=Deployment(passes="+overlap"))
    check(program, [Deployment(MULTI, "threads", learners=2), Deployment(COARSE, "inline", 2)])


@pytest.mark.parametrize(("env", "passes"), [
    *itertools.product((Corridor, HostCorridor), ("-fuse-stretches", "-fuse-instances",
                                                  "-fuse-stretches,-fuse-instances")),
    (CalledCorridor, "-call-back"), (CalledCorridor, "-fuse-instances")])
def test_fast_programs_without_fusion(env, passes):
    """In a world of whole numbers, where no sum depends on its order, they leave the same to the bit."""
    program = compile(LOOPS["Plain"], env(), strict=True, shards=2, deployment=Deployment(passes="+overlap"))
    workers = make_workers(program.placed, program.ops, program.shapes, program.root, False, 1,
                           switches=Deployment(passes=passes).switches())
    found: dict = {}
    for _, look in Inline(workers).run():
        found = dict(look)
    assert_same(stacked_like(found, program.interpret()[0]), without_metrics(found))


def same(one, two) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))


def test_marks_are_where_they_are_asked_for():
    program = compile(LOOPS["Plain"], Corridor(), shards=2)
    for passes, marks in (("", {"Stretch"}), ("-fuse-stretches", set())):
        workers = make_workers(program.placed, program.ops, program.shapes, program.root, False, 1,
                               switches=Deployment(passes=passes).switches())
        assert {type(node).__name__ for node in walk(workers[0].program.nodes)} & {"Stretch"} == marks
        assert workers[0].program.batched
    strict_worker, = make_workers(program.placed, program.ops, program.shapes, program.root, True, 1)
    assert not strict_worker.program.batched
    assert strict_worker.program.nodes == program.graph.nodes


def test_a_stretch_does_not_give_away_what_the_loop_remembers():
    """The branch that learns replaces weights that the next pass will act on."""
    program = compile(LOOPS["Branches"], HostCorridor(), strict=True, shards=2,
                      deployment=Deployment(passes="+overlap"))
    found: dict = {}
    for _, look in Inline(make_workers(program.placed, program.ops, program.shapes, program.root, False, 1)).run():
        found = dict(look)
    assert_same(stacked_like(found, program.interpret()[0]), without_metrics(found))
