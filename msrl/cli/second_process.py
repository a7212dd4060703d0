"""The interpreter in a process of its own, for `msrl verify`: what a result must not depend on is other there (the seed
of Python's hashes, the order of sets, clocks, random numbers that no key was drawn for).

`unlike` starts it and compares; run as a module, it reads what to interpret from standard input and writes hashes of
all that is left.
"""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

from msrl.cli.options import Given
from msrl.comparing import Outcome, digests
from msrl.errors import MsrlError
from msrl.jobs import prepare
from msrl.pipeline import compile

MARK = "msrl-digests "


def unlike(given: Given, config: Any, wanted: Outcome) -> str | None:
    """What another process leaves that this one does not, or otherwise, in words."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    try:
        asked = json.dumps({"algorithm": given.algorithm, "env": given.options.env, "seed": given.options.seed,
                            "fields": fields})
    except TypeError:
        return None  # settings that cannot be written down cannot be handed over
    done = subprocess.run([sys.executable, "-m", "msrl.cli.second_process"], input=asked, text=True, check=False,
                          capture_output=True, env={**os.environ, "PYTHONHASHSEED": "271"})
    line = next((line for line in done.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        return f"the other process failed: {words[-1]}"
    mine, theirs = digests(wanted), json.loads(line.removeprefix(MARK))
    return next((name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)), None)


def as_written(value: Any) -> Any:
    """JSON has lists where settings have tuples."""
    return tuple(map(as_written, value)) if isinstance(value, list) else value


def main() -> int:
    asked = json.loads(sys.stdin.read())
    try:
        job = prepare(asked["algorithm"], asked["env"], seed=asked["seed"], strict=True,
                      **{name: as_written(value) for name, value in asked["fields"].items()})
        program = compile(job.cls, job.base, config=job.config, seed=job.seed, strict=True)
        sys.stdout.write(f"{MARK}{json.dumps(digests(Outcome(*program.interpret())))}\n")
    except MsrlError as error:
        sys.stderr.write(f"{error.what}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
