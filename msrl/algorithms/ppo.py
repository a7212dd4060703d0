"""PPO: proximal policy optimisation (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).

Departures from the paper: policy and value are two networks, advantages are normalised within each minibatch, the
value loss may be clipped like the policy's, and actions of a bounded Box are scaled from [-1, 1]. A truncated episode
bootstraps from the value of its last observation.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax

from msrl.algorithms.actor_critic import ActorCritic, ActorCriticLearner
from msrl.algorithms.minibatches import check_minibatches, learn_in_minibatches
from msrl.algorithms.networks import Network, Policy, clip_each
from msrl.api import Config, EnvSpec, Record
from msrl.api.ranges import Count, NotNegative, Portion, Positive, Widths
from msrl.rl import clipped_surrogate, clipped_value_loss, gae


@dataclass(frozen=True)
class PPOConfig(Config):
    total_steps: Count = 300_000
    """Environment steps to train for."""
    num_envs: Count = 64
    """Environments that step side by side."""
    rollout: Count = 128
    """Steps of each environment between two updates."""
    epochs: Count = 4
    """Times that each step is learnt from."""
    minibatches: Count = 4
    """Parts that the steps are divided into at random in each epoch, with one gradient step each. What does not divide
    evenly is left out, at random."""
    hidden: Widths = (64, 64)
    """Widths of the hidden layers, in both networks."""
    learning_rate: NotNegative = 2.5e-3
    """Step size of Adam. High, because a minibatch is large; with fewer environments, take less."""
    anneal: bool = True
    """Whether the learning rate falls to 0 over the training."""
    gamma: Portion = 0.99
    """Discount per step."""
    gae_lambda: Portion = 0.98
    """How far advantages look ahead: 0 is one step, 1 the whole episode."""
    clip: Positive = 0.2
    """How far an action's probability may move, as a ratio, before it earns nothing more."""
    clip_value: bool = False
    """Whether the value is held to `clip` of its old one in the same way."""
    value_coef: NotNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NotNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: Positive = 0.5
    """Norm to which the gradients of each network are cut."""
    normalise_obs: bool = False
    """Whether observations are brought to mean 0 and variance 1, as seen so far."""
    normalise_reward: bool = False
    """Whether rewards are divided by the standard deviation of the discounted return, as seen so far."""

    def check(self) -> None:
        check_minibatches(self.num_envs * self.rollout, self.minibatches)

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.rollout))


def ppo_loss(params, rows, *, policy, critic, config):
    """(loss, metrics) of a minibatch: `rows` has leaves (M, ...)."""
    distribution = policy.apply(params["actor"], rows.obs)
    value = critic.apply(params["critic"], rows.obs)[..., 0]  # (M,)
    log_prob = distribution.log_prob(rows.action)
    advantage = (rows.advantage - rows.advantage.mean()) / (rows.advantage.std() + 1e-8)
    policy_loss = clipped_surrogate(log_prob, rows.log_prob, advantage, clip=config.clip).mean()
    if config.clip_value:
        value_loss = clipped_value_loss(value, rows.value, rows.target, clip=config.clip).mean()
    else:
        value_loss = 0.5 * jnp.square(value - rows.target).mean()
    entropy = distribution.entropy().mean()
    loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    log_ratio = log_prob - rows.log_prob
    kl = (jnp.exp(log_ratio) - 1.0 - log_ratio).mean()  # never negative, unlike the mean of -log_ratio
    return loss, dict(loss=loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, kl=kl)


class PPOLearner(ActorCriticLearner):
    def __init__(self, policy: Policy, critic: Network, spec: EnvSpec, config: PPOConfig):
        super().__init__(policy, critic, spec, config)
        steps = config.updates * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, 0.0, steps) if config.anneal else config.learning_rate
        self.optimiser = optax.chain(clip_each(config.max_grad_norm), optax.adam(rate, eps=1e-5))
        self.loss = partial(ppo_loss, policy=policy, critic=critic, config=config)

    def learn(self, state, key, batch):
        config, rows = self.config, self.rows(state.params, batch)
        apply = partial(self.apply_gradients, self.optimiser)
        return learn_in_minibatches(state, key, rows, loss=self.loss, apply=apply, epochs=config.epochs,
                                    minibatches=config.minibatches)

    def rows(self, params, batch):
        """What the epochs learn from, leaves (T*B, ...), from a rollout with leaves (T, B, ...)."""
        both = jnp.stack([batch.obs, batch.final_obs])  # (2, T, B, ...)
        value, next_value = self.critic.apply(params["critic"], both)[..., 0]
        advantages = jax.vmap(partial(gae, gamma=self.config.gamma, lam=self.config.gae_lambda), 1, 1)
        advantage = advantages(batch.reward, value, next_value, batch.terminated, batch.done)
        rows = Record(obs=batch.obs, action=batch.action, log_prob=batch.log_prob, value=value, advantage=advantage,
                      target=advantage + value)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


class PPO(ActorCritic):
    Config = PPOConfig

    def learner(self, policy, critic):
        return PPOLearner(policy, critic, self.spec, self.config)

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
