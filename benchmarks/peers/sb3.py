"""Stable-Baselines3 with sizes of our choosing.

What SB3 would log is left out, which is to its advantage.
"""

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

NEVER = 10**9


class Peer:
    version = stable_baselines3.__version__

    def __init__(self, model, quantum: int):
        self.model, self.quantum = model, quantum

    def run(self, steps: int) -> int:
        before = self.model.num_timesteps
        self.model.learn(steps, log_interval=NEVER, reset_num_timesteps=False)
        return self.model.num_timesteps - before

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def close(self) -> None:
        self.model.env.close()


def ppo(s: dict) -> Peer:
    """PPO: env, envs, rollout, epochs, minibatch (rows), hidden; processes: environments in processes of their own."""
    kind = SubprocVecEnv if s.get("processes") else DummyVecEnv
    env = make_vec_env(s["env"], n_envs=s["envs"], seed=0, vec_env_cls=kind)
    model = stable_baselines3.PPO(
        "MlpPolicy", env, n_steps=s["rollout"], batch_size=s["minibatch"], n_epochs=s["epochs"], device="cpu",
        policy_kwargs=dict(net_arch=s["hidden"], activation_fn=torch.nn.Tanh), **s.get("more", {}))
    return Peer(model, s["envs"] * s["rollout"])


def dqn(s: dict) -> Peer:
    """DQN, one environment, one learning per step: env, batch, hidden, capacity, warmup, quantum."""
    model = stable_baselines3.DQN(
        "MlpPolicy", gymnasium.make(s["env"]), batch_size=s["batch"], buffer_size=s["capacity"], train_freq=1,
        gradient_steps=1, learning_starts=s["warmup"], exploration_initial_eps=0.05, exploration_final_eps=0.05,
        device="cpu", policy_kwargs=dict(net_arch=s["hidden"]))
    return Peer(model, s["quantum"])


def sac(s: dict) -> Peer:
    """SAC, one environment, one learning per step: env, batch, hidden, capacity, warmup, quantum."""
    model = stable_baselines3.SAC(
        "MlpPolicy", gymnasium.make(s["env"]), batch_size=s["batch"], buffer_size=s["capacity"], train_freq=1,
        gradient_steps=1, learning_starts=s["warmup"], device="cpu", policy_kwargs=dict(net_arch=s["hidden"]))
    return Peer(model, s["quantum"])
