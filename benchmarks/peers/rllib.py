"""RLlib with sizes of our choosing: one process that steps the environments and learns, without others to talk to.

`runners` gives the environments processes of their own.
"""

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


class Peer:
    version = ray.__version__

    def __init__(self, algorithm, quantum: int):
        self.algorithm, self.quantum = algorithm, quantum

    def run(self, steps: int) -> int:
        updates = max(1, steps // self.quantum)
        for _ in range(updates):
            self.algorithm.train()
        return updates * self.quantum

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def close(self) -> None:
        self.algorithm.stop()
        ray.shutdown()


def ppo(s: dict) -> Peer:
    """PPO: env, envs, rollout, epochs, minibatch (rows), hidden; runners: processes that step the environments."""
    runners = s.get("runners", 0)
    ray.init(num_cpus=max(2, runners), include_dashboard=False, log_to_driver=False)
    config = (
        PPOConfig()
        .environment(s["env"])
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=s["envs"] // max(1, runners),
                     rollout_fragment_length=s["rollout"])
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=s["envs"] * s["rollout"], minibatch_size=s["minibatch"],
                  num_epochs=s["epochs"])
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=s["hidden"], fcnet_activation="tanh",
                                                   vf_share_layers=False))
    )
    return Peer(config.build_algo(), s["envs"] * s["rollout"])
