"""Workload 10: what a million transitions take in memory, and whether a run of ten minutes takes more and more.

python -m benchmarks.bench_memory [--seconds 600] [--quick]

The replay's row compares the growth of this process, as the operating system sees it, with the bytes of the transitions
themselves. For each backend, PPO on CartPole runs for as long as is asked for; the row is the resident
memory of this process and those it started over the last quarter of the time against that of the
second quarter, when compiling and first allocations are over.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import psutil

import msrl
from benchmarks.ours import Ours
from benchmarks.ratios import Effort, Row, figure
from benchmarks.report import Report, command
from msrl.api import Record
from msrl.backends.worker import LOOKS
from msrl.buffers import Replay

MILLION, STEPS = 1_000_000, 64 * 128
BACKENDS = {
    "inline": msrl.Deployment("local"),
    "threads": msrl.Deployment("single-learner-coarse", "threads"),
    "ray": msrl.Deployment("single-learner-coarse", "ray"),
}


def replay(report: Report) -> None:
    item = Record(obs=jnp.zeros((1000, 4)), action=jnp.zeros(1000, jnp.int32), reward=jnp.zeros(1000),
                  terminated=jnp.zeros(1000, bool), next_obs=jnp.zeros((1000, 4)))
    raw = sum(leaf.nbytes for leaf in jax.tree.leaves(item)) * (MILLION // 1000)
    buffer = Replay(MILLION, 64)
    insert = jax.jit(buffer.insert, donate_argnums=0)
    small = Replay(2000, 64)
    jax.block_until_ready(jax.jit(small.insert, donate_argnums=0)(small.init(item), item))  # JAX's own needs
    before = psutil.Process().memory_info().rss
    state = jax.jit(lambda: buffer.init(item))()
    for _ in range(MILLION // 1000):
        state = insert(state, item)
    jax.block_until_ready(state)
    grown = psutil.Process().memory_info().rss - before
    ratio = grown / raw
    report.add(Row("a million CartPole transitions in replay", "their raw bytes", f"{figure(grown)}B",
                   f"{figure(raw)}B", ratio, ratio, ratio, 1.2, at_least=False))


def resident() -> int:
    """Of this process and all that it started."""
    mine = psutil.Process()
    total = mine.memory_info().rss
    for child in mine.children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def flat(backend: str, seconds: float, report: Report) -> None:
    def compiled(passes: int) -> Ours:
        return Ours(backend, "ppo", "CartPole-v1", steps=STEPS, passes=passes, num_envs=64, rollout=128,
                    deployment=BACKENDS[backend])

    short = compiled(1)
    speed = short.turn(min(2.0, seconds / 5))
    short.close()
    run = compiled(max(1, round(8 * speed * seconds / STEPS / LOOKS)))  # a first turn is slow: far more than is needed
    began, samples = time.perf_counter(), []
    for _ in run.updates:
        samples.append((time.perf_counter() - began, resident()))
        if samples[-1][0] > seconds:
            break
    run.close()
    end = samples[-1][0]
    early, late = ([rss for at, rss in samples if low <= at / end <= high] for low, high in ((0.25, 0.5), (0.75, 1.0)))
    base = statistics.mean(early)
    each = sorted(rss / base for rss in late)
    report.add(Row(f"memory after {end:.0f} s of PPO, {backend}", "the second quarter of the run",
                   f"{figure(statistics.mean(late))}B", f"{figure(base)}B", statistics.mean(each), each[0], each[-1],
                   1.05, at_least=False))


def measure(effort: Effort, report: Report) -> None:
    replay(report)
    for backend in BACKENDS:
        flat(backend, effort.seconds, report)


if __name__ == "__main__":
    command("memory", measure, __doc__, Effort(rounds=1, seconds=600.0))
