"""No result depends on two sizes being the same: a table with as many entries as there are environments, shards, agents
or steps of a rollout is still a table.

All numbers are small whole ones and nothing is random, so that the same loop must give the same numbers with another
number of shards or learners, and those about tables with another number of environments.
"""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrl.api import (
    Actor,
    Agent,
    Box,
    Component,
    Config,
    Discrete,
    Env,
    EnvSpec,
    Learner,
    LearnerState,
    Record,
    Step,
    Trainer,
)
from msrl.buffers import Replay, Rollout
from msrl.deployment import Deployment
from msrl.errors import TypeCheckError
from msrl.pipeline import compile
from tests.matrix.herds import Herd, HerdActor, Herding

LITERAL = jnp.arange(4.0)  # as many entries as the least number of environments


class Counting(Env):
    """Each place goes on by the action. Observes the place, `width` times."""

    def __init__(self, width: int):
        self.spec = EnvSpec("counting", Box((width,), 0, 99), Discrete(9))

    def init(self, key, num_envs):
        return jnp.zeros(num_envs, jnp.int32)

    def obs(self, state):
        return state[:, None] + jnp.arange(self.spec.observation.shape[0], dtype=jnp.float32)

    def reset(self, state, key):
        return state, self.obs(state)

    def step(self, state, action, key):
        state = state + action
        never = jnp.zeros(state.shape, bool)
        return state, Step(self.obs(state), state.astype(jnp.float32), never, never, self.obs(state))


class LooksUp(Actor):
    def act(self, weights, key, obs, table, fixed, mine, turned):
        # All of the table for everyone; of `mine` and `turned`, what belongs to the environments at hand.
        code = jnp.full(obs.shape[0], table[-1] + 10 * table.sum() + 100 * fixed[-1] + table.shape[0])
        return Record(action=(mine % 3).astype(jnp.int32), code=code, mine=mine + turned.sum(0))

    def exploit(self, weights, key, obs):
        return Record(action=jnp.zeros(obs.shape[0], jnp.int32))


class Adds(Learner):
    def init(self, key):
        return LearnerState(jnp.zeros(()), None)

    def learn(self, state, key, batch, table, mine, *samples):
        """A number, a vector with as many entries as anything, and rows."""
        return state, {"code": batch.code.mean(), "features": batch.obs.mean((0, 1)), "table": table * 2,
                       "rows": batch.mine.sum(0) + mine, "of": jnp.float32(table.shape[0])}


class Codes(Component):
    def __init__(self, size: int):
        self.size = size

    def init(self, key):
        return jnp.arange(self.size, dtype=jnp.float32)

    def table(self, state, key):
        return state, state

    def shaped(self, state, key, reward):
        return state, reward + state.sum()


@dataclass(frozen=True)
class Sizes(Config):
    num_envs: int = 4
    table: int = 4
    rollout: int = 2


def following(mine, reward):
    """By its looks, this could be about all environments."""
    return jnp.stack([mine, reward]).sum(0)


class Coinciding(Trainer):
    Config = Sizes

    def agent(self):
        return Agent(LooksUp(), Adds())

    def buffers(self):
        return {"rollout": Rollout(self.config.rollout), "replay": Replay(capacity=64, batch_size=self.config.num_envs)}

    def components(self):
        return {"codes": Codes(self.config.table)}

    def train(self, msrl):
        obs = msrl.env_reset()
        table = msrl.call("codes", "table")
        fixed = jnp.arange(1.0 * self.config.table)
        mine = jnp.arange(1.0 * self.config.num_envs)
        for _ in range(2):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs, table, fixed, mine, obs.T)
                step = msrl.env_step(act.action)
                shaped = msrl.call("codes", "shaped", step.reward)
                last = obs[..., 0]
                backwards = last[..., ::-1]  # of the environments, whatever its looks
                msrl.replay_buffer_insert("rollout", code=act.code, mine=act.mine + shaped + backwards, obs=obs)
                msrl.replay_buffer_insert("replay", mine=mine)
                mine = following(mine, step.reward)
                fixed = fixed + 1.0
                obs = step.obs
            batch = msrl.replay_buffer_sample("rollout")
            out = msrl.agent_learn(batch, table, mine, msrl.replay_buffer_sample("replay").mine)
            msrl.report(code=out["code"], features=out["features"].sum(), first=out["features"][0],
                        table=out["table"][-1], of=out["of"], entries=float(out["table"].shape[0]),
                        rows=(out["rows"] * jnp.arange(1.0 * self.config.num_envs)).sum())


ABOUT_TABLES = ("code", "table", "of", "entries")


@functools.cache
def reports(config: Sizes, width: int, distribution: str = "", instances: int = 1):
    """What plain Python reports, or a distribution, added up."""
    program = compile(Coinciding, Counting(width), config=config, strict=not distribution, deployment=Deployment(
        distribution or "local", backend="inline", **({"actors": instances} if distribution == "single-learner-coarse"
                                                      else {"learners": instances} if instances > 1 else {})))
    if not distribution:
        return program.eager()[1]
    return [look.metrics for look in program.run() if look.metrics]


def mean(rows):
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


