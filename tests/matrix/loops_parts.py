"""Small loops that exercise interactions: with buffers, with components of one's own, with an agent."""

import jax.numpy as jnp

from msrl.api import Agent
from msrl.buffers import PrioritisedReplay, Replay, Rollout
from tests.matrix.toys import Whole, WholeActor, WholeLearner


class Plain(Whole):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample("rollout")))


class TwoBuffers(Whole):
    """A rollout and a replay at once; a sample kept from one pass to the next."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert("rollout", obs=obs, action=act.action, reward=step.reward)
                msrl.replay_buffer_insert("replay", pair=(obs, step.final_obs), done=step.done)
                obs = step.obs
            fresh = msrl.replay_buffer_sample("rollout")
            old = msrl.replay_buffer_sample("replay")
            out = msrl.agent_learn(fresh, old.pair[0], i)
            msrl.report(out, more=msrl.agent_learn(old)["total"])


class Components(Whole):
    """A component of one's own: states, draws, results of several parts, buffers called by name."""

    def train(self, msrl):
        obs = msrl.env_reset()
        (first, seen), n = msrl.call("tally", "parts", obs)
        for i in range(6):
            obs = msrl.env_step(msrl.agent_act(obs).action).obs
            total = msrl.call("tally", "add", obs)
            if total % 2 == 0:
                total = msrl.call("tally", "add", i)
            (first, seen), n = msrl.call("tally", "parts", obs)
            msrl.report(total=total, first=first, seen=seen.sum(), n=n, drawn=msrl.call("tally", "draw"))


class Ends(Whole):
    """Ends in the middle of things: the last thing is a sample, a report outside, weights never learnt from."""

    def train(self, msrl):
        msrl.report(before=1)
        obs = msrl.env_reset()
        msrl.replay_buffer_insert("replay", obs=obs, at=obs[:, 0] * 0)
        for i in range(3):
            obs = msrl.env_reset()
            msrl.replay_buffer_insert("replay", obs=obs, at=obs[:, 0] * 0 + i)
        msrl.report(between=2)
        for i in range(2):  # noqa: B007 (read after the loop)
            batch = msrl.replay_buffer_sample("replay")
        msrl.report(after=batch.at.sum() + i, between=3)


class Prioritised(Whole):
    """A buffer with a method of its own, called by name; a nested structure as a field."""

    def buffers(self):
        return {"replay": PrioritisedReplay(capacity=16, batch_size=4)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(5):
            step = msrl.env_step(msrl.agent_act(obs).action)
            msrl.replay_buffer_insert(obs=obs, after={"obs": step.final_obs, "done": step.done})
            obs = step.obs
            if i > 1:
                batch = msrl.replay_buffer_sample()
                msrl.call("replay", "update", batch.index, batch.obs[:, 0] + 1)
                msrl.report(total=batch.after["obs"].sum(), index=batch.index.sum())


class RatingLearner(WholeLearner):
    """Tells the loop something of every row of the batch."""

    def learn(self, state, key, batch):
        state, out = super().learn(state, key, batch)
        return state, {**out, "rating": batch.obs[:, 0].astype(jnp.float32) + 1}


class Rated(Prioritised):
    """Priorities that the learner makes: a row for each that was sampled."""

    def agent(self):
        return Agent(WholeActor(), RatingLearner())

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            step = msrl.env_step(msrl.agent_act(obs).action)
            msrl.replay_buffer_insert(obs=obs)
            obs = step.obs
            batch = msrl.replay_buffer_sample()
            out = msrl.agent_learn(batch)
            msrl.call("replay", "update", batch.index, out["rating"])
            msrl.report(total=out["total"], rating=out["rating"].sum())


class Early(Whole):
    """A sample that stands before the insert; what is learnt from it is carried."""

    def train(self, msrl):
        obs = msrl.env_reset()
        out = {"total": 0, "learnt": 0}
        for i in range(3):
            if i > 0:
                batch = msrl.replay_buffer_sample("replay")
                out = msrl.agent_learn(batch)
                out = msrl.agent_learn(batch, out["total"], i)
            act = msrl.agent_act(obs)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert("replay", obs=obs, more=(act, step.reward))
            obs = step.obs
            msrl.report(out)


class Stores(Whole):
    """Three buffers, one of them filled on one branch only."""

    def buffers(self):
        return {"a": Rollout(length=2), "b": Rollout(length=2), "c": Replay(capacity=9, batch_size=3)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(3):
            for j in range(2):
                obs = msrl.env_step(msrl.agent_act(obs).action).obs
                msrl.replay_buffer_insert("a", obs=obs)
                msrl.replay_buffer_insert("b", obs=obs + j)
                if obs.sum() % 2 == 0:
                    msrl.replay_buffer_insert("c", obs=obs.astype(jnp.uint8))
            apart = msrl.replay_buffer_sample("a").obs - msrl.replay_buffer_sample("b").obs
            msrl.report(apart=apart.sum(), c=msrl.replay_buffer_sample("c").obs.sum())
