"""What algorithms share that have a policy and a critic, two networks with nothing in common.

In: the specification of an environment; a configuration with `hidden`, `rollout`, `gamma`, `normalise_obs` and
`normalise_reward`. Out: the actor, learners, and a base class of the trainer. What always holds: parameters are
{"actor": ..., "critic": ...}, and an actor needs the first alone. The loss and the loop are the algorithm's own.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from msrl.algorithms.networks import Network, Policy, clip_each
from msrl.algorithms.requirements import bounded, require_action, require_one_agent
from msrl.api import Actor, Agent, Box, Config, Discrete, EnvSpec, Learner, LearnerState, MultiDiscrete, Record, Trainer
from msrl.api.ranges import Count, NotNegative, Portion, Positive, Widths
from msrl.buffers import Rollout
from msrl.envs.wrappers import NormaliseObs, NormaliseReward, ScaleActions


@dataclass(frozen=True)
class OneStepConfig(Config):
    """Of an algorithm that takes one step of RMSProp on each rollout."""

    total_steps: Count = 500_000
    """Environment steps to train for."""
    num_envs: Count = 32
    """Environments that step side by side."""
    rollout: Count = 8
    """Steps of each environment between two updates."""
    hidden: Widths = (64, 64)
    """Widths of the hidden layers, in both networks."""
    learning_rate: NotNegative = 4e-3
    """Step size of RMSProp. High, because losses are means; with fewer environments, take less."""
    anneal: bool = True
    """Whether the learning rate falls to 0 over the training."""
    decay: Portion = 0.99
    """How much of the mean square of the gradients RMSProp keeps at each update."""
    epsilon: NotNegative = 1e-5
    """What RMSProp adds to that mean square, so that small gradients take small steps."""
    gamma: Portion = 0.99
    """Discount per step."""
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

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.rollout))


class PolicyActor(Actor):
    """Draws actions from the policy, and says how likely each was."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def act(self, weights, key, obs):
        action, log_prob = self.policy.apply(weights, obs).sample_and_log_prob(key)
        return Record(action=action, log_prob=log_prob)

    def exploit(self, weights, key, obs):
        return Record(action=self.policy.apply(weights, obs).mode())


class ActorCriticLearner(Learner):
    """One optimiser, which a subclass makes, for the parameters of both networks."""

    optimiser: optax.GradientTransformation

    def __init__(self, policy: Policy, critic: Network, spec: EnvSpec, config: Any):
        self.policy, self.critic, self.spec, self.config = policy, critic, spec, config

    def init(self, key):
        actor, critic = jax.random.split(key)
        obs = jnp.zeros(self.spec.batch(self.spec.observation, 1), self.spec.observation.dtype)
        params = {"actor": self.policy.init(actor, obs), "critic": self.critic.init(critic, obs)}
        return LearnerState(params, self.optimiser.init(params))

    def weights(self, state):
        return state.params["actor"]


class OneStepLearner(ActorCriticLearner):
    """One step of RMSProp for each rollout, on all of it. The configuration has `learning_rate`, `anneal`, `updates`,
    `decay`, `epsilon` and `max_grad_norm`; `loss(params, batch, policy=, critic=, config=)` gives (loss, metrics)."""

    def __init__(self, policy: Policy, critic: Network, spec: EnvSpec, config: Any, loss: Callable):
        super().__init__(policy, critic, spec, config)
        rate = config.learning_rate
        rate = optax.linear_schedule(rate, 0.0, config.updates) if config.anneal else rate
        rmsprop = optax.rmsprop(rate, decay=config.decay, eps=config.epsilon)
        self.optimiser = optax.chain(clip_each(config.max_grad_norm), rmsprop)
        self.loss = partial(loss, policy=policy, critic=critic, config=config)

    def learn(self, state, key, batch):
        grads, metrics = jax.grad(self.loss, has_aux=True)(state.params, batch)
        params, opt = self.apply_gradients(self.optimiser, state.params, state.opt, grads)
        return state.replace(params=params, opt=opt), metrics


class ActorCritic(Trainer):
    """For one agent and any actions: learns from rollouts."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        require_one_agent(type(self).__name__, spec)
        require_action(type(self).__name__, spec, Discrete, MultiDiscrete, Box)

    @abstractmethod
    def learner(self, policy: Policy, critic: Network) -> ActorCriticLearner:
        """What learns the two networks."""

    def agent(self):
        policy = Policy(self.spec.observation, self.spec.action, self.config.hidden)
        critic = Network(self.spec.observation, 1, self.config.hidden)
        return Agent(PolicyActor(policy), self.learner(policy, critic))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    @staticmethod
    def wrap(env, config):
        if isinstance(env.spec.action, Box) and bounded(env.spec.action):
            env = ScaleActions(env)
        env = NormaliseObs(env) if config.normalise_obs else env
        return NormaliseReward(env, config.gamma) if config.normalise_reward else env
