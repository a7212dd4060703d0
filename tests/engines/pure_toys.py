"""A trainer as small as can be, whose parts are there to be replaced by impure ones."""

import jax.numpy as jnp

from msrl.api import Actor, Agent, Config, Learner, LearnerState, Record, Trainer
from msrl.buffers import Rollout
from tests.matrix.toys import Corridor


def zeros(obs, x):
    return Record(action=jnp.zeros(obs.shape[0], jnp.int32), x=x)


class Zeros(Actor):
    def act(self, weights, key, obs):
        return zeros(obs, jnp.zeros(obs.shape[0]))

    def exploit(self, weights, key, obs):
        return zeros(obs, jnp.zeros(obs.shape[0]))


class Counts(Learner):
    def init(self, key):
        return LearnerState(jnp.zeros(()), None)

    def learn(self, state, key, batch):
        return state.replace(params=state.params + 1), {"x": batch.x.mean()}


class Toy(Trainer):
    Config = Config
    Actor, Learner, Env = Zeros, Counts, Corridor

    def agent(self):
        return Agent(self.Actor(), self.Learner())

    def buffers(self):
        return {"rollout": Rollout(2)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(4):
            for _ in range(2):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(x=act.x)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
