"""The run folder: what a run was, how it went, what it learnt, and how to do it again.

    config.json     the algorithm, the environment, every setting, versions and flags, and the run's status
    deployment.toml how the run was spread out
    reproduce.sh    the command that makes the same run again
    metrics.jsonl   one object per update, written as it happens
    tensorboard/    the same for TensorBoard
    weights/SEED/   the weights and what the environment's wrappers learnt (Orbax)
    checkpoints/    all that it takes to go on, of some points of the run
    faults/         updates that were not finite, with all that it takes to do them again
    lease.json      who writes to the folder (msrl/runtime/lease.py)
    result.json     the summary that `msrl train --json` prints
    curve.png       return against environment steps
    trace.json      with --profile: what every instance did and when

It always holds that every file is complete: metrics grow by whole lines, all else is written aside and moved into
place. Nothing exists before `open`, which comes with the first update; then the folder appears with all that it takes
to resume it. Only the holder of its lease writes to it.
"""

import errno
import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msrl.errors import UsageError
from msrl.runtime import curve, weights
from msrl.runtime.files import dumps, put, sync, write
from msrl.runtime.fingerprint import seal_of
from msrl.runtime.lease import FILE as LEASE
from msrl.runtime.lease import Lease, LeaseError
from msrl.runtime.preload import late

RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"


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
    if path.is_dir() and not all(map(unfinished, path.iterdir())):
        raise taken(path)
    parent = next(each for each in path.absolute().parents if each.exists())
    if not os.access(path if path.is_dir() else parent, os.W_OK):
        raise UsageError(f"The run folder {path} cannot be made.", why=f"{parent} is not writable.",
                         instead="Name another with --run-dir.")


def taken(path: Path) -> UsageError:
    return UsageError(f"The run folder {path} is not empty.", why="A run never writes over another one.",
                      instead="Name another with --run-dir, or remove this one.")


def unfinished(file: Path) -> bool:
    """Is it of a run that was killed while it made its folder? That has no config.json then, and counts as empty."""
    made = (LEASE, "deployment.toml", "reproduce.sh")
    ours = file.name in made or file.name.startswith(tuple(f".{name}." for name in (*made, "config.json")))
    return ours and not (file.parent / "config.json").exists()


