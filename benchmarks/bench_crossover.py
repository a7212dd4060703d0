"""Workload 11: which distribution is fastest, as moves take longer and the work between them changes.

python -m benchmarks.bench_crossover [--rounds 2] [--seconds 1.5] [--quick]

PPO on CartPole, spread out in three ways over Ray workers of one core each, as over so many machines, with every
message delayed by 0 to 20 ms (`chaos="delay:moves=5ms"`: the channel holds it back, and nobody computes for it). The
numbers of environments and epochs and the size of the networks vary; in the last case links are narrow as well, as what
a network's weights take is their bytes. The plot has a panel for each; rows hold the distributions to where each should
win. Beside them stands device-only on one core, which has no messages: it takes an environment that compiles.

Each program has the machine for itself, one after another, so that a round takes minutes; of its turns and of the
rounds the median counts.
"""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.plots import panels_plot
from benchmarks.ratios import Effort, compare, figure
from benchmarks.report import RESULTS, Report, command

DELAYS = (0, 2, 20)  # milliseconds
BASE = dict(num_envs=64, rollout=32, epochs=4, minibatches=4, hidden=(64, 64))
LARGE = dict(hidden=(512, 512), minibatches=1)
FIRST, LEARNING = "64 environments, 64-64, 4 epochs", "512-512, 4 epochs of one batch"
NARROW = "512-512, 1 epoch, links of 4 MB/s"
CASES: dict[str, tuple[dict[str, Any], str]] = {  # settings, and how much a link carries
    FIRST: ({}, ""),
    "512 environments": (dict(num_envs=512), ""),
    "16 epochs": (dict(epochs=16), ""),
    LEARNING: (LARGE, ""),
    NARROW: (dict(LARGE, epochs=1), "4MB/s"),
}
SPREADS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "coarse": (dict(distribution="single-learner-coarse", actors=2), dict(shards=2)),
    "fine": (dict(distribution="single-learner-fine", actors=2), dict(shards=2)),
    "multi-learner": (dict(distribution="multi-learner", learners=2), dict(shards=2, learner_shards=2)),
}
ALONE = "device-only"
# Who should beat whom, where, and at which delay.
CLAIMS = (("fine", "coarse", NARROW, 0), ("coarse", "fine", NARROW, 20), ("multi-learner", "coarse", LEARNING, 0),
          ("multi-learner", "fine", LEARNING, 0), (ALONE, "coarse", FIRST, 0))
Found = dict[str, dict[str, dict[int, list[float]]]]  # steps/s: case, distribution, delay → all turns


def speeds(case: str, name: str, delay: int, seconds: float) -> list[float]:
    """Of one program's turns, in processes that have a core each."""
    changed, rate = CASES[case]
    how, shards = SPREADS.get(name, (dict(distribution=name), {}))
    link = "+".join(([f"{delay}ms"] if delay else []) + ([rate] if rate else [])) if name != ALONE else ""
    given = {"deployment": dict(how, backend="ray" if name in SPREADS else "inline"), "seconds": seconds,
             "chaos": f"delay:moves={link}" if link else "", "settings": {**BASE, **changed, **shards}}
    done = subprocess.run([sys.executable, "-m", "benchmarks.apart", json.dumps(given)], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PJRT_NPROC": "1"})
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {case}, {delay} ms, {name}: {figure(statistics.median(found))} steps/s", flush=True)
    return found


def measure(effort: Effort, report: Report) -> None:
    quick = effort.seconds < 1
    cases, delays = (list(CASES)[:1], DELAYS[:1]) if quick else (list(CASES), DELAYS)
    found: Found = {case: {name: {delay: [] for delay in delays} for name in (*SPREADS, ALONE)} for case in cases}
    for number in range(1 if quick else effort.rounds):
        for case in cases:
            for name in list(SPREADS)[::-1 if number % 2 else 1]:
                for delay in delays:
                    found[case][name][delay] += speeds(case, name, delay, effort.seconds)
            alone = speeds(case, ALONE, 0, effort.seconds)
            for delay in delays:  # nobody sends anything
                found[case][ALONE][delay] += alone
    for better, other, case, delay in CLAIMS:
        if case in cases and delay in delays:
            report.add(compare(f"{case}, {delay} ms: {better}", other, found[case][better][delay],
                               found[case][other][delay], 1.0))
    middle = {case: {name: [statistics.median(column[delay]) for delay in delays] for name, column in columns.items()}
              for case, columns in found.items()}
    for case, columns in middle.items():
        apart = {name: columns[name] for name in SPREADS}
        report.limit(f"{case}: " + "; ".join(winner(apart, at) for at in range(len(delays))) +
                     f"; {ALONE} on one core, without messages, {figure(columns[ALONE][0])} steps/s.")
    report.figures.update(delays=delays, speeds=middle)
    RESULTS.mkdir(exist_ok=True)
    panels_plot(delays, middle, RESULTS / "crossover.png", "ms that a message is delayed", "environment steps/s")


def winner(columns: dict[str, list[float]], at: int) -> str:
    """Who is fastest at one delay, and by how much."""
    first, second = sorted(columns, key=lambda name: -columns[name][at])[:2]
    ahead = columns[first][at] / columns[second][at]
    return f"at {DELAYS[at]} ms {first} ({figure(columns[first][at])} steps/s, {ahead:.1f} × {second})"


if __name__ == "__main__":
    command("crossover", measure, __doc__, Effort(rounds=2, seconds=1.5))
