"""The learning bars: does each algorithm reach what is expected of it, on three seeds?

python -m benchmarks.learn [NAME ...] [--seeds 3]

Prints a row per task and seed, and writes learn.json. Exits 1 if a seed misses its bar.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

import msrl
from benchmarks.spread import random_return, scripted_return
from msrl.engines.evaluation import evaluate
from msrl.envs import make
from msrl.pipeline import Program

EPISODES = 100


@dataclass(frozen=True)
class Task:
    algorithm: str
    env: str
    bar: float
    steps: int
    config: dict[str, Any] = field(default_factory=dict)
    score: Callable[[Program], float] = lambda program: float(program.evaluate(EPISODES)[0].returns.mean())


def spread_gap(program: Program) -> float:
    """The share of the distance from a random policy to a scripted one, all played in the mpe2 original."""
    env = make("pettingzoo:mpe2.simple_spread_v3")
    episodes = evaluate(env, program.world.agent.actor, program.per_seed("$weights")[0], jax.random.key(1), EPISODES)
    random, scripted = random_return(EPISODES), scripted_return(EPISODES)
    mean = float(np.mean(episodes.returns))
    print(f"    simple_spread in mpe2: random {random:.2f}, trained {mean:.2f}, scripted {scripted:.2f}")
    return (mean - random) / (scripted - random)


TASKS = {
    "ppo-cartpole": Task("ppo", "CartPole-v1", 475, 300_000),
    "ppo-acrobot": Task("ppo", "Acrobot-v1", -100, 1_000_000),
    "ppo-halfcheetah": Task("ppo", "envpool:HalfCheetah-v4", 1500, 1_000_000, dict(
        num_envs=64, rollout=64, epochs=10, minibatches=16, learning_rate=3e-4, gae_lambda=0.95, entropy_coef=0.0,
        normalise_obs=True, normalise_reward=True)),
    "a2c-cartpole": Task("a2c", "CartPole-v1", 475, 500_000),
    "a3c-cartpole": Task("a3c", "CartPole-v1", 475, 500_000),
    "impala-cartpole": Task("impala", "CartPole-v1", 475, 500_000),
    "dqn-cartpole": Task("dqn", "CartPole-v1", 475, 200_000),
    "sac-pendulum": Task("sac", "Pendulum-v1", -200, 40_000),
    "mappo-spread": Task("mappo", "simple_spread", 0.8, 2_000_000, score=spread_gap),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(TASKS)}; all if none is given")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    rows, missed = [], 0
    for name in options.names or TASKS:
        task = TASKS[name]
        for seed in range(options.seeds):
            began = time.perf_counter()
            program = msrl.compile(task.algorithm, task.env, seed=seed, total_steps=task.steps, **task.config)
            for _ in program.run():
                pass
            trained = time.perf_counter() - began
            score = task.score(program)
            program.env.close()
            missed += score < task.bar
            rows.append(dict(task=name, seed=seed, score=score, bar=task.bar, env_steps=program.env_steps,
                             seconds=round(trained, 1)))
            print(f"{name:16s} seed {seed}: {score:9.2f} (bar {task.bar}), {program.env_steps} steps in {trained:.0f} s"
                  f"{'' if score >= task.bar else '   MISSED'}", flush=True)
    Path("learn.json").write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
