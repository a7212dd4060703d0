"""A world that goes wrong at one step: a walk whose reward is not a number there, in JAX and on the host.

All numbers are small multiples of powers of two, so that no sum depends on its order and every deployment comes to the
same bits. Nothing is drawn at random: to leave a learn out changes nothing else.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api import Actor, Agent, Box, Config, Discrete, Env, EnvSpec, Learner, LearnerState, Record, Step, Trainer
from msrl.buffers import Replay, Rollout

SPEC = EnvSpec("ditch", Box((2,), -64, 64, "float32"), Discrete(3), max_episode_steps=64)
NEVER = 10**6


class Ditch(Env):
    """Observes (place, steps). Its first environment is paid NaN for step `at`, counted from 1."""

    spec = SPEC

    def __init__(self, at: int = NEVER):
        self.at = at

    def init(self, key, num_envs):
        return jnp.zeros((num_envs, 2), jnp.float32)

    def reset(self, state, key):
        state = jnp.stack([jnp.arange(len(state), dtype=jnp.float32), jnp.zeros(len(state))], 1)
        return state, state

    def step(self, state, action, key):
        state = jnp.stack([(state[:, 0] + action) % 8, state[:, 1] + 1], 1)  # (B, 2)
        spoilt = (state[:, 1] == self.at) & (jnp.arange(len(state)) == 0)
        never = jnp.zeros(len(state), bool)
        return state, Step(state, jnp.where(spoilt, jnp.nan, state[:, 0]), never, never, state)


class Spoilt(Ditch):
    """For those who know it by its name."""

    def __init__(self):
        super().__init__(10)


class Unlucky(Ditch):
    """Goes wrong at its tenth step only if the key says so."""

    def __init__(self):
        super().__init__(10)

    def step(self, state, action, key):
        state, step = super().step(state, action, key)
        lucky = jax.random.key_data(key)[1] % 2 == 0
        return state, step.replace(reward=jnp.where(lucky, state[:, 0], step.reward))


class HostDitch(Ditch):
    """The same as NumPy on the host."""

    traceable = False

    def init(self, key, num_envs):
        return np.zeros((num_envs, 2), np.float32)

    def reset(self, state, key):
        state = np.stack([np.arange(len(state)), np.zeros(len(state))], 1).astype(np.float32)
        return state, state.copy()

    def step(self, state, action, key):
        state = np.stack([(state[:, 0] + np.asarray(action)) % 8, state[:, 1] + 1], 1).astype(np.float32)
        reward = state[:, 0].copy()
        reward[0] = np.nan if state[0, 1] == self.at else reward[0]
        never = np.zeros(len(state), bool)
        return state, Step(state.copy(), reward, never, never.copy(), state.copy())


class WalkActor(Actor):
    def act(self, weights, key, obs):
        return Record(action=((obs[:, 0] + weights["w"].sum()) % 3).astype(jnp.int32))

    def exploit(self, weights, key, obs):
        return self.act(weights, key, obs)


class WalkLearner(Learner):
    def init(self, key):
        return LearnerState({"w": jnp.ones(2), "large": jnp.zeros((64, 16))}, {"mean": jnp.zeros(2)}, jnp.int32(0))

    def learn(self, state, key, batch):
        grads = self.agree(jnp.round((batch.obs * batch.reward[..., None]).sum((0, 1))) % 4)  # (2,)
        mean = jnp.round(state.opt["mean"] / 2 + grads) % 8
        params = {"w": (state.params["w"] + mean) % 8, "large": state.params["large"]}
        return LearnerState(params, {"mean": mean}, state.extra + 1), {"loss": grads.sum(), "learnt": state.extra}


@dataclass(frozen=True)
class WalkConfig(Config):
    num_envs: int = 4
    updates: int = 6
    rollout: int = 4


class Walk(Trainer):
    Config = WalkConfig

    def agent(self):
        return Agent(WalkActor(), WalkLearner())

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                step = msrl.env_step(msrl.agent_act(obs).action)
                msrl.replay_buffer_insert(obs=obs, reward=step.reward)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))


class WithoutThird(Walk):
    """The same loop, in which the third update never happens."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for i in range(self.config.updates):
            for _ in range(self.config.rollout):
                step = msrl.env_step(msrl.agent_act(obs).action)
                msrl.replay_buffer_insert(obs=obs, reward=step.reward)
                obs = step.obs
            batch = msrl.replay_buffer_sample()
            if i != 2:
                msrl.agent_learn(batch)


class OneProgram(Walk):
    """All updates are one pass of a loop, so that the host looks when they are over."""

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(1):
            for _ in range(self.config.updates):
                for _ in range(self.config.rollout):
                    step = msrl.env_step(msrl.agent_act(obs).action)
                    msrl.replay_buffer_insert(obs=obs, reward=step.reward)
                    obs = step.obs
                msrl.agent_learn(msrl.replay_buffer_sample())


class FlatLearner(WalkLearner):
    def learn(self, state, key, batch):
        return super().learn(state, key, Record(obs=batch.obs[None], reward=batch.reward[None]))


class Drawn(Walk):
    """Learns from what it draws of all there was."""

    def agent(self):
        return Agent(WalkActor(), FlatLearner())

    def buffers(self):
        return {"rollout": Replay(capacity=64, batch_size=32)}


def trees_equal(one, two) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in pairs)
