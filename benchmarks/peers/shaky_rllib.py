"""RLlib's PPO on the CartPole that crashes and stalls: `python -m benchmarks.peers.shaky_rllib`.

Two processes step the environments and are started again when they fail, as RLlib recommends it for such environments.
Training stops as soon as the mean return is 450, or after MOST steps. The last line of the output is JSON: the return,
the steps and RLlib's version.
"""

import json

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

BAR, MOST = 450.0, 600_000
ENVS, RUNNERS = 8, 2


def make(_: object) -> gymnasium.Env:
    return gymnasium.make("benchmarks.peers.shaky:ShakyCartPole-v0")


def main() -> None:
    ray.init(num_cpus=RUNNERS + 1, include_dashboard=False, log_to_driver=False)
    register_env("shaky", make)
    algorithm = (
        PPOConfig()
        .environment("shaky", disable_env_checking=True)
        .env_runners(num_env_runners=RUNNERS, num_envs_per_env_runner=ENVS // RUNNERS, sample_timeout_s=10)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=10, lr=3e-4, gamma=0.99)
        .fault_tolerance(restart_failed_env_runners=True, restart_failed_sub_environments=True)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh",
                                                   vf_share_layers=False))
        .build_algo())
    mean = steps = 0.0
    while mean < BAR and steps < MOST:
        told = algorithm.train()["env_runners"]
        mean, steps = told.get("episode_return_mean", 0.0), told.get("num_env_steps_sampled_lifetime", steps)
    print(json.dumps({"mean": float(mean), "steps": int(steps), "version": ray.__version__}), flush=True)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
