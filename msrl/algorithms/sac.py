"""SAC: soft actor-critic (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905), with the temperature tuned on the
fly.

Departures from the paper: the warm-up acts uniformly at random, and the logarithm of the standard deviation is clipped.
Actions are scaled from [-1, 1] to the space's bounds. A truncated episode bootstraps from its last observation.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from msrl.algorithms import requirements
from msrl.algorithms.networks import Network, dense, encode
from msrl.algorithms.warmup import ReplayConfig
from msrl.api import Actor, Agent, Box, Learner, LearnerState, Record, Space, Trainer
from msrl.api.ranges import Count, Natural, NotNegative, Portion, Positive, Widths
from msrl.buffers import Replay
from msrl.envs.wrappers import ScaleActions
from msrl.rl import TanhNormal, polyak

_LOG_STD = (-5.0, 2.0)  # beyond this, samples are the mean to float32's eye, or nothing but -1 and 1


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    total_steps: Count = 40_000
    """Environment steps to train for, warm-up included."""
    num_envs: Count = 1
    """Environments that step side by side. There is one learning per step of all of them."""
    warmup: Natural = 1_000
    """Environment steps with random actions before the first learning."""
    capacity: Count = 100_000
    """Transitions that the replay buffer keeps."""
    batch_size: Count = 128
    """Transitions per learning."""
    hidden: Widths = (128, 128)
    """Widths of the hidden layers, in all networks."""
    actor_learning_rate: NotNegative = 1e-3
    """Step size of Adam for the policy."""
    critic_learning_rate: NotNegative = 1e-3
    """Step size of Adam for the critics."""
    alpha_learning_rate: NotNegative = 1e-3
    """Step size of Adam for the logarithm of the temperature."""
    initial_alpha: Positive = 1.0
    """Temperature to begin with: what a nat of entropy is worth in reward."""
    target_entropy: float = -1.0
    """Entropy per entry of the action that the temperature is tuned to."""
    gamma: Portion = 0.99
    """Discount per step."""
    tau: Portion = 0.005
    """How far the target critics move towards the critics at each learning."""


class Critics(nn.Module):
    """Two estimates of an action's value, with weights of their own: (2, ...)."""

    space: Space
    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs, action):
        both = []
        for _ in range(2):
            x = jnp.concatenate([encode(self.space, obs), action], axis=-1)
            for width in self.hidden:
                x = nn.relu(dense(width, 2.0**0.5)(x))
            both.append(dense(1, 1.0)(x)[..., 0])
        return jnp.stack(both)


def critic_loss(critic_params, target_params, alpha, next_action, next_log_prob, batch, *, critics, config):
    """Mean squared error of both critics: the target is the worse of the two target critics, plus the entropy."""
    next_value = critics.apply(target_params, batch.next_obs, next_action).min(axis=0) - alpha * next_log_prob
    target = jax.lax.stop_gradient(batch.reward + config.gamma * (1.0 - batch.terminated) * next_value)  # (M,)
    q = critics.apply(critic_params, batch.obs, batch.action)  # (2, M)
    return 0.5 * jnp.square(q - target).mean(axis=1).sum(), q.mean()


def actor_loss(actor_params, critic_params, alpha, key, batch, *, actor, critics):
    """What the policy's own actions cost: their log-probability, weighted, less their value."""
    action, log_prob = actor.distribution(actor_params, batch.obs).sample_and_log_prob(key)
    q = critics.apply(critic_params, batch.obs, action).min(axis=0)
    return (alpha * log_prob - q).mean(), -log_prob.mean()


def alpha_loss(log_alpha, entropy, *, target):
    """Falls as the temperature rises where the entropy is below its target, and the other way round."""
    return log_alpha * jax.lax.stop_gradient(entropy - target)


class SACActor(Actor):
    def __init__(self, network: Network):
        self.network = network

    def distribution(self, weights, obs) -> TanhNormal:
        mean, log_std = jnp.split(self.network.apply(weights, obs), 2, axis=-1)
        return TanhNormal(mean, jnp.clip(log_std, *_LOG_STD))

    def act(self, weights, key, obs, random):
        policy, uniform = jax.random.split(key)
        action = self.distribution(weights, obs).sample(policy)  # (B, d)
        anything = jax.random.uniform(uniform, action.shape, minval=-1.0, maxval=1.0)
        return Record(action=jnp.where(random, anything, action))

    def exploit(self, weights, key, obs):
        return Record(action=self.distribution(weights, obs).mode())


