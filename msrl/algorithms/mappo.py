"""MAPPO: multi-agent PPO (Yu et al., 2022, https://arxiv.org/abs/2103.01955).

All agents of a team share one policy, which sees an agent's own observation; one critic sees the observations of all
agents side by side and gives a value for each of the team. There is one team, unless `agent_shards` says otherwise.
Departures from the paper: values are not normalised, the networks have no memory, and a truncated episode bootstraps
from the value of its last observations.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax

from msrl.algorithms.minibatches import check_minibatches, learn_in_minibatches
from msrl.algorithms.networks import Network, Policy, clip_each, encode
from msrl.algorithms.requirements import bounded, require_action, require_agents, require_vector_observations
from msrl.api import Actor, Agent, Box, Config, Discrete, EnvSpec, Learner, LearnerState, MultiDiscrete, Record, Trainer
from msrl.api.ranges import Count, NotNegative, Portion, Positive, Widths
from msrl.buffers import Rollout
from msrl.envs.wrappers import ScaleActions
from msrl.rl import clipped_surrogate, clipped_value_loss, gae


@dataclass(frozen=True)
class MAPPOConfig(Config):
    total_steps: Count = 1_000_000
    """Environment steps to train for; one step moves all agents."""
    num_envs: Count = 64
    """Environments that step side by side."""
    rollout: Count = 100
    """Steps of each environment between two updates."""
    epochs: Count = 10
    """Times that each step is learnt from."""
    minibatches: Count = 4
    """Parts that the steps are divided into at random in each epoch. What does not divide evenly is left out."""
    hidden: Widths = (64, 64)
    """Widths of the hidden layers, in both networks."""
    agent_id: bool = False
    """Whether the policy is told which agent of its team it acts for (one-hot), so that they can behave unlike."""
    learning_rate: NotNegative = 7e-4
    """Step size of Adam."""
    gamma: Portion = 0.99
    """Discount per step."""
    gae_lambda: Portion = 0.95
    """How far advantages look ahead: 0 is one step, 1 the whole episode."""
    clip: Positive = 0.2
    """How far an action's probability may move, as a ratio, before it earns nothing more."""
    clip_value: bool = False
    """Whether the value is held to `clip` of its old one in the same way."""
    value_coef: NotNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NotNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: Positive = 10.0
    """Norm to which the gradients of each network are cut."""

    def check(self) -> None:
        check_minibatches(self.num_envs * self.rollout, self.minibatches)

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.rollout))


class Views:
    """What the policy and the critic are shown of the observations (..., N, *shape)."""

    def __init__(self, spec: EnvSpec, team: int, agent_id: bool):
        self.space, self.team, self.agent_id = spec.observation, team, agent_id
        ours, all_ = (jax.ShapeDtypeStruct((agents, *spec.observation.shape), spec.observation.dtype)
                      for agents in (team, len(spec.agents)))
        self.own_space = Box(jax.eval_shape(self.own, ours).shape[-1:])
        self.joint_space = Box(jax.eval_shape(self.joint, all_).shape)

    def own(self, obs):  # of a team of N: (..., N, F) or, with the agent's number, (..., N, F + N)
        features = encode(self.space, obs)
        if not self.agent_id:
            return features
        number = jnp.broadcast_to(jnp.eye(self.team), (*features.shape[:-1], self.team))
        return jnp.concatenate([features, number], axis=-1)

    def joint(self, obs):  # of all N: (..., N * F)
        features = encode(self.space, obs)
        return features.reshape(*features.shape[:-2], math.prod(features.shape[-2:]))


