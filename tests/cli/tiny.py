"""The smallest trainers there can be, so that a test of the command line waits for no compiler."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from msrl.api import Actor, Agent, Component, Config, Learner, LearnerState, Record, Trainer
from msrl.envs.wrappers import NormaliseObs
from msrl.errors import RunError


@dataclass(frozen=True)
class TinyConfig(Config):
    total_steps: int = 64
    """Environment steps to train for."""
    num_envs: int = 4
    """Environments that step side by side."""
    noise: float = 0.5
    """How far the weights jump."""
    widths: tuple[int, ...] = (1,)
    """Of nothing."""
    normalise: bool = False
    """Whether observations are normalised."""
    steps: int = 8
    """Steps between two jumps."""

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.steps))


class TinyActor(Actor):
    def act(self, weights, key, obs):
        return Record(action=jnp.argmax(obs @ weights["w"], -1).astype(jnp.int32))

    def exploit(self, weights, key, obs):
        return self.act(weights, key, obs)


class TinyLearner(Learner):
    def __init__(self, spec, config):
        self.spec, self.config = spec, config

    def init(self, key):
        return LearnerState({"w": jax.random.normal(key, (*self.spec.observation.shape, self.spec.action.n))}, None)

    def learn(self, state, key, batch):
        jump = self.config.noise * jax.random.normal(key, state.params["w"].shape)
        return state.replace(params={"w": state.params["w"] + jump}), dict(loss=jnp.abs(jump).sum())


class Tiny(Trainer):
    Config = TinyConfig

    def agent(self):
        return Agent(TinyActor(), TinyLearner(self.spec, self.config))

    @staticmethod
    def wrap(env, config):
        return NormaliseObs(env) if config.normalise else env

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.steps):
                step = msrl.env_step(msrl.agent_act(obs).action)
                obs = step.obs
            msrl.report(msrl.agent_learn(obs))


class TinyWhile(Tiny):
    """Finds out that it has made all steps when it has."""

    def train(self, msrl):
        obs = msrl.env_reset()
        made = 0
        while made < self.config.total_steps:
            for _ in range(self.config.steps):
                step = msrl.env_step(msrl.agent_act(obs).action)
                obs = step.obs
            made = made + self.config.steps * self.config.num_envs
            msrl.report(msrl.agent_learn(obs))


class Bomb(Component):
    traceable = False

    def init(self, key):
        return {"calls": 0}

    def output_shape(self, method, *args):
        return jax.ShapeDtypeStruct((), jnp.float32)

    def tick(self, state, key):
        if state["calls"] == 3:
            raise RunError("The bomb went off.", why="It was asked three times.")
        return {"calls": state["calls"] + 1}, jnp.float32(0)


class Failing(Tiny):
    def components(self):
        return {"bomb": Bomb()}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            step = msrl.env_step(msrl.agent_act(obs).action)
            obs = step.obs
            msrl.report(msrl.agent_learn(obs))
            msrl.report(tick=msrl.call("bomb", "tick"))


@dataclass(frozen=True)
class ClashingConfig(Config):
    seed: int = 3
    """A flag of the command line as well."""


class Clashing(Tiny):
    Config = ClashingConfig


class Offline(Tiny):
    """Learns without stepping an environment."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            msrl.report(msrl.agent_learn(obs))