class RunFolder:
    """`open`, then `row` per update and `keep` per seed, then `close`."""

    def __init__(self, path: Path, about: dict[str, Any], command: str,
                 resumed: Sequence[dict[str, Any]] | None = None, lease: Lease | None = None):
        """`resumed`: of a run that goes on, the rows so far; what was written after them is forgotten. `lease`: that of
        a folder that is there already."""
        if resumed is None:
            check_free(path)
        self.path, self.about, self.command, self.lease = path, about, command, lease
        self.rows: list[dict[str, Any]] = list(resumed or ())
        self._boards: dict[str, Any] = {}
        self._metrics: int | None = None
        self._lost = False

    @property
    def opened(self) -> bool:
        """May it be written to?"""
        return self._metrics is not None and not self._lost

    def open(self, files: Mapping[str, bytes] | None = None) -> None:
        """Makes the folder, with these files beside its own, or goes on with the one that is there."""
        files = {**(files or {}), "reproduce.sh": f"#!/bin/sh\n{self.command}\n".encode()}
        if self.lease is None:
            self._make(files)
        else:
            (self.path / "result.json").unlink(missing_ok=True)  # it is of weights that will be replaced
            self._fill(self.path, files)
        self._open_metrics()

    def _make(self, files: Mapping[str, bytes]) -> None:
        """A folder of that name appears at once, with all that is in it. One that is there already is empty, and may be
        a disk of its own, which cannot be moved: it is a run folder once it has its config.json."""
        home = self.path
        if not home.is_dir():
            home = home.with_name(f".{home.name}.{uuid.uuid4().hex}")
            home.mkdir(parents=True)
        self.lease = Lease.take(home)
        if home == self.path:
            others = [each.name for each in home.iterdir() if not unfinished(each)]
            if others:
                self.lease.release()
                raise taken(self.path)
            self._fill(home, files)
            return
        try:
            self._fill(home, files)
            home.rename(self.path)  # which takes the place of an empty folder, and of no other
            self.lease.run = self.path
            sync(self.path.parent)
        except OSError as error:
            self.lease.release()
            shutil.rmtree(home, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise taken(self.path) from error
            raise

    def _fill(self, home: Path, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            write(home / name, content)
        (home / "reproduce.sh").chmod(0o755)
        self._status(RUNNING, home)

    def _open_metrics(self) -> None:
        if (self.path / "metrics.jsonl").exists():
            write(self.path / "metrics.jsonl", "".join(dumps(row) + "\n" for row in self.rows).encode())
        self._metrics = os.open(self.path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def row(self, row: dict[str, Any]) -> None:
        assert self._metrics is not None, "open comes first"
        self.check()
        self.rows.append(row)
        os.write(self._metrics, (dumps(row) + "\n").encode())  # one call, so that no line is ever torn
        board = self._board(str(row.get("seed", "all")))
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in ("env_steps", "seed", "seeds"):
                tag = name.replace("eval_", "eval/", 1) if name.startswith("eval_") else f"train/{name}"
                board.add_scalar(tag, value, row["env_steps"])

    def settle(self) -> None:
        """Sees to it that all rows are on disk, and that the folder may be written to: a checkpoint tells of them."""
        self.check()
        if self._metrics is not None:
            os.fsync(self._metrics)

    def check(self) -> None:
        """Raises if the folder is gone or has become another process's. Nothing is written to it from then on."""
        if self.lease is not None:
            try:
                self.lease.check()
            except LeaseError:
                self._lost = True
                raise

    def rewind(self, rows: list[dict[str, Any]]) -> None:
        """Forgets all rows but these: what came after them will come again."""
        assert self._metrics is not None
        self.check()
        os.close(self._metrics)
        self.rows = rows
        self._open_metrics()

    def keep(self, seed: int, tree: Any) -> None:
        """Saves what one seed has learnt."""
        self.check()
        place = self.path / "weights" / str(seed)
        aside = place.with_name(f".{place.name}")
        shutil.rmtree(aside, ignore_errors=True)
        weights.save(aside, tree)
        put(aside, place)  # a run that goes on has kept something before

    def close(self, status: str, result: dict[str, Any] | None = None) -> None:
        """Completes the folder; afterwards it does not change."""
        if not self.opened or self.about.get("status") != RUNNING:
            return
        assert self._metrics is not None
        self.check()
        os.close(self._metrics)
        for board in self._boards.values():
            board.close()
        if result is not None:
            write(self.path / "result.json", (dumps(result, indent=2) + "\n").encode())
        drawn = curve.draw(self.rows, title=f"{self.about['algorithm']} on {self.about['env']}")
        write(self.path / "curve.png", drawn)
        self._status(status, self.path)

    def release(self) -> None:
        """Lets others write to the folder."""
        if self.lease is not None:
            self.lease.release()
            self._lost = True

    def abandon(self) -> None:
        """Says that the run was stopped at once. Safe from any thread."""
        if self.opened and self.about.get("status") == RUNNING:
            with suppress(LeaseError):
                self.check()
                self._status(INTERRUPTED, self.path)

    def _status(self, status: str, home: Path) -> None:
        self.about["status"] = status
        self.about["sha256"] = seal_of(self.about)
        write(home / "config.json", (dumps(self.about, indent=2) + "\n").encode())

    def _board(self, name: str) -> Any:
        if name not in self._boards:
            self._boards[name] = late("tensorboardX").SummaryWriter(str(self.path / "tensorboard" / name))
        return self._boards[name]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The metrics of a run folder, as far as they are whole."""
    rows = []
    file = path / "metrics.jsonl"
    text = file.read_text(errors="replace") if file.is_file() else ""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not _is_row(row):
            break
        rows.append(row)
    return rows


def _is_row(row: Any) -> bool:
    """Has it what is read again, each of its kind?"""
    if not isinstance(row, dict):
        return False
    known = {"env_steps": (int,), "seconds": (int, float), "episodes": (int,),
             **{name: (int, float, type(None)) for name in ("episode_return", "episode_length")}}
    return all(name in row and type(row[name]) in kind for name, kind in known.items()) and all(
        type(row.get(name, 0.0)) in (int, float, type(None)) for name in ("seed", "eval_return_mean"))
