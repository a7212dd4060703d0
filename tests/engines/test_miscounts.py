"""A rollout that is sampled after another number of inserts than its length: an error in every mode, the same."""

import pytest

from msrl.buffers import Rollout
from msrl.errors import RunError, TypeCheckError
from msrl.pipeline import Deployment, compile
from tests.engines.pure_toys import Toy
from tests.matrix.toys import CalledCorridor, Corridor, HostCorridor


class Counted(Toy):
    def buffers(self):
        return {"rollout": Rollout(5)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            for _ in range(3):
                act = msrl.agent_act(obs)
                msrl.replay_buffer_insert(x=act.x)
                obs = msrl.env_step(act.action).obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))


class Computed(Toy):
    """How many inserts there are depends on values; they are always two or seven, though."""

    inserts = 2

    def buffers(self):
        return {"rollout": Rollout(5)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            for _ in range(self.inserts + 0 * obs.sum()):
                act = msrl.agent_act(obs)
                msrl.replay_buffer_insert(x=act.x)
                obs = msrl.env_step(act.action).obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))


class TooMany(Computed):
    inserts = 7


class Right(Computed):
    inserts = 5


def said(inserts: int) -> tuple[str, ...]:
    return (f"Rollout of length 5 is sampled after {inserts} inserts.",
            "A rollout is handed over whole, one row per insert since the last sample.",
            "Insert exactly 5 records before each sample, or change the length.", "docs/buffers.md#how-many-inserts")


def words(error) -> tuple[str, ...]:
    return error.what, error.why, error.instead, error.docs


@pytest.mark.parametrize("env", [Corridor, HostCorridor, CalledCorridor])
@pytest.mark.parametrize("passes", ["", "-call-back", "+overlap"])
def test_what_can_be_counted_is_refused_when_compiling(env, passes):
    with pytest.raises(TypeCheckError) as caught:
        compile(Counted, env(), num_envs=4, deployment=Deployment(passes=passes))
    assert words(caught.value) == said(3)
    assert caught.value.span.text == "msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))"


SPREAD = Deployment("single-learner-coarse", "threads", 2)
RUNS = {
    "compiled": (Corridor, {}, lambda p: list(p.run())),
    "strict": (Corridor, dict(strict=True), lambda p: list(p.run())),
    "interpreted": (Corridor, dict(strict=True), lambda p: p.interpret()),
    "eager": (Corridor, dict(strict=True), lambda p: p.eager()),
    "several seeds": (Corridor, dict(seeds=2), lambda p: list(p.run())),
    "shards": (Corridor, dict(shards=2), lambda p: list(p.run())),
    "spread": (Corridor, dict(shards=2, deployment=SPREAD), lambda p: list(p.run())),
    "on the host": (HostCorridor, {}, lambda p: list(p.run())),
    "called back": (CalledCorridor, {}, lambda p: list(p.run())),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_rest_is_refused_when_running(name):
    env, settings, use = RUNS[name]
    with pytest.raises(RunError) as caught:
        use(compile(Computed, env(), num_envs=4, **settings))
    what, _, instead, docs = words(caught.value)
    assert (what, instead, docs) == (said(2)[0], *said(2)[2:])


def test_so_are_too_many():
    with pytest.raises(RunError) as caught:
        list(compile(TooMany, Corridor(), num_envs=4).run())
    assert words(caught.value) == said(7)


def test_the_right_number_is_no_error():
    assert [update.metrics["x"] for update in compile(Right, Corridor(), num_envs=4).run() if update.metrics]
