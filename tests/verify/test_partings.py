"""Where a broken deployment parts from the interpreter is found: the op, the fragment, the shard and the update."""

import pytest

from msrl.pipeline import compile
from msrl.verifying import Case, Verdict, Verifier, cases, usual_distributions
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor
from tests.verify.breaking import ThreadCorridor, break_message, doubled, one_ulp

COARSE, FINE = "single-learner-coarse", "single-learner-fine"
PPO = dict(num_envs=4, shards=4, rollout=4, epochs=1, minibatches=2, hidden=(4,), total_steps=48)  # 3 updates


@pytest.fixture(scope="module")
def ppo():
    return {learners: compile("ppo", "CartPole-v1", strict=True, learner_shards=learners, **PPO) for learners in (1, 2)}


def about(verdict: Verdict) -> tuple:
    found = verdict.parting
    return (verdict.result, found.op, found.fragment, found.instance, found.shard, found.update, found.call, found.how)


BROKEN = {
    "weights, on their way to the second actor": (1, COARSE, "$weights.5:learner>actor", 1, 2, (
        "actor.act", "actor", 1, 2, 3, 9,
        "it is given another resources[0]['params']['Network_0']['Torso_0']['Dense_0']['bias']")),
    "trajectories, on their way to the learner": (1, COARSE, "t.8:actor>learner", 0, 2, (
        "learner.learn", "learner", 0, 0, 2, 2, "it is given another arguments[0].final_obs")),
    "an observation, of the third step of the second update": (1, FINE, "obs.4:env>learner", 0, 6, (
        "actor.act", "learner", 0, 3, 2, 7, "it is given another arguments[0]")),
    "a gradient, between learners": (2, "multi-learner", "$learner.5:learner>learner", 1, 4, (
        "learner.learn", "learner", 1, 1, 2, 2, "it is given another agreed[0]")),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_one_number_in_one_message(ppo, monkeypatch, case, backend):
    learners, distribution, move, target, number, wanted = BROKEN[case]
    change = doubled if "gradient" in case else one_ulp
    verifier, case = Verifier(ppo[learners], every_call=True), Case(distribution, backend, 2)
    assert verifier.verdict(case) == Verdict(case, "same")
    break_message(monkeypatch, move, target, number, change)
    assert about(verifier.verdict(case)) == ("differs", *wanted)


def test_what_is_left_at_the_end_is_enough_to_see_it(ppo, monkeypatch):
    """And only then is every call looked at."""
    break_message(monkeypatch, "t.8:actor>learner", 0, 2, lambda batch: batch.replace(reward=batch.reward + 1))
    verifier = Verifier(ppo[1])
    assert verifier.verdict(Case(FINE, "inline", 2)).result == "same"
    assert "witness" not in vars(verifier)
    verdict = verifier.verdict(Case(COARSE, "inline", 2))
    assert verdict.reason.startswith("rollout[0].store")  # made by what was learnt from it
    assert about(verdict) == (
        "differs", "learner.learn", "learner", 0, 0, 2, 2, "it is given another arguments[0].reward")


def test_the_line_of_the_loop_is_told(ppo, monkeypatch):
    break_message(monkeypatch, "t.8:actor>learner", 0, 1, one_ulp)
    span = Verifier(ppo[1], every_call=True).verdict(Case(COARSE, "inline", 4)).parting.span
    assert span.text.strip() == "msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))"


def test_an_environment_that_depends_on_its_thread():
    verifier = Verifier(compile(LOOPS["Plain"], ThreadCorridor(), strict=True, shards=2))
    assert verifier.verdict(Case(FINE, "inline", 2)).result == "same"
    assert about(verifier.verdict(Case(FINE, "threads", 2))) == (
        "differs", "env.step", "env", 0, 0, 1, 1, "given the same, it makes another value.reward")


def test_a_decision_that_only_one_fragment_takes(monkeypatch):
    """The others would wait for ever: that is a failure, and still told by its first call."""
    break_message(monkeypatch, "going.1:learner>actor", 0, 3, lambda going: not going)
    verdict = Verifier(compile(LOOPS["While"], Corridor(), strict=True, shards=2)).verdict(Case(COARSE, "inline", 2))
    assert verdict.reason == "The fragments wait for one another."
    assert about(verdict) == ("failed", "actor.act", "actor", 0, 0, 3, 3, "it is not called")


@pytest.mark.parametrize("name, learners", [("Branches", 1), ("TwoBuffers", 2), ("Components", 2)])
def test_where_nothing_is_broken_no_parting_is_found(name, learners):
    """A call has the same name and the same checksums wherever it runs."""
    verifier = Verifier(compile(LOOPS[name], Corridor(), strict=True, shards=2, learner_shards=learners))
    config = verifier.program.trainer.config
    chosen = cases(usual_distributions(config, traceable=True), ["inline"], [2], config)
    assert len(chosen) == {1: 3, 2: 6}[learners]
    assert [verifier.parting(case) for case in chosen] == [None] * len(chosen)
    assert len(verifier.witness.entries) > 10
