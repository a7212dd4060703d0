"""The learning bars: does each algorithm reach what is expected of it, on three seeds, wherever it runs?

python -m benchmarks.learn [NAME ...] [--seeds 3] [--spread local coarse fine multi devices async]

Prints a row per task, spread and seed, and writes learn.json. Exits 1 if a seed misses its bar. `devices` needs four of
them: XLA_FLAGS=--xla_force_host_platform_device_count=4 PJRT_NPROC=8.
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
from msrl import Deployment, algorithms
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
    spreads: tuple[str, ...] = ("local", "coarse", "fine", "multi", "devices")
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
        normalise_obs=True, normalise_reward=True), ("local", "coarse", "fine", "multi")),
    "a2c-cartpole": Task("a2c", "CartPole-v1", 475, 500_000),
    "a3c-cartpole": Task("a3c", "CartPole-v1", 475, 500_000, spreads=("local", "async")),
    "impala-cartpole": Task("impala", "CartPole-v1", 475, 500_000, spreads=("local", "async")),
    "dqn-cartpole": Task("dqn", "CartPole-v1", 475, 200_000),
    "sac-pendulum": Task("sac", "Pendulum-v1", -200, 40_000),
    "mappo-spread": Task("mappo", "simple_spread", 0.8, 2_000_000, score=spread_gap),
}

SPREADS = {
    "local": (Deployment(), {}),
    "coarse": (Deployment("single-learner-coarse", "threads", actors=2), dict(shards=2)),
    "fine": (Deployment("single-learner-fine", "threads", actors=2), dict(shards=2)),
    "multi": (Deployment("multi-learner", "ray", learners=2), dict(shards=2, learner_shards=2)),
    "devices": (Deployment("device-only", learners=4), dict(shards=4, learner_shards=4)),
}
ASYNC = {
    "a3c": (Deployment("central-async", learners=4), dict(shards=4, learner_shards=4)),
    "impala": (Deployment("single-learner-coarse-async", actors=4), dict(shards=4)),
}


def compile_task(task: Task, seed: int, spread: str) -> Program:
    deployment, settings = ASYNC[task.algorithm] if spread == "async" else SPREADS[spread]
    settings = {**settings, **task.config}
    shards = settings.get("shards", 1)
    envs = settings.get("num_envs", algorithms.load(task.algorithm).Config().num_envs)
    if envs % shards:  # an environment for each shard at least
        settings["num_envs"] = shards
    return msrl.compile(task.algorithm, task.env, seed=seed, total_steps=task.steps, deployment=deployment, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(TASKS)}; all if none is given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--spread", nargs="+", choices=[*SPREADS, "async"], default=["local", "async"])
    options = parser.parse_args()
    rows, missed = [], 0
    cases = [(name, spread, seed) for spread in options.spread for name in options.names or TASKS
             if spread in TASKS[name].spreads for seed in range(options.seeds)]
    for name, spread, seed in cases:
        task, began = TASKS[name], time.perf_counter()
        program = compile_task(task, seed, spread)
        for _ in program.run():
            pass
        trained = time.perf_counter() - began
        score = task.score(program)
        program.env.close()
        missed += score < task.bar
        rows.append(dict(task=name, spread=spread, seed=seed, score=score, bar=task.bar, env_steps=program.env_steps,
                         seconds=round(trained, 1)))
        print(f"{name:16s} {spread:8s} seed {seed}: {score:9.2f} (bar {task.bar}), {program.env_steps} steps in "
              f"{trained:.0f} s{'' if score >= task.bar else '   MISSED'}", flush=True)
    Path("learn.json").write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
