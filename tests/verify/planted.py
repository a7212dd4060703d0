"""Trainers with defects of the kinds that verify once said "same" to."""

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Actor, Agent, Component, Config, Learner, LearnerState, Record, Trainer
from msrl.buffers import Rollout


class TableActor(Actor):
    """Acts by a table of sixteen numbers that has nothing to do with environments."""

    def act(self, weights, key, obs, table):
        return Record(action=jnp.full(obs.shape[:1], (table[-1] > 14).astype(jnp.int32)))

    def exploit(self, weights, key, obs):
        return self.act(weights, key, obs, jnp.arange(16.0))


class Counter(Learner):
    def init(self, key):
        return LearnerState({"n": jnp.zeros(())}, None)

    def learn(self, state, key, batch):
        means = batch.obs.mean((0, 1))
        return state.replace(params={"n": state.params["n"] + 1}), {"means": self.agree(means), "n": state.params["n"]}


class Sound(Trainer):
    """Nothing is wrong with it."""

    Config = Config

    def agent(self):
        return Agent(TableActor(), Counter())

    def buffers(self):
        return {"rollout": Rollout(2)}

    def train(self, msrl):
        obs = msrl.env_reset()
        x = 0.0
        while x < 1.0:
            for _ in range(2):
                step = msrl.env_step(msrl.agent_act(obs, jnp.arange(16.0)).action)
                msrl.replay_buffer_insert(obs=obs)
                obs = step.obs
            x += 0.1
            out = msrl.agent_learn(msrl.replay_buffer_sample())
            grown = kept = [x]
            grown += [step.reward.mean()]
            msrl.report(x=x, n=out["n"], means=out["means"].sum(), grown=sum(grown), kept=sum(kept))


class FrozenActor(TableActor):
    """Counts the times that it is traced."""

    calls = 0

    def act(self, weights, key, obs, table):
        type(self).calls += 1
        return Record(action=jnp.full(obs.shape[:1], type(self).calls % 2))


class Frozen(Sound):
    def agent(self):
        return Agent(FrozenActor(), Counter())


class Log(Component):
    traceable = False
    written: list = []

    def init(self, key):
        return 0

    def write(self, state, key, x):
        self.written.append(float(np.asarray(x)))
        return state + 1, np.float32(x)

    def output_shape(self, method, *args):
        return jax.ShapeDtypeStruct((), np.float32)


class Logging(Sound):
    def components(self):
        return {"log": Log()}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(2):
            for _ in range(2):
                step = msrl.env_step(msrl.agent_act(obs, jnp.arange(16.0)).action)
                msrl.replay_buffer_insert(obs=obs)
                obs = step.obs
            out = msrl.agent_learn(msrl.replay_buffer_sample())
            msrl.report(x=msrl.call("log", "write", out["n"]))