def mappo_loss(params, rows, *, policy, critic, config):
    """(loss, metrics) of a minibatch: every agent's step counts as one. `rows` has leaves (M, N, ...)."""
    distribution = policy.apply(params["actor"], rows.own)
    value = critic.apply(params["critic"], rows.joint).ravel()  # (M * N,)
    log_prob, old_log_prob = distribution.log_prob(rows.action).ravel(), rows.log_prob.ravel()
    advantage = rows.advantage.ravel()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = clipped_surrogate(log_prob, old_log_prob, advantage, clip=config.clip).mean()
    if config.clip_value:
        value_loss = clipped_value_loss(value, rows.value.ravel(), rows.target.ravel(), clip=config.clip).mean()
    else:
        value_loss = 0.5 * jnp.square(value - rows.target.ravel()).mean()
    entropy = distribution.entropy().mean()
    loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return loss, dict(loss=loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy)


class MAPPOActor(Actor):
    def __init__(self, policy: Policy, views: Views):
        self.policy, self.views = policy, views

    def act(self, weights, key, obs):
        action, log_prob = self.policy.apply(weights, self.views.own(obs)).sample_and_log_prob(key)
        return Record(action=action, log_prob=log_prob)  # (B, N, ...), (B, N)

    def exploit(self, weights, key, obs):
        return Record(action=self.policy.apply(weights, self.views.own(obs)).mode())


class MAPPOLearner(Learner):
    sees_all = ("everyone",)

    def __init__(self, policy: Policy, critic: Network, views: Views, config: MAPPOConfig):
        self.policy, self.critic, self.views, self.config = policy, critic, views, config
        self.optimiser = optax.chain(clip_each(config.max_grad_norm), optax.adam(config.learning_rate, eps=1e-5))
        self.loss = partial(mappo_loss, policy=policy, critic=critic, config=config)

    def init(self, key):
        actor, critic = jax.random.split(key)
        params = {"actor": self.policy.init(actor, jnp.zeros(self.views.own_space.shape)),
                  "critic": self.critic.init(critic, jnp.zeros(self.views.joint_space.shape))}
        return LearnerState(params, self.optimiser.init(params))

    def weights(self, state):
        return state.params["actor"]

    def learn(self, state, key, batch, everyone):
        config, rows = self.config, self.rows(state.params, batch, everyone)
        apply = partial(self.apply_gradients, self.optimiser)
        return learn_in_minibatches(state, key, rows, loss=self.loss, apply=apply, epochs=config.epochs,
                                    minibatches=config.minibatches)

    def rows(self, params, batch, everyone):
        """What the epochs learn from, leaves (T*B, ...), from rollouts with leaves (T, B, ...): our team's, all's."""
        joint = self.views.joint(everyone.obs)
        both = jnp.stack([joint, self.views.joint(everyone.final_obs)])  # (2, T, B, N * F)
        value, next_value = self.critic.apply(params["critic"], both)  # (T, B, N) each
        one = partial(gae, gamma=self.config.gamma, lam=self.config.gae_lambda)
        every = jax.vmap(jax.vmap(one, (1, 1, 1, None, None), 1), 1, 1)  # an episode ends for all its agents at once
        advantage = every(batch.reward, value, next_value, batch.terminated, batch.done)
        rows = Record(own=self.views.own(batch.obs), joint=joint, action=batch.action, log_prob=batch.log_prob,
                      value=value, advantage=advantage, target=advantage + value)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


class MAPPO(Trainer):
    Config = MAPPOConfig

    def __init__(self, config, spec):
        super().__init__(config, spec)
        require_agents("MAPPO", spec)
        require_vector_observations("MAPPO", spec)
        require_action("MAPPO", spec, Discrete, MultiDiscrete, Box)

    def agent(self):
        views = Views(self.spec, self.team, self.config.agent_id)
        policy = Policy(views.own_space, self.spec.action, self.config.hidden)
        critic = Network(views.joint_space, self.team, self.config.hidden)
        return Agent(MAPPOActor(policy, views), MAPPOLearner(policy, critic, views, self.config))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    @staticmethod
    def wrap(env, config):
        return ScaleActions(env) if isinstance(env.spec.action, Box) and bounded(env.spec.action) else env

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
            batch = msrl.replay_buffer_sample()
            msrl.report(msrl.agent_learn(batch, batch))
