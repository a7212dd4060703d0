"""SB3's PPO until CartPole is solved, in a process of its own: `python -m benchmarks.peers.solve SEED [tuned]`.

The settings are its defaults or, if tuned, those that RL Baselines3 Zoo gives for CartPole; torch has one thread, as
networks are small. Training stops as soon as the last 20 episodes have a mean of 475, and the policy plays 100; if
these miss it, it trains on. The last line of the output is JSON: the return, the steps, and the seconds that playing
took, which the one who asks may take off the time of the whole process.
"""

import json
import sys
import time

import torch
from stable_baselines3 import PPO, __version__
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

BAR, STEPS, MOST = 475.0, 100_000, 400_000


class Enough(BaseCallback):
    """Stops where the last episodes are good enough."""

    def _on_step(self) -> bool:
        last = [each["r"] for each in list(self.model.ep_info_buffer or ())[-20:]]
        return len(last) < 20 or sum(last) / len(last) < BAR


def falling(start: float):
    return lambda left: start * max(left, 0.05)


def main() -> None:
    seed = int(sys.argv[1])
    torch.set_num_threads(1)
    tuned = dict(n_steps=32, batch_size=256, n_epochs=20, gae_lambda=0.8, gamma=0.98, ent_coef=0.0,
                 learning_rate=falling(1e-3), clip_range=falling(0.2)) if "tuned" in sys.argv else {}
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8 if tuned else 1, seed=seed), device="cpu", seed=seed,
                **tuned)
    played, mean = 0.0, 0.0
    while mean < BAR and model.num_timesteps < MOST:
        model.learn(STEPS, callback=Enough(), reset_num_timesteps=False)
        began = time.perf_counter()
        mean, _ = evaluate_policy(model, make_vec_env("CartPole-v1", n_envs=8, seed=seed + 1000), n_eval_episodes=100)
        played += time.perf_counter() - began
    print(json.dumps({"mean": float(mean), "steps": model.num_timesteps, "played": played, "version": __version__}))


if __name__ == "__main__":
    main()
