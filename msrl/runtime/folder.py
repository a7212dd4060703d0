"""The run folder: what a run was, how it went, what it learnt, and how to do it again.

    config.json     the algorithm, the environment, every setting, versions and flags, and the run's status
    deployment.toml how the run was spread out
    reproduce.sh    the command that makes the same run again
    metrics.jsonl   one object per update, written as it happens
    tensorboard/    the same for TensorBoard
    weights/SEED/   the weights and what the environment's wrappers learnt (Orbax)
    checkpoints/    all that it takes to go on, of some points of the run
    faults/         updates that were not finite, with all that it takes to do them again
    result.json     the summary that `msrl train --json` prints
    curve.png       return against environment steps
    trace.json      with --profile: what every instance did and when

It always holds that every file is complete: metrics grow by whole lines, all else is written aside and moved into
place. Nothing exists before `open`, which comes with the first update.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msrl.errors import UsageError
from msrl.runtime import curve, weights
from msrl.runtime.disk import Board, room_not_needed
from msrl.runtime.files import dumps, put, write
from msrl.runtime.preload import late

RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"

KINDS = {"algorithm": (str,), "env": (str,), "env_id": (str,), "config": (dict,), "seeds": (list,), "strict": (bool,),
         "eval_every": (int,), "eval_episodes": (int,), "checkpoint_every": (int,), "checkpoint_keep": (int,),
         "restarts": (int,), "env_timeout": (int, float), "profile": (bool,), "non_finite": (str,),
         "status": (str,), "flags": (dict,)}  # of what is read again


def default_path(algorithm: str, env: str, seed: int) -> Path:
    """runs/<algorithm>-<environment>-<seed>-<time>, with a number behind it if that is taken."""
    name = f"{_plain(algorithm)}-{_plain(env)}-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path


def _plain(name: str) -> str:
    """A name as part of a file's: of a path with a class, the class; of an environment's id, what follows the colon."""
    name = name.rpartition(":")[2]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def check_free(path: Path) -> None:
    """Is there room for a run? A folder that has something in it is never written to."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"The run folder {path} is a file.", instead="Name another: --run-dir DIR.")
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(
            f"The run folder {path} is not empty.",
            why="A run never writes over another one.",
            instead="Name another with --run-dir, or remove this one.")
    parent = next(each for each in path.absolute().parents if each.exists())
    if not os.access(path if path.is_dir() else parent, os.W_OK):
        raise UsageError(f"The run folder {path} cannot be made.", why=f"{parent} is not writable.",
                         instead="Name another with --run-dir.")


class RunFolder:
    """`open`, then `row` per update and `keep` per seed, then `close`."""

    def __init__(self, path: Path, about: dict[str, Any], command: str,
                 resumed: Sequence[dict[str, Any]] | None = None):
        """`resumed`: of a run that goes on, the rows so far; what was written after them is forgotten."""
        if resumed is None:
            check_free(path)
        self.path, self.about, self.command = path, about, command
        self.rows: list[dict[str, Any]] = list(resumed or ())
        self._boards: dict[str, Board] = {}
        self._metrics: int | None = None

    @property
    def opened(self) -> bool:
        return self._metrics is not None

    def open(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._status(RUNNING)
        script = self.path / "reproduce.sh"
        write(script, f"#!/bin/sh\n{self.command}\n".encode())
        script.chmod(0o755)
        self._open_metrics()

    def _open_metrics(self) -> None:
        if (self.path / "metrics.jsonl").exists():
            write(self.path / "metrics.jsonl", "".join(dumps(row) + "\n" for row in self.rows).encode())
        self._metrics = os.open(self.path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def row(self, row: dict[str, Any]) -> None:
        assert self._metrics is not None, "open comes first"
        self.rows.append(row)
        line = (dumps(row) + "\n").encode()
        written = os.write(self._metrics, line)  # one call, so that no line is ever torn
        if written < len(line):  # as much as there was room for
            os.ftruncate(self._metrics, os.lseek(self._metrics, 0, os.SEEK_END) - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / "metrics.jsonl"))
        board = self._board(str(row.get("seed", "all")))
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in ("env_steps", "seed", "seeds"):
                tag = name.replace("eval_", "eval/", 1) if name.startswith("eval_") else f"train/{name}"
                board.add(tag, value, row["env_steps"])

    def rewind(self, rows: list[dict[str, Any]]) -> None:
        """Forgets all rows but these: what came after them will come again."""
        assert self._metrics is not None
        os.close(self._metrics)
        self.rows = rows
        self._open_metrics()

    def keep(self, seed: int, tree: Any) -> None:
        """Saves what one seed has learnt."""
        place = self.path / "weights" / str(seed)
        aside = place.with_name(f".{place.name}")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            weights.save(aside, tree)
        except BaseException:
            for left in place.parent.glob(f"{aside.name}*"):  # Orbax has a folder of its own beside it
                shutil.rmtree(left, ignore_errors=True)
            raise
        put(aside, place)  # a run that goes on has kept something before

    def close(self, status: str, result: dict[str, Any] | None = None) -> None:
        """Completes the folder; afterwards it does not change."""
        if not self.opened or self.about.get("status") != RUNNING:
            return
        assert self._metrics is not None
        os.close(self._metrics)
        for board in self._boards.values():
            board.end()
        if result is not None:
            write(self.path / "result.json", (dumps(result, indent=2) + "\n").encode())
        with room_not_needed():
            drawn = curve.draw(self.rows, title=f"{self.about['algorithm']} on {self.about['env']}")
            write(self.path / "curve.png", drawn)
        self._status(status)

    def abandon(self) -> None:
        """Says that the run was stopped at once. Safe from any thread."""
        if self.opened and self.about.get("status") == RUNNING:
            self._status(INTERRUPTED)

    def _status(self, status: str) -> None:
        self.about["status"] = status
        write(self.path / "config.json", (dumps(self.about, indent=2) + "\n").encode())

    def _board(self, name: str) -> Board:
        if name not in self._boards:
            self._boards[name] = Board(lambda: late("tensorboardX").SummaryWriter(
                str(self.path / "tensorboard" / name), max_queue=1000))
        return self._boards[name]


def read_config(path: Path) -> dict[str, Any]:
    """The config.json of a run folder."""
    file = path / "config.json"
    try:
        about = json.loads(file.read_text())
        for name, kind in KINDS.items():
            if name in about and (type(about[name]) not in kind or (name == "seeds" and not about[name])):
                raise TypeError(f"{name} is {about[name]!r}")
        if any(type(seed) is not int for seed in about["seeds"]):
            raise TypeError(f"seeds are {about['seeds']!r}")
        return {**about, "config": about["config"], "algorithm": about["algorithm"], "env_id": about["env_id"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"There is no {file}." if not file.is_file() else f"{file} is not one that `msrl train` writes."
        raise UsageError(f"{path} is not a run folder.", why=why,
                         instead="Name a folder that `msrl train` made, for instance one under runs/.") from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The metrics of a run folder, as far as they are whole."""
    rows = []
    file = path / "metrics.jsonl"
    for line in file.read_text().splitlines() if file.is_file() else ():
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            break
    return rows
