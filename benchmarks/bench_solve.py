"""Workload 9: from process start to a solved CartPole by `msrl train ppo --env CartPole-v1`, cache cold and warm.

python -m benchmarks.bench_solve [--rounds 3] [--quick]

Ours is the time of the whole command, the 100 episodes at its end included; it trains for as long as it is set to,
however soon it is good enough. SB3, with its defaults and with tuned settings, stops as soon as it is good enough, and
what playing takes is taken off its time (peers/solve.py). Ratios are of times: the less, the better. And how long
`import msrl` takes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peer import ROOT, interpreter
from benchmarks.ratios import Effort, Row, compare, spread
from benchmarks.report import Report, command

BAR, IMPORT_SECONDS = 475.0, 0.3
NAME = "time to a solved CartPole"


def solve(cache: str, folder: str, seed: int) -> tuple[float, float]:
    """(seconds, mean return) of one whole process."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "msrl.cli.main", "train", "ppo", "--env", "CartPole-v1", "--seed", str(seed),
         "--run-dir", folder, "--json"],
        env={**os.environ, "MSRL_CACHE_DIR": cache}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])["eval_return_mean"]


def solve_with_sb3(seed: int, *tuned: str) -> tuple[float, float, str]:
    """(seconds, mean return, version): the same, without the time that playing took."""
    began = time.perf_counter()
    done = subprocess.run([interpreter(), "-m", "benchmarks.peers.solve", str(seed), *tuned], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return time.perf_counter() - began - told["played"], told["mean"], told["version"]


def import_seconds() -> float:
    code = "import time; began = time.perf_counter(); import msrl; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)


def measure(effort: Effort, report: Report) -> None:
    times: dict[str, list[float]] = {"cold": [], "warm": [], "by default": [], "tuned": []}
    peer, sb3 = interpreter().exists(), "SB3"
    if not peer:
        report.leave_out("SB3, as there is no environment for peers: run `make peers`")
    for seed in range(effort.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cold", "warm"):
                seconds, mean = solve(str(Path(folder, "cache")), str(Path(folder, name)), seed)
                times[name].append(seconds)
                print(f"  seed {seed}, {name} cache: {seconds:.1f} s to a mean return of {mean:.1f}", flush=True)
                if mean < BAR:
                    report.limit(f"Seed {seed} ended at {mean:.1f} of {BAR:g}.")
        for how in ("by default", "tuned") if peer else ():
            seconds, mean, found = solve_with_sb3(seed, how)
            sb3 = f"SB3 {found}"
            times[how].append(seconds)
            print(f"  seed {seed}, {sb3} {how}: {seconds:.1f} s to a mean return of {mean:.1f}", flush=True)
    for how in ("by default", "tuned") if peer else ():
        for name, target in (("cold", 0.5), ("warm", 1 / 3)):
            report.add(compare(f"{NAME}, {name} cache", f"{sb3}, {how}", times[name], times[how], target, unit="s",
                               at_least=False))
    taken = [import_seconds() for _ in range(2 * effort.rounds + 1)][1:]  # the first reads files for the others
    low, middle, high = (each / IMPORT_SECONDS for each in spread(taken))
    report.add(Row("import msrl", f"{IMPORT_SECONDS} s", f"{middle * IMPORT_SECONDS:.2f} s", f"{IMPORT_SECONDS} s",
                   middle, low, high, 1.0, at_least=False))
    report.limit(f"{NAME}: a warm cache saves {spread(times['cold'])[1] - spread(times['warm'])[1]:.1f} s of compiling "
                 f"out of {spread(times['cold'])[1]:.1f} s.")


if __name__ == "__main__":
    command("solve", measure, __doc__, Effort(rounds=3))
