"""Which leaves of a value have agents, and on which dimension."""

import jax.numpy as jnp
import pytest

from msrl.pipeline import compile
from tests.matrix.herds import Herd, Herding
from tests.matrix.toys import Corridor, Whole


class Expressions(Herding):
    """Four environments and four agents: no size tells what is what."""

    weights = jnp.arange(4)

    def train(self, msrl):
        obs = msrl.env_reset()
        kept, odd, numb = jnp.zeros((4, 4), jnp.int32), jnp.zeros((4, 4), jnp.int32), jnp.zeros((4, 4), jnp.int32)
        for _ in range(2):
            act = msrl.agent_act(obs, kept)
            step = msrl.env_step(act.action)
            pair = (step.reward, step.done)
            by_env = step.reward.T
            joined = jnp.concatenate([obs, step.obs], -1)
            flat = obs.reshape(4, -1)
            every = obs[:, :, None] - obs[:, None]
            ranked = step.reward + self.weights
            alone = obs[:, 0]
            seen = msrl.call("tally", "parts", act.noise)
            kept = jnp.sort(act.action, 1)
            odd = by_env.astype(int)
            numb = numb + 1
            msrl.replay_buffer_insert(obs=obs, done=step.done, alone=alone, nested=(act.noise, numb))
            obs = step.obs
        for _ in range(2):
            msrl.replay_buffer_insert(obs=obs, done=step.done, alone=alone, nested=(act.noise, numb))
        batch = msrl.replay_buffer_sample()
        msrl.report(msrl.agent_learn(batch, batch), a=pair[0].sum() + joined.sum() + flat.sum() + every.sum(),
                    b=ranked.sum() + seen[1] + odd.sum())


WANTED = {
    "obs": (1,), "act": (1, 1), "step": (1, 1, -1, -1, 1), "pair": (1, -1), "by_env": (0,), "joined": (1,), "flat": (),
    "every": (1,), "ranked": (1,), "alone": (), "seen": (-1, 1, -1), "kept": (1,), "odd": (0,),
    "numb": (),  # as many numbers as environments and agents, and nothing else says that they belong to these
    "batch": (-1, -1, 2, -1, 2),
}


@pytest.fixture(scope="module")
def program():
    return compile(Expressions, Herd(), agent_shards=2)


@pytest.mark.parametrize("variable", WANTED)
def test_agents_are_found_leaf_by_leaf(program, variable):
    names = [name for name in program.shapes.names if name.rpartition(".")[0] == variable]
    last = max(names, key=lambda name: int(name.rpartition(".")[2]))
    assert program.ops.agents.of(last) == WANTED[variable]


def test_what_can_be_computed_for_some_agents_alone(program):
    alone = {name.rpartition(".")[0] for name in program.ops.agents.divisible()}
    assert {"obs", "act", "step", "pair", "batch"} <= alone
    # `ranked` holds an array with an entry for each agent, which has no part for some of them.
    assert not alone & {"joined", "every", "by_env", "odd", "flat", "seen", "ranked", "numb"}


def test_one_agent_has_no_axis():
    class Idle(Whole):
        def train(self, msrl):
            msrl.report(first=msrl.env_reset().sum())

    program = compile(Idle, Corridor())
    assert program.ops.agents.found == {}