@st.composite
def sizes(draw):
    num_envs = draw(st.sampled_from((4, 8)))
    shards = draw(st.sampled_from([each for each in (2, 4, 8) if num_envs % each == 0]))
    learners = draw(st.sampled_from([each for each in (1, 2, 4) if shards % each == 0]))
    rollout = draw(st.sampled_from((2, 4)))
    table = draw(st.sampled_from((num_envs, shards, rollout, num_envs // shards, 3)))
    width = draw(st.sampled_from((num_envs, shards, num_envs // shards, 3)))
    return Sizes(num_envs=num_envs, shards=shards, learner_shards=learners, rollout=rollout, table=table), width


@settings(max_examples=8, deadline=None, derandomize=True)
@given(sizes())
def test_sizes_that_coincide_mean_nothing(drawn):
    config, width = drawn
    wanted = reports(replace(config, shards=1, learner_shards=1), width)
    assert reports(config, width) == wanted
    for distribution, instances in (("local", 1), ("single-learner-coarse", 2) if config.learner_shards == 1 else
                                    ("multi-learner", 2)):
        assert mean(reports(config, width, distribution, instances)) == pytest.approx(mean(wanted), rel=1e-6)
    more = reports(replace(config, num_envs=2 * config.num_envs), width)
    assert [[row[name] for name in ABOUT_TABLES] for row in more] == [
        [row[name] for name in ABOUT_TABLES] for row in wanted]


class Unclear(Coinciding):
    def train(self, msrl):
        obs = msrl.env_reset()
        act = msrl.agent_act(obs, LITERAL, LITERAL, following(obs[:, 0], LITERAL), obs.T)
        msrl.report(code=act.code.sum())


def test_what_cannot_be_told_is_refused():
    with pytest.raises(TypeCheckError) as problem:
        compile(Unclear, Counting(3), num_envs=4, shards=2)
    assert str(problem.value).splitlines()[0] == \
        "It cannot be told whether `t` has an entry for each of the environments."
    assert "self.config.num_envs" in str(problem.value)
    compile(Unclear, Counting(3), num_envs=4)  # with one shard, nothing is divided


class Whole(Coinciding):
    class Hands(LooksUp):
        def act(self, weights, key, obs, table):
            return Record(action=jnp.zeros(obs.shape[0], jnp.int32), table=table)

    def agent(self):
        return Agent(self.Hands(), Adds())

    def train(self, msrl):
        obs = msrl.env_reset()
        act = msrl.agent_act(obs, msrl.call("codes", "table"))
        msrl.report(table=act.table.sum())


@pytest.mark.parametrize("table", [2, 3])
def test_an_actor_that_hands_over_a_table_is_refused(table):
    """Whether or not the table has as many entries as a shard has environments."""
    with pytest.raises(TypeCheckError, match="row per environment"):
        compile(Whole, Counting(3), num_envs=4, shards=2, table=table)


class Pairs(Coinciding):
    def train(self, msrl):
        obs = msrl.env_reset()
        act = msrl.agent_act(obs, LITERAL, LITERAL, jnp.arange(1.0 * self.config.num_envs), obs.T)
        step = msrl.env_step(act.action)
        pairs = step.reward[:, None] - step.reward  # (B, B): elementwise, but of all pairs
        odd = step.reward * step.obs  # with as many features as environments, by feature
        msrl.report(pairs=(pairs * jnp.arange(4.0)).sum(), odd=(odd * jnp.arange(4.0)).sum(), rows=pairs.shape[1] * 1.0)


def test_what_is_elementwise_by_its_looks_may_be_about_all_environments():
    wanted = compile(Pairs, Counting(4), num_envs=4).eager()[1]
    assert wanted[0]["odd"] != 0
    for shards in (2, 4):
        program = compile(Pairs, Counting(4), num_envs=4, shards=shards, deployment=Deployment(
            "single-learner-coarse", backend="inline", actors=2))
        assert program.eager()[1] == wanted
        assert [look.metrics for look in program.run() if look.metrics] == wanted


class Flattened(Coinciding):
    class Flat(Adds):
        def learn(self, state, key, batch, *others):
            return state, {"flat": batch.code.ravel()}

    def agent(self):
        return Agent(LooksUp(), self.Flat())

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.rollout):
            act = msrl.agent_act(obs, LITERAL, LITERAL, obs[:, 0], obs.T)
            msrl.replay_buffer_insert("rollout", code=act.code)
        out = msrl.agent_learn(msrl.replay_buffer_sample("rollout"))
        msrl.report(flat=out["flat"].sum())


def test_rows_that_learners_mix_are_refused():
    with pytest.raises(TypeCheckError) as problem:
        compile(Flattened, Counting(3), num_envs=4, shards=2, learner_shards=2)
    assert str(problem.value).splitlines()[0] == "What `learn` returns in ['flat'] cannot be put together."


class SeesTable(HerdActor):
    def act(self, weights, key, obs, table):
        out = super().act(weights, key, obs)
        return out.replace(noise=jnp.full(obs.shape[:2], table[-1] + 10 * table.shape[0]))


class HerdTable(Herding):
    """A table with as many entries as there are agents, and environments."""

    def agent(self):
        return Agent(SeesTable(), super().agent().learner)

    def components(self):
        return {"codes": Codes(4)}

    def train(self, msrl):
        obs = msrl.env_reset()
        table = msrl.call("codes", "table")
        square = table[:, None] * table
        for _ in range(2):
            act = msrl.agent_act(obs, square[3])
            obs = msrl.env_step(act.action).obs
            square = square + 1.0
            msrl.report(code=act.noise.mean())


@pytest.mark.parametrize("distribution", ["local", "environments"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_table_is_not_divided_among_agents(distribution, shards):
    program = compile(HerdTable, Herd(), num_envs=4, shards=shards, agent_shards=2, deployment=Deployment(
        distribution, backend="inline", learners=2 if distribution == "environments" else 1))
    assert [row["code"] for row in program.eager()[1]] == [49.0, 50.0]
    assert [look.metrics["code"] for look in program.run() if look.metrics] in ([49.5], [49.0, 50.0])
    assert jax.tree.leaves(program.ops.layouts.agents.of("table.1")) == []
