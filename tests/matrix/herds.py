"""A herd of four in a world of whole numbers, as in toys.py, and loops for it: what is divided by agent, what is seen
whole, and what is neither."""

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Actor, Agent, Box, Discrete, Env, EnvSpec, Learner, LearnerState, Record, Step
from msrl.buffers import Replay, Rollout
from tests.matrix.toys import Whole, draw

SPEC = EnvSpec("herd", Box((2,), 0, 99, "int32"), Discrete(3), agents=("a", "b", "c", "d"), max_episode_steps=7)
N = len(SPEC.agents)


class Herd(Env):
    """Observes (place, luck) of each. The herd is there when its first has gone nine places."""

    spec = SPEC

    def init(self, key, num_envs):
        return jnp.zeros((num_envs, N, 2), jnp.int32)

    def reset(self, state, key):
        state = draw(key, state.shape, 4)
        return state, state

    def step(self, state, action, key):
        final = jnp.stack([state[..., 0] + action, draw(key, action.shape, 5)], -1)  # (B, N, 2)
        done = final[:, 0, 0] >= 9
        state = jnp.where(done[:, None, None], draw(key, state.shape, 4), final)
        return state, Step(state, final.sum(-1).astype(jnp.float32), done, jnp.zeros_like(done), final)


class HostHerd(Env):
    """The same as Python on the host."""

    traceable = False
    spec = SPEC

    def init(self, key, num_envs):
        return np.zeros((num_envs, N, 2), np.int32)

    def reset(self, state, key):
        state = np.array(draw(key, state.shape, 4))
        return state, state.copy()

    def step(self, state, action, key):
        state, step = Herd().step(jnp.asarray(state), jnp.asarray(action), key)
        return np.array(state), jax.tree.map(np.array, step)


class HerdActor(Actor):
    def act(self, weights, key, obs, *extra):
        noise = draw(key, obs.shape[:2], 2)
        action = obs.sum(-1) + weights["w"].sum() + noise + sum(extra)
        return Record(action=(action % 3).astype(jnp.int32), noise=noise)

    def exploit(self, weights, key, obs):
        return Record(action=((obs.sum(-1) + weights["w"].sum()) % 3).astype(jnp.int32))


class Watchful(HerdActor):
    """Each looks at all others, too."""

    sees_all = ("herd",)

    def act(self, weights, key, obs, herd):
        assert herd.shape[1] == N
        return super().act(weights, key, obs, herd.sum((1, 2))[:, None])


class HerdLearner(Learner):
    sees_all = ("everyone",)

    def __init__(self, team):
        self.team = team

    def init(self, key):
        return LearnerState({"w": draw(key, (2,), 5)}, {"learnt": jnp.int32(0)})

    def learn(self, state, key, batch, everyone):
        sizes = [jnp.shape(batch.obs)[-2], jnp.shape(jax.tree.leaves(everyone)[0])[-1]]
        assert sizes[0] == self.team, sizes
        mine, all_ = (sum(leaf.astype(jnp.int32).sum() for leaf in jax.tree.leaves(tree)) for tree in (batch, everyone))
        total = (5 * mine + all_ + draw(key, (), 3)) % 1000
        learnt = state.opt["learnt"] + 1
        return LearnerState({"w": (state.params["w"] * 3 + total) % 97}, {"learnt": learnt}), {
            "total": total, "learnt": learnt}


class Herding(Whole):
    def agent(self):
        return Agent(HerdActor(), HerdLearner(self.team))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, done=step.done)
                obs = step.obs
            batch = msrl.replay_buffer_sample()
            msrl.report(msrl.agent_learn(batch, batch))


class Watching(Herding):
    """Actors that see all: what they are given is whole, and what the environment is given is not."""

    def agent(self):
        return Agent(Watchful(), HerdLearner(self.team))

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            act = msrl.agent_act(obs, obs)
            obs = msrl.env_step(act.action).obs
            msrl.report(noise=act.noise.sum(), learnt=msrl.agent_learn(Record(obs=obs), obs)["learnt"])


class Remembering(Herding):
    """What is kept from pass to pass, made by actors and of all kinds of expressions: by agent, among agents, about
    all; a replay; a learner that sees all of what actors have just done."""

    def buffers(self):
        return {"replay": Replay(capacity=24, batch_size=6)}

    def train(self, msrl):
        obs = msrl.env_reset()
        last, swapped = jnp.zeros((4, 4), jnp.int32), jnp.zeros((4, 4), jnp.int32)
        seen, turn = 0, jnp.arange(16).reshape(4, 4)
        for i in range(5):
            act = msrl.agent_act(obs, last, swapped, turn, i)
            turn = turn[:, ::-1] + i  # made of nothing that anybody does
            step = msrl.env_step((act.action + act.noise) % 3)
            last = act.action + 2 * act.noise
            swapped = last[:, ::-1]  # one's neighbour's
            if act.noise.sum() > 8:
                seen = seen + msrl.call("tally", "add", act.action)
            msrl.replay_buffer_insert(obs=obs, both=(act.action, step.done))
            obs = step.obs
            batch = msrl.replay_buffer_sample()
            msrl.report(msrl.agent_learn(batch, act.action), first=batch.both[0].sum(), ended=batch.both[1].sum())
        msrl.report(seen=seen, last=last.sum())


HERDS = {cls.__name__: cls for cls in (Herding, Watching, Remembering)}
