"""What a fault costs: seconds until a run is where it was, and the steps that it makes again, per kind of fault.

python -m benchmarks.recovery [--backends threads ray] [--seeds 3]

Prints the table of docs/reliability.md: medians over the seeds. PPO on CartPole with two actors under
single-learner-coarse, with a checkpoint after every second pass of the loop; the fault is in the middle of the run.
The seconds count from the loss until the first update after it, with whatever is compiled again for that. A step that
raises or hangs is made again by a fresh environment, and its seconds are those of the step; its time-out is one second.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msrl import Deployment, running
from msrl.envs.supervised import Supervised
from msrl.jobs import prepare
from msrl.runtime.display import Display, State

SETTINGS = dict(total_steps=150_000, shards=2, eval_episodes=1, checkpoint_every=2, env_timeout=1.0)
LOSSES = ("kill:actor@10", "kill:learner@10")
STEPS = ("raise:env@1200", "hang:env@1200")


class Watch(Display):
    """When a run was lost, when it was heard of again, and how many steps it had made before and was left with."""

    def __init__(self) -> None:
        self.lost: float | None = None
        self.seconds, self.reached, self.steps = 0.0, 0, 0

    def say(self, *lines: str) -> None:
        if any(line.startswith("lost") for line in lines):
            self.lost = time.perf_counter()

    def update(self, state: State) -> None:
        if self.lost is not None:
            self.seconds, self.steps = time.perf_counter() - self.lost, max(0, self.reached - state.before)
            self.lost = None
        self.reached = state.steps


def loss(backend: str, fault: str, seed: int) -> tuple[float, float]:
    """(seconds, steps made again)"""
    watch = Watch()
    job = prepare("ppo", "CartPole-v1", seed=seed, chaos=fault, **SETTINGS, deployment=Deployment(
        "single-learner-coarse", backend, actors=2))
    with TemporaryDirectory() as folder:
        result = running.run(job, Path(folder) / "run", watch)
    assert result.restarts == 1 and result.status == "finished"
    return watch.seconds, watch.steps


@contextmanager
def timed() -> Iterator[list[float]]:
    """The seconds of steps that went wrong."""
    found: list[float] = []
    play = Supervised.play

    def watched(self, action):
        before, began = self.failures, time.perf_counter()
        step = play(self, action)
        found.extend([time.perf_counter() - began] if self.failures > before else [])
        return step

    Supervised.play = watched  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Supervised.play = play  # type: ignore[method-assign]


def step(env: str, fault: str, seed: int) -> tuple[float, float]:
    """(seconds, steps made again) on threads: what a fresh environment plays again was lost by nobody."""
    job = prepare("ppo", env, seed=seed, chaos=fault, **SETTINGS, deployment=Deployment(
        "single-learner-coarse", "threads", actors=2))
    with timed() as found:
        result = running.run(job, None, Display())
    assert len(found) == 1 and result.restarts == 0 and result.status == "finished"
    return found[0], 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=["threads", "ray"], choices=["threads", "ray"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    running.BACK_OFF = 0.0  # a pause of our own making is no cost of the fault
    logging.getLogger("msrl.envs").setLevel(logging.ERROR)
    print("| fault | where | seconds | steps made again |\n|---|---|---|---|")
    for backend in options.backends:
        for fault in LOSSES:
            row(fault, backend, [loss(backend, fault, seed) for seed in range(options.seeds)])
    for env in ("gymnasium:CartPole-v1", "envpool:CartPole-v1"):
        for fault in STEPS:
            row(fault, env.partition(":")[0], [step(env, fault, seed) for seed in range(options.seeds)])


def row(fault: str, where: str, found: list[tuple[float, float]]) -> None:
    seconds, steps = (statistics.median(each) for each in zip(*found, strict=True))
    print(f"| `{fault}` | {where} | {seconds:.2f} | {steps:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
