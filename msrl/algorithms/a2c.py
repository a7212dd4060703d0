"""A2C: advantage actor-critic, in which all environments step together (Mnih et al., 2016,
https://arxiv.org/abs/1602.01783, without the asynchrony).

Departures from the paper: policy and value are two networks, losses are means over the rollout instead of sums, the
gradients of each network are cut to a norm, and actions of a bounded Box are scaled from [-1, 1]. A truncated episode
bootstraps from the value of its last observation.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from msrl.algorithms.actor_critic import ActorCritic, OneStepConfig, OneStepLearner
from msrl.api.ranges import Count, Portion
from msrl.rl import gae


@dataclass(frozen=True)
class A2CConfig(OneStepConfig):
    rollout: Count = 8
    """Steps of each environment between two updates: how many rewards a return has at most."""
    gae_lambda: Portion = 1.0
    """How far advantages look ahead within a rollout: 0 is one step, 1 all of it, as in the paper."""


def a2c_loss(params, batch, *, policy, critic, config):
    """(loss, metrics) of a rollout with leaves (T, B, ...)."""
    distribution = policy.apply(params["actor"], batch.obs)
    value = critic.apply(params["critic"], batch.obs)[..., 0]  # (T, B)
    # Returns are constants: no gradient flows into them, nor from the policy's loss into the value.
    fixed, baseline = jax.lax.stop_gradient((params["critic"], value))
    next_value = critic.apply(fixed, batch.final_obs)[..., 0]
    advantages = jax.vmap(partial(gae, gamma=config.gamma, lam=config.gae_lambda), 1, 1)
    advantage = advantages(batch.reward, baseline, next_value, batch.terminated, batch.done)
    policy_loss = -(distribution.log_prob(batch.action) * advantage).mean()
    value_loss = 0.5 * jnp.square(value - (baseline + advantage)).mean()
    entropy = distribution.entropy().mean()
    loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return loss, dict(loss=loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy)


class A2C(ActorCritic):
    Config = A2CConfig

    def learner(self, policy, critic):
        return OneStepLearner(policy, critic, self.spec, self.config, a2c_loss)

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(
                    obs=obs, action=act.action, reward=step.reward,
                    terminated=step.terminated, done=step.done, final_obs=step.final_obs,
                )
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
