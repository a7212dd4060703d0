"""What a loop says of boundaries goes before what a policy says, and changes no result."""

import pytest

from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.pipeline import compile
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.toys import Corridor, Whole


class Together(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                with msrl.together():
                    act = msrl.agent_act(obs)
                    step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))


class Apart(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                with msrl.apart():
                    msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))


class Torn(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            with msrl.apart():
                act = msrl.agent_act(obs)
            with msrl.together():
                act = msrl.agent_act(obs)
                obs = msrl.env_step(act.action).obs


class WithLearner(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            with msrl.together():
                msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))


COARSE, FINE = Deployment("single-learner-coarse", "inline", 2), Deployment("single-learner-fine", "inline", 2)
CASES = {
    "held together, cut": (Together, FINE, {"env": "env", "actor": "env", "rollout": "learner"}),
    "held together, not cut": (Together, COARSE, {"env": "actor", "actor": "actor", "learner": "learner"}),
    "held together with the learner": (WithLearner, COARSE, {"rollout": "learner", "actor": "actor"}),
    "set apart in one place": (Apart, Deployment(backend="inline"), {"rollout": "rollout", "env": "all"}),
    "set apart among replicas": (Apart, COARSE, {"rollout": "rollout", "env": "actor"}),
}


@pytest.mark.parametrize("case", CASES)
def test_fragments_follow_and_bits_stay(case):
    trainer, deployment, homes = CASES[case]
    wanted = Outcome(*compile(trainer, Corridor(), strict=True, shards=2, deployment=deployment).interpret())
    program = compile(trainer, Corridor(), strict=True, shards=2, deployment=deployment)
    found = {name: fragment.name for fragment in program.placed.fragments for name in fragment.components}
    assert homes.items() <= found.items()
    outcome = strict(program)
    assert wanted.reports and outcome.reports == wanted.reports
    assert_same(wanted.resources, outcome.resources)


def test_what_is_set_apart_is_replicated_as_it_was():
    program = compile(Apart, Corridor(), shards=2, deployment=COARSE)
    assert {fragment.name: fragment.axis for fragment in program.placed.fragments} == {
        "actor": "env", "learner": None, "rollout": "env"}


def test_contradictions_are_refused():
    with pytest.raises(UsageError) as error:
        compile(Torn, Corridor(), deployment=Deployment(backend="inline"))
    assert (error.value.what, error.value.why, error.value.instead) == (
        "The annotations of this loop contradict one another.",
        "Inside `msrl.together()` is called: actor, env. Another annotation wants one of them elsewhere.",
        "Let each component be called inside of one of them.")
    assert "msrl.agent_act(obs)" in error.value.span.text
