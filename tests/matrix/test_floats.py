"""Floats: strict modes agree to the bit, fast execution within a stated tolerance, on JAX and on Gymnasium."""

import jax.numpy as jnp
import pytest

from msrl import envs
from tests.matrix.comparing import check
from tests.matrix.toys import Linear

TOLERANCE = 1e-5  # relative and absolute, after two updates of a linear policy


class Gradient(Linear):
    def train(self, msrl):
        obs = msrl.env_reset()
        best = jnp.float32(0)
        for i in range(2):
            rate = max(0.01, 0.1 / (i + 1))
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs, rate)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward)
                obs = step.obs
                best = jnp.maximum(best, step.reward.mean())
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample(), rate), best=best)


@pytest.mark.parametrize("shards", [1, 2])
def test_cartpole(shards):
    check(Gradient, envs.make("jax:CartPole-v1"), shards=shards, tolerance=TOLERANCE)


def test_gymnasium():
    check(Gradient, envs.make("gymnasium:CartPole-v1"), shards=2, tolerance=TOLERANCE)
