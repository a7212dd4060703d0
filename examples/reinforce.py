"""An algorithm of one's own: REINFORCE with a baseline (Williams, 1992), in one file.

    python examples/reinforce.py            trains on CartPole for a few seconds
    python examples/reinforce.py 20000      the same for 20 000 environment steps

From the command line it is an algorithm like any other: `msrl train examples/reinforce.py:Reinforce --env
CartPole-v1`.
"""

import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

import msrl
from msrl.algorithms.networks import Network, Policy
from msrl.api import Actor, Agent, Config, Learner, LearnerState, Record, Trainer
from msrl.buffers import Rollout
from msrl.rl import discounted_returns


@dataclass(frozen=True)
class ReinforceConfig(Config):
    total_steps: int = 150_000
    """Environment steps to train for."""
    num_envs: int = 16
    """Environments that step side by side."""
    rollout: int = 64
    """Steps of each environment between two updates."""
    hidden: tuple[int, ...] = (32,)
    """Widths of the hidden layers, in both networks."""
    learning_rate: float = 5e-3
    """Step size of Adam."""
    gamma: float = 0.99
    """Discount per step."""

    @property
    def updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.rollout))


class ReinforceActor(Actor):
    def __init__(self, policy: Policy):
        self.policy = policy

    def act(self, weights, key, obs):
        return Record(action=self.policy.apply(weights, obs).sample(key))

    def exploit(self, weights, key, obs):
        return Record(action=self.policy.apply(weights, obs).mode())


class ReinforceLearner(Learner):
    def __init__(self, policy: Policy, baseline: Network, obs: jax.ShapeDtypeStruct, config: ReinforceConfig):
        self.policy, self.baseline, self.obs, self.config = policy, baseline, obs, config
        self.optimiser = optax.adam(config.learning_rate)

    def init(self, key):
        policy, baseline = jax.random.split(key)
        obs = jnp.zeros(self.obs.shape, self.obs.dtype)
        params = {"policy": self.policy.init(policy, obs), "baseline": self.baseline.init(baseline, obs)}
        return LearnerState(params, self.optimiser.init(params))

    def weights(self, state):
        return state.params["policy"]

    def learn(self, state, key, batch):
        grads, metrics = jax.grad(self.loss, has_aux=True)(state.params, batch)
        params, opt = self.apply_gradients(self.optimiser, state.params, state.opt, grads)
        return LearnerState(params, opt), metrics

    def loss(self, params, batch):
        """`batch` has leaves (T, B, ...). A rollout's end cuts episodes: the baseline stands for what is left."""
        value = self.baseline.apply(params["baseline"], batch.obs)[..., 0]  # (T, B)
        next_value = jax.lax.stop_gradient(self.baseline.apply(params["baseline"], batch.final_obs)[..., 0])
        returns = jax.vmap(lambda *stream: discounted_returns(*stream, gamma=self.config.gamma), 1, 1)(
            batch.reward, next_value, batch.terminated, batch.done)
        advantage = jax.lax.stop_gradient(returns - value)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -(self.policy.apply(params["policy"], batch.obs).log_prob(batch.action) * advantage).mean()
        baseline_loss = jnp.square(returns - value).mean()
        return policy_loss + baseline_loss, {"policy_loss": policy_loss, "baseline_loss": baseline_loss}


class Reinforce(Trainer):
    Config = ReinforceConfig

    def agent(self):
        policy = Policy(self.spec.observation, self.spec.action, self.config.hidden)
        baseline = Network(self.spec.observation, 1, self.config.hidden)
        obs = jax.ShapeDtypeStruct(self.spec.batch(self.spec.observation, 1), self.spec.observation.dtype)
        return Agent(ReinforceActor(policy), ReinforceLearner(policy, baseline, obs, self.config))

    def buffers(self):
        return {"rollout": Rollout(length=self.config.rollout)}

    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, reward=step.reward, done=step.done,
                                          terminated=step.terminated, final_obs=step.final_obs)
                obs = step.obs
            msrl.report(msrl.agent_learn(msrl.replay_buffer_sample()))


def main(total_steps: int = ReinforceConfig.total_steps) -> float:
    program = msrl.compile(Reinforce, "CartPole-v1", total_steps=total_steps)
    due = 0
    for update in program.run():
        if update.env_steps >= due and update.episodes:
            print(f"{update.env_steps:>8} steps, return {update.episode_return:6.1f}")
            due += max(1, total_steps // 10)
    found = float(program.evaluate(episodes=20)[0].returns.mean())
    print(f"mean return of 20 episodes with the mode of the policy: {found:.1f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
