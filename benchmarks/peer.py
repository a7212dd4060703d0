"""A peer as a contestant: another library's program, in a process and an environment of its own.

It speaks lines of JSON (benchmarks/peers/serve.py). `start` gives None, and says why in the report, where the peers'
environment is not there or the peer does not start: `make peers` makes it. MSRL_PEERS names another interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Report

ROOT = Path(__file__).parents[1]


def interpreter() -> Path:
    return Path(os.environ.get("MSRL_PEERS") or ROOT / ".venv-peers" / "bin" / "python")


class Peer:
    """`kind`: the module and function that make it, as benchmarks/peers/serve.py takes them, with `settings`."""

    def __init__(self, name: str, kind: str, settings: dict[str, Any], python: Path | None = None, **variables: str):
        self.home = tempfile.TemporaryDirectory()  # what peers leave in a home folder goes with them
        self.process = subprocess.Popen(
            [str(python or interpreter()), "-m", "benchmarks.peers.serve", kind, json.dumps(settings)],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.home.name, **variables})
        hello = self._answer()  # after its warm-up
        self.name, self.quantum, self.speed = f"{name} {hello['version']}", hello["quantum"], hello["speed"]
        self.threads = hello["threads"]

    def turn(self, seconds: float) -> float:
        """At least one quantum, which is what the peer does between two of its own updates."""
        steps = max(1, round(self.speed * seconds / self.quantum)) * self.quantum
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"run": steps}) + "\n")
        self.process.stdin.flush()
        told = self._answer()
        self.speed = told["steps"] / told["seconds"]
        return self.speed

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.home.cleanup()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise EOFError("it ended")
        return json.loads(line)


def start(report: Report, name: str, kind: str, **settings: Any) -> Peer | None:
    if not interpreter().exists():
        report.leave_out(f"{name}, as there is no environment for peers: run `make peers`")
        return None
    try:
        return Peer(name, kind, settings)
    except EOFError:
        report.leave_out(f"{name}, which does not start: try `{interpreter()} -m benchmarks.peers.serve {kind} "
                         f"'{json.dumps(settings)}'`")
        return None


def by_hand(kind: str, **settings: Any) -> Peer:
    """A program of JAX by hand, in our environment, with whichever of one thread and one for each core suits it."""
    both = [Peer("by hand", kind, settings, Path(sys.executable), PJRT_NPROC=str(threads))
            for threads in (1, os.cpu_count() or 1)]
    slower, faster = sorted(both, key=lambda peer: peer.turn(2.0))
    slower.close()
    return faster
