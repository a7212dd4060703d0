"""The soak: run after run with faults at random points, until the time is over. Do they all finish, and leave nothing?

python -m benchmarks.soak [--minutes 30] [--backends threads ray] [--every 5] [--seed 0]

Faults come about every `--every` seconds, drawn from `--seed`, which is printed with every run along with the faults. A
run must finish, reach the bar, and account for all of its steps; after each, there must be no process, thread, port,
connection, file handle or segment of shared memory more than there was after the first. Exits 1 with what went wrong.
PPO itself misses the bar with one seed in forty: such a run must end with the weights of one that nothing befell.
"""

import argparse
import contextlib
import gc
import logging
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

import msrl
from msrl import Deployment, Result, algorithms, running

SHARED = Path("/dev/shm")
TIMEOUT = 1.0  # seconds that a step of an environment may take
LEAVE_SECONDS = 30.0  # for processes that were told to end


@dataclass(frozen=True)
class Task:
    """What is trained under faults, and what must come of it."""

    backend: str
    algorithm: str = "ppo"
    # On the host, so that its steps can raise and hang; and one that is brought back to where it was: EnvPool's begin
    # new episodes, all at once, and batches in which all are equally far can undo what PPO has learnt.
    env: str = "gymnasium:CartPole-v1"
    bar: float = 475.0
    settings: dict[str, Any] = field(default_factory=lambda: dict(
        total_steps=100_000, num_envs=16, rollout=32, epochs=10, minibatches=2, learning_rate=1e-3, gamma=0.98,
        gae_lambda=0.8, shards=2, distribution="single-learner-coarse", actors=2))
    checkpoint_every: int = 5

    @property
    def passes(self) -> int:
        cls = algorithms.load(self.algorithm).Config
        config = cls(**{each.name: self.settings[each.name] for each in fields(cls) if each.name in self.settings})
        return config.total_steps // (config.num_envs * config.rollout)


def faults(draw: random.Random, count: int, passes: int, rollout: int) -> list[str]:
    """At different points, so that each happens."""
    kinds = [draw.choice(("kill:actor", "kill:learner", "raise:env", "hang:env")) for _ in range(count)]
    at = draw.sample(range(1, passes + 1), min(count, passes))
    return [f"{kind}@{number if kind.startswith('kill') else number * rollout}"
            for kind, number in zip(kinds, sorted(at), strict=False)]


def train(task: Task, chaos: Sequence[str], seed: int) -> Result:
    kills = sum(each.startswith("kill") for each in chaos)
    with TemporaryDirectory() as folder:
        return msrl.train(task.algorithm, task.env, seed=seed, chaos=",".join(chaos), restarts=kills, progress=False,
                          env_timeout=TIMEOUT, checkpoint_every=task.checkpoint_every, run_dir=Path(folder) / "run",
                          deployment=Deployment(backend=task.backend), **task.settings)


def complaints(task: Task, chaos: Sequence[str], seed: int, result: Result) -> list[str]:
    """What is wrong with a run."""
    found = []
    kills = sum(each.startswith("kill") for each in chaos)
    if result.status != "finished":
        found.append(f"it is {result.status}")
    if result.restarts != kills:
        found.append(f"it went on {result.restarts} times after {kills} kills")
    if (result.eval_return_mean or 0.0) < task.bar and not (
            chaos and train(task, (), seed).weights_sha256 == result.weights_sha256):
        found.append(f"its return is {result.eval_return_mean}, below {task.bar:g}")
    steps = result.per_seed[0]["steps"]
    if steps["produced"] != steps["trained"] + sum(steps["dropped"].values()) + steps["in_flight"]:
        found.append(f"its steps do not add up: {steps}")
    return found


@dataclass(frozen=True)
class Held:
    """What this process and those under it hold. Sockets count if they listen or lead somewhere: Ray leaves one or two
    of each session in the process that started it that do neither, whether or not anything ran in them."""

    processes: frozenset[int]
    threads: frozenset[str]
    ports: int
    connections: int
    files: int
    shared: frozenset[str]

    def more_than(self, before: "Held") -> list[str]:
        found = [f"processes {sorted(gone)}" for gone in (self.processes - before.processes,) if gone]
        found += [f"threads {sorted(left)}" for left in (self.threads - before.threads,) if left]
        found += [f"shared memory {sorted(left)}" for left in (self.shared - before.shared,) if left]
        found += [f"{now} {what} instead of {then}" for what, now, then in (
            ("ports", self.ports, before.ports), ("connections", self.connections, before.connections),
            ("file handles", self.files, before.files)) if now > then]
        return found


def held() -> Held:
    gc.collect()  # arrays that nobody has any more may be views of Ray's store, and keep it open
    me = psutil.Process()
    children = me.children(recursive=True)
    psutil.wait_procs(children, LEAVE_SECONDS)  # those that were told to end take a moment
    sockets = me.net_connections("all")
    listening = sum(each.status == psutil.CONN_LISTEN for each in sockets)
    ours = (thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    return Held(frozenset(each.pid for each in me.children(recursive=True)),
                frozenset(name for name in ours if not name.startswith("Thread-")), listening,
                len(sockets) - listening, sum(not name.startswith("socket:") for name in handles()),
                frozenset(each.name for each in SHARED.glob("*") if each.stat().st_uid == me.uids().real))


def handles() -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.append(str(each.readlink()))
    return found


def soak(task: Task, seconds: float, every: float, seed: int) -> list[str]:
    """All that went wrong, told as it happens."""
    draw = random.Random(seed)
    rollout = task.settings.get("rollout", 128)
    began, wrong, number = time.monotonic(), [], 0
    length, before = 0.0, None
    while time.monotonic() - began < seconds or number < 2:
        # The first is left alone: it tells how long one takes. With more than one fault for every other checkpoint, a
        # run would not get anywhere.
        count = max(1, min(round(length / every), task.passes // (2 * task.checkpoint_every)))
        chaos = faults(draw, count, task.passes, rollout) if number else []
        started = time.monotonic()
        result = train(task, chaos, seed + number)
        length = length or time.monotonic() - started
        now = held()
        found = complaints(task, chaos, seed + number, result) + (now.more_than(before) if before else [])
        before = before or now
        print(f"{task.backend:8} seed {seed + number}: {result.restarts} losses, return {result.eval_return_mean:.1f}, "
              f"{time.monotonic() - started:.1f} s; {','.join(chaos) or 'undisturbed'}"
              + "".join(f"\n  WRONG: {each}" for each in found), flush=True)
        wrong += [f"{task.backend} seed {seed + number}: {each}" for each in found]
        number += 1
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--backends", nargs="+", default=["threads", "ray"], choices=["threads", "ray"])
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    running.BACK_OFF = 0.0  # it is we who took the last one
    logging.getLogger("msrl.envs").setLevel(logging.ERROR)
    wrong: list[str] = []
    for backend in options.backends:
        wrong += soak(Task(backend), options.minutes * 60, options.every, options.seed)
    print("\n".join(wrong) or "Nothing went wrong that was not meant to.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
