"""MyAlgo: an advantage actor-critic to start from. It trains as it is; change it piece by piece.

An algorithm is an Actor (what to do), a Learner (how to get better), and a Trainer whose `train` is the loop that ties
them together. Actors and learners are pure functions of their arguments, written in JAX.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from msrl.api import Actor, Agent, Config, Discrete, Learner, LearnerState, Record, Trainer
from msrl.api.ranges import Count, NotNegative, Portion, Widths
from msrl.buffers import Rollout
from msrl.errors import EnvError
from msrl.rl import Categorical, gae


@dataclass(frozen=True)
class MyAlgoConfig(Config):
    """Every field is a flag of `msrl train`, the text below it the flag's help, and its type what it may be."""

    total_steps: Count = 300_000
    """Environment steps to train for."""
    num_envs: Count = 8
    """Environments that step side by side."""
    rollout: Count = 128
    """Steps of each environment between two updates."""
    hidden: Widths = (64, 64)
    """Widths of the hidden layers."""
    learning_rate: NotNegative = 3e-3
    """Step size of Adam at the start; it falls to 0."""
    gamma: Portion = 0.99
    """Discount per step."""
    gae_lambda: Portion = 0.98
    """How far advantages look ahead: 0 is one step, 1 the whole episode."""
    entropy_coef: NotNegative = 0.01
    """Weight of the bonus for being undecided."""

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.rollout))


class Network(nn.Module):
    """Observations (..., O) to `outputs` numbers each."""

    hidden: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, obs):
        for width in self.hidden:
            obs = nn.tanh(nn.Dense(width)(obs))
        return nn.Dense(self.outputs)(obs)


class MyAlgoActor(Actor):
    """`act` is for training, `exploit` for evaluation. Both get observations of B environments, (B, O), and return a
    Record with at least an `action`."""

    def __init__(self, policy):
        self.policy = policy

    def act(self, weights, key, obs):
        return Record(action=Categorical.from_logits(self.policy.apply(weights["policy"], obs)).sample(key))

    def exploit(self, weights, key, obs):
        return Record(action=Categorical.from_logits(self.policy.apply(weights["policy"], obs)).mode())


class MyAlgoLearner(Learner):
    def __init__(self, policy, value, spec, config):
        self.policy, self.value, self.spec, self.config = policy, value, spec, config
        rate = optax.linear_schedule(config.learning_rate, 0.0, config.updates)
        self.optimiser = optax.adam(rate)

    def init(self, key):
        obs = jnp.zeros((1, *self.spec.observation.shape))
        params = {"policy": self.policy.init(key, obs), "value": self.value.init(key, obs)}
        return LearnerState(params, self.optimiser.init(params))

    def loss(self, params, batch):
        """`batch` is a rollout: the fields that the loop inserted, each (T, B, ...)."""
        value = self.value.apply(params["value"], batch.obs)[..., 0]  # (T, B)
        # The true last observation of each step: a time limit is no end of the world, a terminal state is.
        following = self.value.apply(params["value"], batch.final_obs)[..., 0]
        advantages = jax.vmap(lambda *stream: gae(*stream, gamma=self.config.gamma, lam=self.config.gae_lambda), 1, 1)
        advantage = jax.lax.stop_gradient(advantages(batch.reward, value, following, batch.terminated, batch.done))
        choices = Categorical.from_logits(self.policy.apply(params["policy"], batch.obs))
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -(choices.log_prob(batch.action) * scaled).mean()
        value_loss = 0.5 * jnp.square(jax.lax.stop_gradient(advantage + value) - value).mean()
        entropy = choices.entropy().mean()
        loss = policy_loss + 0.5 * value_loss - self.config.entropy_coef * entropy
        return loss, dict(loss=loss, policy_loss=policy_loss, value_loss=value_loss, entropy=entropy)

    def learn(self, state, key, batch):
        """(new state, what `agent_learn` returns to the loop)."""
        grads, metrics = jax.grad(self.loss, has_aux=True)(state.params, batch)
        # The one place in which several learners come to agree, wherever they run.
        params, opt = self.apply_gradients(self.optimiser, state.params, state.opt, grads)
        return state.replace(params=params, opt=opt), metrics


class MyAlgo(Trainer):
    Config = MyAlgoConfig

    def __init__(self, config, spec):
        super().__init__(config, spec)
        if not isinstance(spec.action, Discrete):
            raise EnvError(f"MyAlgo cannot act in {spec.id}.", why=f"Its actions are {spec.action}.",
                           instead="Choose an environment with Discrete actions.")

    def agent(self):
        policy, value = Network(self.config.hidden, self.spec.action.n), Network(self.config.hidden, 1)
        return Agent(MyAlgoActor(policy), MyAlgoLearner(policy, value, self.spec, self.config))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    def train(self, msrl):
        """The loop is read by a compiler, which cuts it up and compiles the pieces. It may use

        - `for ... in range(...)`, `while`, `if`/`else`, assignments, pure expressions (`self.config` included), and
          methods of this class;
        - `msrl.env_reset()`, `msrl.env_step(action)`: the next observations, rewards and ends of episodes;
        - `msrl.agent_act(obs)`, `msrl.agent_learn(batch)`: the actor and the learner above;
        - `msrl.replay_buffer_insert(field=value, ...)`, `msrl.replay_buffer_sample()`: the buffers above;
        - `msrl.report(metrics)`: what is logged.

        `msrl train my_algo.py:MyAlgo --env CartPole-v1 --total-steps 1000 --eager` runs it as plain Python, in which
        `print`, `breakpoint()` and debuggers work; compiled, a loop has no place for them.
        """
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(
                    obs=obs, action=act.action, reward=step.reward, terminated=step.terminated, done=step.done,
                    final_obs=step.final_obs,
                )
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))
