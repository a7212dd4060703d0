"""DQN: deep Q-learning (Mnih et al., 2015, https://doi.org/10.1038/nature14236), with double Q-learning (van Hasselt et
al., 2016, https://arxiv.org/abs/1509.06461) and duelling networks (Wang et al., 2016,
https://arxiv.org/abs/1511.06581) as options.

Departures from the papers: Adam in place of RMSProp, with a step size that falls to zero; gradients are cut by their
norm, and errors by a Huber loss; the target network can follow slowly instead of jumping. A truncated episode
bootstraps from its last observation.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from msrl.algorithms.networks import Torso, dense
from msrl.algorithms.requirements import require_action, require_one_agent
from msrl.algorithms.warmup import ReplayConfig
from msrl.api import Actor, Agent, Discrete, Learner, LearnerState, Record, Space, Trainer
from msrl.api.ranges import Count, Natural, NotNegative, Portion, Positive, Widths
from msrl.buffers import Replay
from msrl.rl import huber, linear, polyak, q_error


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    total_steps: Count = 200_000
    """Environment steps to train for, warm-up included."""
    num_envs: Count = 8
    """Environments that step side by side."""
    warmup: Natural = 2_000
    """Environment steps with random actions before the first learning."""
    capacity: Count = 100_000
    """Transitions that the replay buffer keeps."""
    batch_size: Count = 128
    """Transitions per learning."""
    train_every: Count = 1
    """Loop iterations (steps of all environments) between two learnings."""
    target_every: Count = 1
    """Learnings between two updates of the target network."""
    tau: Portion = 0.01
    """How far such an update goes: a small part at every learning, or 1, a copy, now and then."""
    double: bool = True
    """Whether the online network chooses the action whose target value is taken."""
    dueling: bool = False
    """Whether the network is split into a state's value and the actions' advantages."""
    hidden: Widths = (128, 128)
    """Widths of the hidden layers."""
    learning_rate: NotNegative = 1e-3
    """Step size of Adam."""
    anneal: bool = True
    """Whether the step size falls to zero over the training. With a constant one, a policy that is as good as can be
    may be lost again, and the last one counts."""
    gamma: Portion = 0.99
    """Discount per step."""
    huber_delta: Positive = 100.0
    """Size from which on an error counts linearly. With one far below the values' size, the network learns medians in
    place of means: what is usual beats what is costly, and the values diverge."""
    max_grad_norm: Positive = 10.0
    """Norm to which gradients are cut."""
    epsilon_start: Portion = 1.0
    """Probability of a random action after the warm-up."""
    epsilon_end: Portion = 0.05
    """The same at the end of the decay."""
    epsilon_fraction: Portion = 0.2
    """Part of the training over which it decays."""

    @property
    def epsilon_iterations(self) -> int:
        return max(1, round(self.epsilon_fraction * self.iterations))


class QNetwork(nn.Module):
    """Observation to the values of the actions: (..., actions)."""

    space: Space
    actions: int
    hidden: tuple[int, ...]
    dueling: bool

    @nn.compact
    def __call__(self, obs):
        features = Torso(self.space, self.hidden, nn.relu)(obs)
        if not self.dueling:
            return dense(self.actions, 1.0, "output")(features)
        advantage = dense(self.actions, 1.0, "advantage")(features)
        # Without the mean taken out, a constant could wander between the two.
        return dense(1, 1.0, "value")(features) + advantage - advantage.mean(axis=-1, keepdims=True)


def dqn_loss(params, target, batch, *, network, config):
    """(loss, metrics) of transitions with leaves (M, ...)."""
    q_tm1 = network.apply(params, batch.obs)  # (M, A)
    q_t = network.apply(target, batch.next_obs)
    selector_t = network.apply(params, batch.next_obs) if config.double else q_t
    discount_t = config.gamma * (1.0 - batch.terminated)
    error = jax.vmap(q_error)(q_tm1, batch.action, batch.reward, discount_t, q_t, selector_t)  # (M,)
    loss = huber(error, delta=config.huber_delta).mean()
    return loss, dict(loss=loss, q=q_tm1.mean(), error=jnp.abs(error).mean())


class DQNActor(Actor):
    def __init__(self, network: QNetwork):
        self.network = network

    def act(self, weights, key, obs, epsilon):
        greedy = self.exploit(weights, key, obs).action  # (B,)
        coin, choice = jax.random.split(key)
        random = jax.random.randint(choice, greedy.shape, 0, self.network.actions, jnp.int32)
        return Record(action=jnp.where(jax.random.uniform(coin, greedy.shape) < epsilon, random, greedy))

    def exploit(self, weights, key, obs):
        return Record(action=jnp.argmax(self.network.apply(weights, obs), axis=-1).astype(jnp.int32))


class DQNLearner(Learner):
    def __init__(self, network: QNetwork, obs: jax.ShapeDtypeStruct, config: DQNConfig):
        self.network, self.obs, self.config = network, obs, config
        clip = optax.clip_by_global_norm(config.max_grad_norm)
        learns = -(-config.iterations // config.train_every)
        rate = optax.linear_schedule(config.learning_rate, 0.0, learns) if config.anneal else config.learning_rate
        self.optimiser = optax.chain(clip, optax.adam(rate))
        self.loss = partial(dqn_loss, network=network, config=config)

    def init(self, key):
        params = self.network.init(key, jnp.zeros(self.obs.shape, self.obs.dtype))
        return LearnerState(params, self.optimiser.init(params), {"target": params, "learnt": jnp.int32(0)})

    def learn(self, state, key, batch):
        target, learnt = state.extra["target"], state.extra["learnt"] + 1
        grads, metrics = jax.grad(self.loss, has_aux=True)(state.params, target, batch)
        params, opt = self.apply_gradients(self.optimiser, state.params, state.opt, grads)
        tau = jnp.where(learnt % self.config.target_every == 0, self.config.tau, 0.0)
        extra = {"target": polyak(target, params, tau=tau), "learnt": learnt}
        return LearnerState(params, opt, extra), metrics


class DQN(Trainer):
    Config = DQNConfig

    def __init__(self, config, spec):
        super().__init__(config, spec)
        require_one_agent("DQN", spec)
        require_action("DQN", spec, Discrete)

    def agent(self):
        network = QNetwork(self.spec.observation, self.spec.action.n, self.config.hidden, self.config.dueling)
        obs = jax.ShapeDtypeStruct(self.spec.batch(self.spec.observation, 1), self.spec.observation.dtype)
        return Agent(DQNActor(network), DQNLearner(network, obs, self.config))

    def buffers(self):
        return {"replay": Replay(capacity=self.config.capacity, batch_size=self.config.batch_size)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.warmup_iterations):
            act = msrl.agent_act(obs, 1.0)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, terminated=step.terminated,
                                      next_obs=step.final_obs)
            obs = step.obs
        for i in range(self.config.iterations):
            epsilon = linear(i, start=self.config.epsilon_start, end=self.config.epsilon_end,
                             steps=self.config.epsilon_iterations)
            act = msrl.agent_act(obs, epsilon)
            step = msrl.env_step(act.action)
            msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, terminated=step.terminated,
                                      next_obs=step.final_obs)
            obs = step.obs
            if i % self.config.train_every == 0:
                msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
