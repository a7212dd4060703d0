"""What a fault costs: seconds until a run is where it was, and the steps that it makes again, per kind of fault.

python -m benchmarks.recovery [--backends [threads] [ray]] [--seeds 3]

Prints the table of docs/reliability.md: medians over the seeds. PPO on CartPole with two actors under
single-learner-coarse, with a checkpoint after every second pass of the loop; the fault is in the middle of the run.
The seconds count from the loss until the first update after it, with whatever is compiled again for that. A step that
raises or hangs is made again by a fresh environment, and its seconds are those of the step; its time-out is one second.
"""

import argparse
import logging
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np

from msrl import Deployment, envs, running
from msrl.envs.host import HostEnv
from msrl.jobs import prepare
from msrl.runtime.display import Display, State

SETTINGS = dict(total_steps=150_000, shards=2, eval_episodes=1, checkpoint_every=2)
PASS = 10  # of the loop that trains: as its victim begins it, what is lost is lost
LOSSES = (f"kill:actor@{PASS}", f"kill:learner@{PASS}")
ENVS, STEPS, TIMEOUT = 32, 1200, 1.0  # of a shard; until one goes wrong; seconds that one may take


class Watch(Display):
    """When a run was lost, when it was heard of again, and how many steps it was left with."""

    def __init__(self) -> None:
        self.lost: float | None = None
        self.seconds, self.kept = 0.0, 0

    def say(self, *lines: str) -> None:
        if any(line.startswith("lost") for line in lines):
            self.lost = time.perf_counter()

    def update(self, state: State) -> None:
        if self.lost is not None:
            self.seconds, self.kept = time.perf_counter() - self.lost, state.before
            self.lost = None


def loss(backend: str, fault: str, seed: int) -> tuple[float, float]:
    """(seconds, steps made again)"""
    watch = Watch()
    job = prepare("ppo", "CartPole-v1", seed=seed, chaos=fault, **SETTINGS, deployment=Deployment(
        "single-learner-coarse", backend, actors=2))
    with TemporaryDirectory() as folder:
        result = running.run(job, Path(folder) / "run", watch)
    assert result.restarts == 1 and result.status == "finished"
    return watch.seconds, (PASS - 1) * job.config.num_envs * job.config.rollout - watch.kept


def step(name: str, kind: str, seed: int) -> tuple[float, float]:
    """(seconds, steps made again): the step that goes wrong, of a shard's environments. What a fresh environment plays
    again was lost by nobody."""
    env = envs.make(name)
    assert isinstance(env, HostEnv)
    env.timeout, env.exact = TIMEOUT, False  # as in fast mode
    env.trouble([(kind, STEPS)])
    state, _ = env.reset(env.init(jax.random.key(seed), ENVS), jax.random.key(seed))
    draw, taken = np.random.default_rng(seed), 0.0
    for _ in range(STEPS):
        action, began = draw.integers(0, 2, ENVS), time.perf_counter()
        env.step(state, action, jax.random.key(0))
        taken = time.perf_counter() - began
    assert state.failures == 1
    env.close()
    return taken, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="*", default=["threads", "ray"], choices=["threads", "ray"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    running.BACK_OFF = 0.0  # a pause of our own making is no cost of the fault
    logging.getLogger("msrl.envs").setLevel(logging.ERROR)
    print("| fault | where | seconds | steps made again |\n|---|---|---|---|")
    for backend in options.backends:
        for fault in LOSSES:
            row(fault, backend, [loss(backend, fault, seed) for seed in range(options.seeds)])
    for env in ("gymnasium:CartPole-v1", "envpool:CartPole-v1"):
        for kind in ("raise", "hang"):
            row(f"{kind}:env@{STEPS}", env.partition(":")[0], [step(env, kind, seed) for seed in range(options.seeds)])


def row(fault: str, where: str, found: list[tuple[float, float]]) -> None:
    seconds, steps = (statistics.median(each) for each in zip(*found, strict=True))
    print(f"| `{fault}` | {where} | {seconds:.2f} | {steps:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
