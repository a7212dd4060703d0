"""Agents divided into shards, each with a learner of its own: the same result however and wherever they run."""

import jax
import numpy as np
import pytest

from msrl import envs
from msrl.algorithms import load
from msrl.api import Agent
from msrl.comparing import difference
from msrl.errors import MsrlError
from msrl.pipeline import Deployment, compile
from tests.matrix.comparing import check as check_modes
from tests.matrix.comparing import strict
from tests.matrix.herds import HERDS, Herd, HerdActor, Herding, HerdLearner, HostHerd, Watchful
from tests.matrix.test_algorithms import TINY, TOLERANCE
from tests.matrix.test_placements import check
from tests.matrix.toys import Corridor, Whole

ANYWHERE = [Deployment("single-learner-coarse", "inline", 2), Deployment("single-learner-fine", "threads", 2),
            Deployment("multi-learner")]


def environments(*learners, backend="inline"):
    return [Deployment("environments", backend, learners=number) for number in learners]


@pytest.mark.parametrize("name", HERDS)
def test_all_modes_agree(name):
    check_modes(HERDS[name], Herd(), shards=2, agent_shards=2)


@pytest.mark.parametrize("name", HERDS)
def test_every_herd_under_environments(name):
    check(HERDS[name], Herd(), environments(1, 2, 3), shards=2, agent_shards=4)


@pytest.mark.parametrize("name", HERDS)
def test_every_herd_elsewhere(name):
    check(HERDS[name], Herd(), [*ANYWHERE, *environments(2, backend="threads")], shards=2, agent_shards=2)


@pytest.mark.parametrize("name", HERDS)
def test_one_agent_shard_can_be_apart_from_the_environments(name):
    check(HERDS[name], Herd(), environments(1), shards=2)


def test_environment_on_the_host():
    check(Herding, HostHerd(), environments(2, backend="threads"), shards=2, agent_shards=2)
    check_modes(Herding, HostHerd(), shards=2, agent_shards=2)


def test_mappo_is_the_same_everywhere():
    env, settings = TINY["mappo"]
    settings = dict(num_envs=4, shards=2, agent_shards=3, agent_id=True, **settings)
    wanted = check_modes(load("mappo"), envs.make(env), tolerance=TOLERANCE, **settings)
    program = compile("mappo", env, strict=True, **settings)
    for deployment in environments(2, 3):
        assert difference(wanted, strict(program.deployed(deployment))) is None


@pytest.mark.parametrize("deployment", environments(1, 3), ids=lambda d: str(d.learners))
def test_fast_mode_ends_where_strict_mode_does(deployment):
    """In whole numbers, to the bit; and whoever looks on the way sees all agent shards at the same pass."""
    def train(**how):
        program = compile(Herding, Herd(), shards=2, agent_shards=4, **how)
        seen = {update.env_steps: (update.metrics, program.per_seed("$weights")[0]["w"].tolist())
                for update in program.run()}
        return program.params()[0], {steps: weights for steps, (_, weights) in seen.items()}

    wanted, along = train(strict=True)
    found, on_the_way = train(deployment=deployment)
    assert wanted["w"].shape == (4, 2)
    assert jax.tree.all(jax.tree.map(np.array_equal, wanted, found))
    assert on_the_way == along


def test_agent_shards_have_streams_and_weights_of_their_own():
    program = compile(Herding, Herd(), strict=True, agent_shards=4)
    first = program.interpret()[0]["$weights"]
    assert len({tuple(np.asarray(weights["w"]).tolist()) for weights in first}) > 1
    other = compile(Herding, Herd(), strict=True, agent_shards=2).interpret()[0]["$weights"]
    assert len(other) == 2


def test_all_agent_shards_are_evaluated():
    program = compile(Herding, Herd(), agent_shards=2)
    for _ in program.run():
        pass
    weights = program.per_seed("$weights")[0]["w"]  # (2, 2)
    obs = jax.random.randint(jax.random.key(1), (3, 4, 2), 0, 9)
    action = program.evaluator.choose({"w": weights}, jax.random.key(0), obs)
    by_hand = (obs.sum(-1) + np.repeat(weights.sum(-1), 2)) % 3
    np.testing.assert_array_equal(action, by_hand)


def test_several_seeds_at_once():
    together = compile(Herding, Herd(), agent_shards=2, seeds=2)
    for _ in together.run():
        pass
    for seed, params in enumerate(together.params()):
        alone = compile(Herding, Herd(), agent_shards=2, seed=seed)
        for _ in alone.run():
            pass
        np.testing.assert_array_equal(params["w"], alone.params()[0]["w"])


class Blind(Watchful):
    sees_all = ("flock",)


class Sums(HerdActor):
    """Says something of its agents as one."""

    def act(self, weights, key, obs):
        act = super().act(weights, key, obs)
        return act.replace(noise=act.noise.sum(1))


class BlindHerd(Herding):
    def agent(self):
        return Agent(Blind(), HerdLearner(self.team))


class SummedHerd(Herding):
    def agent(self):
        return Agent(Sums(), HerdLearner(self.team))


REFUSED = {
    "agents of one": (Whole, Corridor, dict(agent_shards=2), """\
corridor cannot be divided into 2 agent shards.
Each has some of the agents, and this environment has one.
Leave out --agent-shards, or use an environment with several agents, like --env simple_spread."""),
    "an uneven division": (Herding, Herd, dict(agent_shards=3), """\
4 agents cannot be divided into 3 agent shards.
All agent shards have the same number of agents, so that they run the same program.
Use --agent-shards with a divisor of 4."""),
    "learners that agree and do not": (Herding, Herd, dict(agent_shards=2, learner_shards=2, shards=2), """\
2 agent shards and 2 learner shards cannot be had at once.
Learners of agent shards learn apart, and those of learner shards agree on every gradient.
Leave out --agent-shards or --learner-shards."""),
    "a parameter that is not there": (BlindHerd, Herd, dict(), """\
Blind sees all agents in `flock`, and has no such parameter.
`act` takes obs, herd from the loop.
Name one of these in `sees_all`."""),
    "a value without agents": (SummedHerd, Herd, dict(agent_shards=2), """\
A part of its value has no entry per agent.

  tests/matrix/herds.py:103
  103 | act = msrl.agent_act(obs)
              ^^^^^^^^^^^^^^^^^^^

There are 2 agent shards of 2, and their values are joined agent by agent; this part is int32[4] in each.
Give it one entry per environment and agent, or leave it out."""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    trainer, env, settings, message = REFUSED[case]
    if trainer is Whole:
        trainer = type("Idle", (Whole,), {"train": lambda self, msrl: None})
    with pytest.raises(MsrlError) as refusal:
        compile(trainer, env(), **settings)
    assert str(refusal.value) == message
