"""From process start to a solved CartPole: `msrl train ppo --env CartPole-v1`, with a cold and with a warm cache.

python -m benchmarks.bench_solve [--rounds 3]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def solve(cache: str, folder: str, seed: int) -> tuple[float, float]:
    """(seconds, mean return) of one whole process."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "msrl.cli.main", "train", "ppo", "--env", "CartPole-v1", "--seed", str(seed),
         "--run-dir", folder, "--json"],
        env={**os.environ, "MSRL_CACHE_DIR": cache}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])["eval_return_mean"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for seed in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cold", "warm"):
                seconds, mean = solve(str(Path(folder, "cache")), str(Path(folder, name)), seed)
                print(f"seed {seed}, {name} cache: {seconds:5.1f} s to a mean return of {mean:.1f} "
                      "(target: 15 s cold, 475)", flush=True)


if __name__ == "__main__":
    main()
