"""PPO on a CartPole that crashes (1e-4 of steps, 1e-3 of resets) and stalls for 2 to 5 s (1e-4 of steps), beside RLlib.

python -m benchmarks.bench_shaky [--rounds 3] [--quick]

How long it takes, from process start, to a mean return of 450. Ours is the whole command, with `--env-timeout 1` and
100 episodes at its end, in environments that fail as well; RLlib stops as soon as its episodes are good enough. Ratios
are of times: the less, the better.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.peer import ROOT, interpreter
from benchmarks.ratios import Effort, compare
from benchmarks.report import Report, command

BAR = 450.0
NAME = "PPO on a CartPole that crashes and stalls"
ENV = "gymnasium:benchmarks.peers.shaky:ShakyCartPole-v0"


def ours(seed: int) -> tuple[float, float]:
    """(seconds, mean return)."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        words = f"train ppo --env {ENV} --seed {seed} --num-envs 8 --rollout 256 --total-steps 200000 --json"
        told = last_line([sys.executable, "-m", "msrl.cli.main", *words.split(), "--env-timeout", "1", "--run-dir",
                          f"{folder}/run"])
    return time.perf_counter() - began, told["eval_return_mean"]


def rllibs() -> tuple[float, float, str]:
    """(seconds, mean return, version)."""
    began = time.perf_counter()
    told = last_line([str(interpreter()), "-m", "benchmarks.peers.shaky_rllib"])
    return time.perf_counter() - began, told["mean"], told["version"]


def last_line(words: list[str]) -> dict[str, Any]:
    """What a command told last. One that fails is raised, with the end of what it said."""
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(effort: Effort, report: Report) -> None:
    peer = interpreter().exists()
    if not peer:
        report.leave_out("RLlib, as there is no environment for peers: run `make peers`")
    mine, theirs, rllib = [], [], ""
    for seed in range(effort.rounds):
        seconds, mean = ours(seed)
        mine.append(seconds)
        report.limit(f"{NAME}, seed {seed}: a mean return of {mean:.1f} after {seconds:.0f} s "
                     f"({'reached' if mean >= BAR else 'MISSED'} {BAR:g}).")
        if peer:
            seconds, mean, version = rllibs()
            theirs.append(seconds)
            rllib = f"RLlib {version}"
            report.limit(f"{rllib}: {mean:.1f} after {seconds:.0f} s.")
    if peer:
        report.add(compare(NAME, rllib, mine, theirs, unit="s", at_least=False))


if __name__ == "__main__":
    command("shaky", measure, __doc__, Effort(rounds=3))
