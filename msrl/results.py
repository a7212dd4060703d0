"""What a run begins with and what it ends with, as plain data; and errors that say how a run can go on."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msrl.engines.evaluation import Episodes
from msrl.errors import ClusterError, LostError, MsrlError, RunError
from msrl.pipeline import Update
from msrl.runtime.checkpoints import Checkpoint, newest
from msrl.runtime.disk import is_full, reason


@dataclass(frozen=True)
class Start:
    """Where a run goes on: at a checkpoint, or from the beginning if there is none yet."""

    checkpoint: Checkpoint | None
    rows: list[dict[str, Any]]  # of the metrics so far


@dataclass(frozen=True)
class Result:
    """How a run went. Evaluation is None where a run was stopped before it."""

    algorithm: str
    env: str
    env_id: str  # the one that was picked
    distribution: str
    backend: str
    seed: int
    seeds: int
    status: str  # finished or interrupted
    env_steps: int  # of all seeds
    compile_seconds: float
    train_seconds: float
    total_seconds: float
    steps_per_second: float
    eval_return_mean: float | None  # over all seeds' episodes
    eval_return_std: float | None
    eval_return_iqm: float | None  # interquartile mean of the seeds' means
    eval_episodes: int  # of each seed
    weights_sha256: str
    per_seed: list[dict[str, Any]]
    run_dir: str | None
    resumable: bool  # is there a checkpoint of what was reached?
    restarts: int = 0  # how often it went on after a worker was lost
    updates_skipped: int = 0  # that were not finite, of all seeds
    profile: dict[str, Any] | None = None  # where the time went (docs/profiling.md), if that was asked for
    params: Any = field(repr=False, default=None)  # of the one seed, or a list
    curve: list[Update] = field(repr=False, default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The numbers alone, as for JSON."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)
                if each.name not in ("params", "curve")}


def rewound(start: Checkpoint | None, rows: list[dict[str, Any]], done: list[dict[str, Any]]
            ) -> tuple[Checkpoint | None, list[dict[str, Any]]]:
    """What a run goes on from, and the rows that are left of it: those up to that point; without one, of the seeds that
    are `done`. Episodes are then those that the rows tell of, as a row may speak of some workers as they were before
    the point and of others as they were after it."""
    seeds = [each["seed"] for each in done]
    if start is None:
        return None, [row for row in rows if row.get("seed") in seeds]
    # By their number: how many steps a row tells of depends on who had been heard of.
    rows = rows[:start.about["rows"]]
    mine = [row for row in rows if row.get("seed") not in seeds]
    told = [float(sum(row["episodes"] for row in mine))]
    for name in ("episode_return", "episode_length"):
        told.append(sum(row["episodes"] * (row[name] or 0.0) for row in mine))
    return dataclasses.replace(start, about={**start.about, "episodes": told}), rows


def interquartile_mean(values: list[float]) -> float:
    """The mean without the highest and the lowest quarter (rounded down)."""
    cut = len(values) // 4
    return float(np.mean(np.sort(values)[cut:len(values) - cut]))


def score_of(judged: list[Episodes]) -> dict[str, float | None]:
    if not judged:
        return {"eval_return_mean": None, "eval_return_std": None}
    returns = np.concatenate([np.asarray(episodes.returns) for episodes in judged])
    return {"eval_return_mean": float(returns.mean()), "eval_return_std": float(returns.std())}


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """A run that has to end, through no fault of the algorithm's, says how it can go on."""
    try:
        yield
    except (LostError, ClusterError) as error:
        sound = newest(path) if path else None
        if sound is None:
            raise
        raise error.retold(instead=f"{error.instead}\nThe run can go on from {sound}: msrl resume {path}") from error
    except Exception as error:
        if path is None or isinstance(error, MsrlError) or not is_full(error):
            raise
        sound = newest(path)
        then = f"go on from its checkpoint {sound.name}, which is whole: msrl resume {path}" if sound else \
            f"train again, as there was no checkpoint yet: sh {path / 'reproduce.sh'}"
        raise RunError(f"The run in {path} had to end: its disk is full.", why=f"{reason(error)}.",
                       instead=f"Make room, then {then}") from error
