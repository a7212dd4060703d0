"""What a run begins with and what it ends with, as plain data."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msrl.engines.evaluation import Episodes
from msrl.pipeline import Program, Update
from msrl.runtime.checkpoints import Checkpoint, Unsound, name_of
from msrl.runtime.lease import Lease


@dataclass(frozen=True)
class Start:
    """Where a run goes on: at a checkpoint, or from the beginning if there is none yet."""

    checkpoint: Checkpoint | None
    rows: list[dict[str, Any]]  # of the metrics so far
    lease: Lease | None = None  # of the run folder
    notes: tuple[str, ...] = ()  # what to say of it


class Stopped(Exception):
    """The run was stopped before there was a result to give: before its first update, or with workers gone.
    `checkpoint`: is there one to go on from? `steps`: where that is."""

    def __init__(self, checkpoint: bool, steps: int):
        super().__init__()
        self.checkpoint, self.steps = checkpoint, steps


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


NUMBER = (int, float)
COUNTS = ("env_steps", "counted", "rows", "env_steps_done", "stream")
ABOUT: dict[str, tuple[type, ...]] = {  # what a checkpoint of a run says of it, as far as it is read again
    "graph": (str,), "skeleton": (str,), "seed": (int,), "seeds": (int,), "strict": (bool,), "stream": (int,),
    "env_steps": (int,), "episodes": (list,), "counted": (int,), "ledger": (dict,), "updates_skipped": (int, list),
    "rows": (int,), "rows_sha256": (str,), "done": (list,), "env_steps_done": (int,), "returns": (list,),
    "run": (dict,)}
LEDGER: dict[str, tuple[type, ...]] = {"produced": (int,), "trained": (int,), "in_flight": (int,), "dropped": (dict,)}
SEED: dict[str, tuple[type, ...]] = {
    "seed": (int,), "env_steps": (int,), "eval_return_mean": (*NUMBER, type(None)), "weights_sha256": (str,)}


def check_about(path: Path, manifest: dict[str, Any]) -> None:
    """Raises `Unsound` where a checkpoint's manifest lacks what a run goes on with, or has it of another kind: it may
    be of another version, or nobody knows whose."""
    about = manifest["about"]
    _check_kinds(about, ABOUT, "")
    _check_kinds(about["ledger"], LEDGER, "ledger.")
    for each in about["done"]:
        _check_kinds(each, SEED, "done.")
    _check_kinds(about["run"], {"config": (dict,), "seeds": (list,)}, "run.")
    skipped = about["updates_skipped"]
    for name, values in (("episodes", about["episodes"]), ("dropped", list(about["ledger"]["dropped"].values())),
                         ("updates_skipped", skipped if isinstance(skipped, list) else [skipped]),
                         *(("returns", each) for each in about["returns"])):
        if not isinstance(values, list) or any(type(value) not in NUMBER for value in values):
            raise Unsound(f"It is damaged: {name} in its manifest.json is {values!r:.60}.")
    if len(about["episodes"]) != 3 or about["seeds"] < 1 or min(about[name] for name in COUNTS) < 0:
        raise Unsound("It is damaged: its manifest.json has numbers that cannot be.")
    if path.name != name_of(about["seed"], manifest["update"]):
        raise Unsound(f"It is the checkpoint {name_of(about['seed'], manifest['update'])} under another name.")


def _check_kinds(found: Any, kinds: dict[str, tuple[type, ...]], where: str) -> None:
    for name, kind in kinds.items():
        value = found.get(name) if isinstance(found, dict) else None
        if type(value) not in kind or (type(value) is int and abs(value) >= 2**63):
            raise Unsound(f"It is damaged, or of another version: {where}{name} in its manifest.json is {value!r:.60}.")


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


def row_of(program: Program, update: Update, seconds: float, judged: list[Episodes], skips: bool) -> dict[str, Any]:
    """What metrics.jsonl says of an update. `skips`: may updates that are not finite be left out?"""
    row: dict[str, Any] = {"seed": program.seed} if program.seeds == 1 else {"seeds": program.seeds}
    row |= {"env_steps": update.env_steps, "seconds": round(seconds, 3), "episodes": update.episodes,
            "episode_return": update.episode_return, "episode_length": update.episode_length, "steps": update.accounts}
    row |= {"updates_skipped": update.updates_skipped} if skips else {}
    row |= {name if name not in row else f"metric/{name}": value for name, value in update.metrics.items()}
    return row | {name: value for name, value in score_of(judged).items() if value is not None}


def interquartile_mean(values: list[float]) -> float:
    """The mean without the highest and the lowest quarter (rounded down)."""
    cut = len(values) // 4
    return float(np.mean(np.sort(values)[cut:len(values) - cut]))


def score_of(judged: list[Episodes]) -> dict[str, float | None]:
    if not judged:
        return {"eval_return_mean": None, "eval_return_std": None}
    returns = np.concatenate([np.asarray(episodes.returns) for episodes in judged])
    return {"eval_return_mean": float(returns.mean()), "eval_return_std": float(returns.std())}
