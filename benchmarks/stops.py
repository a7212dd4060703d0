"""Signals at random moments: signal × moment × backend × distribution. Does every run end well, and go on to the end?

python -m benchmarks.stops [--tries 30] [--backends inline threads ray] [--distributions ...] [--seed 0]

Each try starts a small run in a process of its own, sends it one signal, or two, at a moment drawn from `--seed` (what
it was doing is told by its last line), and resumes it. It must exit with 0 and the command that resumes it, or with
128 + n before there was anything to keep, or at once after a second signal; every checkpoint that is there must be
sound; no traceback may be shown; and what was resumed must end with the weights of a run that nobody stopped, where
instances wait for one another. Exits 1 with what went wrong.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from msrl.runtime import checkpoints

ROOT = Path(__file__).parents[1]
SIZES = ("--num-envs", "8", "--shards", "2", "--rollout", "8", "--hidden", "8", "--epochs", "1", "--minibatches", "1",
         "--eval-every", "20", "--eval-episodes", "20")
PPO = ("train", "ppo", "--env", "CartPole-v1", *SIZES, "--total-steps", "25600")
TWO_LEARNERS = (*PPO, "--learner-shards", "2", "--learners", "2")
RUNS = {"local": PPO, "single-learner-coarse": (*PPO, "--actors", "2"), "single-learner-fine": (*PPO, "--actors", "2"),
        "multi-learner": TWO_LEARNERS, "device-only": TWO_LEARNERS, "central": TWO_LEARNERS,
        "environments": ("train", "mappo", "--env", "simple_spread", *SIZES, "--total-steps", "6400",
                         "--agent-shards", "3", "--learners", "3"),
        "single-learner-coarse-async": (*PPO, "--actors", "2"), "central-async": TWO_LEARNERS}
DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "PJRT_NPROC": "4"}  # one learner each
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIMIT = 300.0  # seconds for any process


@dataclass(frozen=True)
class Ended:
    code: int
    lines: list[str]
    seconds: float  # of all

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def hear_all() -> None:
    """A shell's background process, or one under nohup, ignores signals, and so would all that it starts."""
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def start(folder: Path, *args: str) -> subprocess.Popen:
    hear_all()
    return subprocess.Popen([sys.executable, "-u", "-m", "msrl.cli.main", *args], cwd=folder, text=True,
                            env={**os.environ, **DEVICES, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def follow(process: subprocess.Popen, signals: list[tuple[float, int]]) -> Ended:
    """Sends each signal so many seconds after the one before; the first counts from the start."""
    began, lines = time.monotonic(), []

    def send() -> None:
        for seconds, number in signals:
            time.sleep(seconds)
            if process.poll() is None:
                lines.append(f"<{signal.Signals(number).name}>")
                process.send_signal(number)

    def give_up() -> None:
        lines.append("<too long>")
        process.kill()

    guard = threading.Timer(LIMIT, give_up)
    guard.start()
    threading.Thread(target=send, daemon=True).start()
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
    code = process.wait()
    guard.cancel()
    return Ended(code, lines, time.monotonic() - began)


def moment(ended: Ended) -> str:
    """What the run was at when it heard of the first signal."""
    before = []
    for line in ended.lines:
        if line.startswith("<"):
            break
        before.append(line)
    said = before[-1] if before else ""
    return "importing" if not said else "starting, compiling" if said.startswith(("algorithm", "engine")) else \
        "ended" if said.startswith(("  ", "return", "speed", "next", "run folder")) else "training"


def said(ended: Ended) -> str:
    """Did it hear of the signal?"""
    return "interrupted" if "interrupted" in ended.text else "finished" if "return       " in ended.text else "at once"


def complaints(ended: Ended, run: Path, twice: bool, number: int, importing: bool) -> list[str]:
    """What is wrong with the end of a run."""
    found, text = [], ended.text
    if "Traceback" in text and not importing:
        found.append("a traceback")
    if "<too long>" in text:
        found.append(f"it was still there after {LIMIT:g} seconds")
    there = run / "config.json"
    status = json.loads(there.read_text())["status"] if there.exists() else None
    resume = "\nresume       msrl resume" in text
    whole = 0
    for each in checkpoints.listed(run):
        try:
            checkpoints.read(each)
            whole += 1
        except checkpoints.Unsound as problem:
            found.append(f"{each.name}: {problem}")
    if ended.code == 0 and not (status == "finished" or (status == "interrupted" and resume and whole)):
        found.append(f"exit code 0 with status {status}, {whole} checkpoints and {'a' if resume else 'no'} way on")
    # Before it listens, and after it has said all, a signal is what it is to any process.
    plain = ended.code in (-number, 128 + number)
    if ended.code != 0 and not (plain and (twice or status in (None, "finished"))):
        found.append(f"exit code {ended.code} with status {status}")
    if ended.code != 0 and status == "running":
        found.append("its status is still running")
    return found


def resumed(folder: Path) -> tuple[str, str]:
    """What the run comes to: (status, weights), or what went wrong."""
    ended = follow(start(folder, "resume", "run", "--json"), [])
    try:
        summary = json.loads(next(line for line in reversed(ended.lines) if line.startswith("{")))
        return summary["status"], summary["weights_sha256"]
    except StopIteration:
        return f"exit code {ended.code}", ended.text[-2000:]


def trial(args: tuple[str, ...], seconds: float, draw: random.Random, expected: str | None
          ) -> tuple[str, list[str], float]:
    """One run, stopped: (what it was, what went wrong, how long a run takes as far as is known now)."""
    number, at, twice = draw.choice(SIGNALS), draw.uniform(0.0, seconds), draw.random() < 0.25
    gap = draw.uniform(0.0, 1.5)
    every = draw.choice(("0", "7"))
    with TemporaryDirectory() as name:
        folder = Path(name)
        signals = [(at, number)] + ([(gap, number)] if twice else [])
        ended = follow(start(folder, *args, "--checkpoint-every", every, "--run-dir", "run"), signals)
        when = moment(ended)
        found = complaints(ended, folder / "run", twice, number, when == "importing")
        label = f"{signal.Signals(number).name}{' twice' if twice else ''} after {at:.2f} s, {when}: {ended.code}, " \
            f"{said(ended)}"
        if not found and checkpoints.listed(folder / "run") and "interrupted" in ended.text:
            status, weights = resumed(folder)
            if status != "finished":
                found.append(f"resumed: {status}: {weights}")
            elif expected and weights != expected:
                found.append("resumed to other weights")
            label += ", resumed"
        if found:
            found.append(ended.text[-3000:])
        return label, found, min(seconds, ended.seconds) if when == "ended" else seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=30)
    parser.add_argument("--backends", nargs="+", default=["inline", "threads", "ray"])
    parser.add_argument("--distributions", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong, seen = 0, Counter()
    for backend in options.backends:
        for distribution in options.distributions:
            if distribution.endswith("async") and backend == "inline":
                continue
            draw = random.Random(f"{options.seed} {backend} {distribution}")
            args = (*RUNS[distribution], "--distribution", distribution, "--backend", backend)
            with TemporaryDirectory() as name:
                alone = follow(start(Path(name), *args, "--json", "--run-dir", "run"), [])
                if alone.code:
                    print(f"{backend} {distribution}: {alone.text[-2000:]}")
                    return 1
                found = next(line for line in reversed(alone.lines) if line.startswith("{"))
                expected = None if distribution.endswith("async") else json.loads(found)["weights_sha256"]
            print(f"{backend} {distribution}: {alone.seconds:.1f} s if nobody stops it", flush=True)
            seconds = alone.seconds
            for _ in range(options.tries):
                label, problems, seconds = trial(args, seconds, draw, expected)
                seen[re.sub(r"^SIG\w+ ?| ?after [\d.]+ s,", "", label).strip()] += 1
                wrong += bool(problems)
                print(f"  {label}" + "".join(f"\n    WRONG: {each}" for each in problems), flush=True)
    for what, count in sorted(seen.items()):
        print(f"{count:5} {what}")
    print(f"{wrong} of {seen.total()} went wrong (seed {options.seed}).")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
