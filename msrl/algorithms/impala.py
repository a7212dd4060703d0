"""IMPALA: actor-critic whose rollouts may be older than its policy (Espeholt et al., 2018,
https://arxiv.org/abs/1802.01561).

The actor records how likely its actions were, and V-trace makes of that what the rollout is worth to the policy of now.
Where the two are the same, this is on-policy learning from returns. Departures from the paper: policy and value are two
networks without memory, losses are means over the rollout instead of sums, and actions of a bounded Box are scaled from
[-1, 1]. A truncated episode bootstraps from the value of its last observation.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from msrl.algorithms.actor_critic import ActorCritic, OneStepConfig, OneStepLearner
from msrl.api.ranges import Count, Portion, Positive
from msrl.rl import vtrace


@dataclass(frozen=True)
class IMPALAConfig(OneStepConfig):
    num_envs: Count = 32
    """Environments that step side by side: the rollouts in a batch."""
    rollout: Count = 20
    """Steps of each environment between two updates."""
    vtrace_lambda: Portion = 1.0
    """How far V-trace looks ahead within a rollout: 0 is one step, 1 all of it, as in the paper."""
    clip_rho: Positive = 1.0
    """Largest weight of a step's own error. It decides whose values the critic learns: towards 0 those of the policy
    that acted, towards infinity those of the policy learnt. It bounds the weights of the policy's gradient, too."""
    clip_c: Positive = 1.0
    """Largest weight with which a later error reaches the step before. Less is steadier, and slower."""


def impala_loss(params, batch, *, policy, critic, config):
    """(loss, metrics) of a rollout with leaves (T, B, ...)."""
    distribution = policy.apply(params["actor"], batch.obs)
    value = critic.apply(params["critic"], batch.obs)[..., 0]  # (T, B)
    log_prob = distribution.log_prob(batch.action)
    # What V-trace gives are constants: no gradient flows into them.
    fixed, baseline, now = jax.lax.stop_gradient((params["critic"], value, log_prob))
    next_value = critic.apply(fixed, batch.final_obs)[..., 0]
    log_ratio = now - batch.log_prob  # 0 where the policy is still the one that acted
    correct = partial(vtrace, gamma=config.gamma, lam=config.vtrace_lambda, clip_rho=config.clip_rho,
                      clip_c=config.clip_c, clip_advantage=config.clip_rho)
    target, advantage = jax.vmap(correct, 1, 1)(batch.reward, baseline, next_value, batch.terminated, batch.done,
                                                log_ratio)
    policy_loss = -(log_prob * advantage).mean()
    value_loss = 0.5 * jnp.square(value - target).mean()
    entropy = distribution.entropy().mean()
    loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    kl = (jnp.exp(log_ratio) - 1.0 - log_ratio).mean()  # how far the policy has moved since it acted
    return loss, dict(loss=loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, kl=kl)


class IMPALA(ActorCritic):
    Config = IMPALAConfig

    def learner(self, policy, critic):
        return OneStepLearner(policy, critic, self.spec, self.config, impala_loss)

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(
                    obs=obs, action=act.action, log_prob=act.log_prob, reward=step.reward,
                    terminated=step.terminated, done=step.done, final_obs=step.final_obs,
                )
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