class SACLearner(Learner):
    def __init__(self, actor: SACActor, critics: Critics, obs, action, config: SACConfig):
        self.actor, self.critics, self.obs, self.action, self.config = actor, critics, obs, action, config
        self.target_entropy = config.target_entropy * action.shape[-1]
        rates = {"actor": config.actor_learning_rate, "critic": config.critic_learning_rate,
                 "log_alpha": config.alpha_learning_rate}
        self.optimisers = {name: optax.adam(rate) for name, rate in rates.items()}

    def init(self, key):
        actor, critic = jax.random.split(key)
        obs, action = jnp.zeros(self.obs.shape, self.obs.dtype), jnp.zeros(self.action.shape, self.action.dtype)
        params = {"actor": self.actor.network.init(actor, obs), "critic": self.critics.init(critic, obs, action),
                  "log_alpha": jnp.log(jnp.float32(self.config.initial_alpha))}
        opt = {name: optimiser.init(params[name]) for name, optimiser in self.optimisers.items()}
        return LearnerState(params, opt, {"target": params["critic"]})

    def weights(self, state):
        return state.params["actor"]

    def learn(self, state, key, batch):
        params, opt = dict(state.params), dict(state.opt)
        now, later = jax.random.split(key)
        alpha = jnp.exp(params["log_alpha"])

        def update(name, grads):
            optimiser = self.optimisers[name]
            params[name], opt[name] = self.apply_gradients(optimiser, params[name], opt[name], grads)

        next_action, next_log_prob = self.actor.distribution(params["actor"], batch.next_obs).sample_and_log_prob(later)
        (critic, q), grads = jax.value_and_grad(critic_loss, has_aux=True)(
            params["critic"], state.extra["target"], alpha, next_action, next_log_prob, batch, critics=self.critics,
            config=self.config)
        update("critic", grads)
        (actor, entropy), grads = jax.value_and_grad(actor_loss, has_aux=True)(
            params["actor"], params["critic"], alpha, now, batch, actor=self.actor, critics=self.critics)
        update("actor", grads)
        update("log_alpha", jax.grad(alpha_loss)(params["log_alpha"], entropy, target=self.target_entropy))
        target = polyak(state.extra["target"], params["critic"], tau=self.config.tau)
        metrics = dict(critic_loss=critic, actor_loss=actor, alpha=alpha, entropy=entropy, q=q)
        return LearnerState(params, opt, {"target": target}), metrics


class SAC(Trainer):
    Config = SACConfig

    def __init__(self, config, spec):
        super().__init__(config, spec)
        requirements.require_one_agent("SAC", spec)
        requirements.require_vector_observations("SAC", spec)
        requirements.require_action("SAC", spec, Box)
        requirements.require_bounds("SAC", spec)

    def agent(self):
        space, size = self.spec.observation, self.spec.action.shape[0]
        actor = SACActor(Network(space, 2 * size, self.config.hidden, nn.relu))
        obs = jax.ShapeDtypeStruct(self.spec.batch(space, 1), space.dtype)
        action = jax.ShapeDtypeStruct((1, size), jnp.float32)
        return Agent(actor, SACLearner(actor, Critics(space, self.config.hidden), obs, action, self.config))

    def buffers(self):
        return {"replay": Replay(capacity=self.config.capacity, batch_size=self.config.batch_size)}

    @staticmethod
    def wrap(env, config):
        space = env.spec.action
        return ScaleActions(env) if isinstance(space, Box) and requirements.bounded(space) else env

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.warmup_iterations):
            act = msrl.agent_act(obs, True)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, terminated=step.terminated,
                                      next_obs=step.final_obs)
            obs = step.obs
        for _ in range(self.config.iterations):
            act = msrl.agent_act(obs, False)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, terminated=step.terminated,
                                      next_obs=step.final_obs)
            obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
