"""Going on with a run: a run folder goes in, a `Job` and where to start come out.

What is read from the folder is data. What it names is resolved by `msrl.trust`: code that does not come with MSRL is
executed only if the user has named it. The settings are those that the checkpoint was made with; others are refused
unless the user gives them.
"""

import dataclasses
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msrl import algorithms
from msrl.deployment import FIELDS, Deployment
from msrl.errors import UsageError
from msrl.jobs import DEPLOYMENT, Job, about, lasting_algorithm, lasting_deployment, prepare
from msrl.results import Start, check_about, rewound
from msrl.runtime import checkpoints, threads
from msrl.runtime.files import dumps, seal
from msrl.runtime.fingerprint import FIXED, KEPT, differences, sealed
from msrl.runtime.folder import FINISHED, read_rows
from msrl.runtime.lease import FILE as LEASE
from msrl.runtime.lease import Lease
from msrl.runtime.reading import read_config
from msrl.trust import needs_flag, read_settings, resolve, resolve_deployment

DOCS = "docs/resuming.md"
BEGINNING = "resume       The run has no checkpoint yet: it starts again from the beginning."


@dataclass(frozen=True)
class Request:
    """What the user wants to go on with, and how. `given` are the fields that are to be others: of the algorithm's
    settings, of the deployment, and of KEPT."""

    path: Path
    checkpoint: str | None = None
    auto: bool = False
    algorithm: str | None = None
    env: Any = None
    deployment: Deployment | None = None
    own_process: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        return f"msrl resume {shlex.quote(str(self.path))}"

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.given.items() if name not in (*FIELDS, *KEPT)}


@dataclass(frozen=True)
class Point:
    """A checkpoint that is sound: its folder, what it says of itself, and what there is to say of it."""

    place: Path
    manifest: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def about(self) -> dict[str, Any]:
        return self.manifest["about"]


def resumed(path: Path, *, checkpoint: str | None = None, auto: bool = False, algorithm: str | None = None,
            env: Any = None, deployment: Deployment | None = None, own_process: bool = False, **given: Any
            ) -> tuple[Job, Start]:
    """What to go on with. `auto`: from an older checkpoint, if the newest is damaged. `given` as in a `Request`,
    `own_process` as in a `Job`. The folder's lease comes with the start, so that nobody else writes to what was read.
    """
    check_made(path)
    config = read_config(path)
    lease = Lease.take(path)
    try:
        job, start = _resumed(Request(path, checkpoint, auto, algorithm, env, deployment, own_process, given), config)
    except BaseException:
        lease.release()
        raise
    return job, dataclasses.replace(start, lease=lease)


def check_made(path: Path) -> None:
    """A run that was killed while it made its folder in one that was there already has left no config.json."""
    if (path / LEASE).is_file() and not os.path.lexists(path / "config.json"):
        raise UsageError(f"The run in {path} was killed while its folder was being made.",
                         why="It has no config.json, and nothing was trained yet.",
                         instead="Train it again, with the same command: the folder counts as empty.", docs=DOCS)


def _resumed(asked: Request, config: dict[str, Any]) -> tuple[Job, Start]:
    path, again = asked.path, asked.command
    check_further(asked, config)
    spread = {name: value for name, value in asked.given.items() if name in FIELDS}
    deployment = resolve_deployment(path / DEPLOYMENT, asked.deployment, spread, again)
    if asked.deployment is None:
        check_deployment(asked, config, spread)
    algorithm = resolve("algorithm", config["algorithm"], asked.algorithm, again)
    env = resolve("env", config["env_id"], asked.env, again)
    cls, kept = algorithms.load(algorithm), {name: asked.given.get(name, config[name]) for name in KEPT}
    settings = algorithms.configured(cls, read_settings(cls, config["config"], path), asked.settings)
    point = find(asked)
    check_settings(asked, config, point)
    job = prepare(algorithm, env, config=settings, seed=config["seeds"][0], seeds=len(config["seeds"]),
                  deployment=deployment, own_process=asked.own_process, **kept)
    if asked.own_process and deployment == Deployment.from_file(path / DEPLOYMENT):
        threads.recall(config["flags"])
    if point is None:
        return job, Start(None, [], notes=(BEGINNING,))
    try:
        return job, begin(path, point, job)
    except BaseException:
        if job.made:
            job.base.close()
        raise


def begin(path: Path, point: Point, job: Job) -> Start:
    """Reads the checkpoint. That starts JAX, so that all settings of the process have to be made before."""
    start = checkpoints.load(point.place)
    changed = differences(about(job), start.about["run"])
    if set(changed) - {"algorithm", "env_id"}:  # its loops may have other bounds now
        start = dataclasses.replace(start, about={**start.about, "graph": start.about["skeleton"]})
    rows = read_rows(path)
    notes = [*point.notes, f"resume       from the checkpoint {point.place.name}, after {start.env_steps:,} steps"]
    notes += [f"changed      {name} is {here} from here on; it was {there}" for name, (here, there) in changed.items()]
    if seal(rows[:start.about["rows"]]) != start.about["rows_sha256"]:
        notes.append(f"metrics      metrics.jsonl is not what the run wrote: of the {start.about['rows']} lines up to "
                     f"here, {min(len(rows), start.about['rows'])} can be read")
    return Start(*rewound(start, rows, start.about["done"]), notes=tuple(notes))


# -- what is refused ---------------------------------------------------------------------------------------------------


def check_deployment(asked: Request, config: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Is deployment.toml as the run has written it, as far as the user does not say otherwise?"""
    file = asked.path / DEPLOYMENT
    here, there = json.loads(dumps(dataclasses.asdict(Deployment.from_file(file)))), config.get("deployment")
    wrong = [name for name in here if isinstance(there, dict) and name not in given and here[name] != there.get(name)]
    if wrong:
        raise UsageError(f"{file} was changed since the run wrote it: {', '.join(wrong)}.",
                         why="\n".join(f"{name} is {here[name]!r:.60} there, and {there.get(name)!r:.60} in "
                                       "config.json." for name in wrong),
                         instead=f"Put it back as it was, or say that it is on purpose: {asked.command} --deployment "
                                 f"{shlex.quote(str(file))}", docs=DOCS)


def check_further(asked: Request, config: dict[str, Any]) -> None:
    if config["status"] == FINISHED and "total_steps" not in asked.settings:
        raise UsageError(
            f"The run {asked.path} is finished.", why="There is nothing left of it to do.",
            instead=f"Train it further, up to a higher number of steps: {asked.command} --total-steps N\n"
                    f"Play what it has learnt: msrl eval {shlex.quote(str(asked.path))}")


def check_settings(asked: Request, config: dict[str, Any], point: Point | None) -> None:
    """Is config.json as the run has written it, as far as the user does not say otherwise?"""
    whole = sealed(config)
    if point is None:
        if config["status"] == FINISHED:
            raise UsageError(f"The run {asked.path} cannot be trained further.", why="It has no checkpoint of its end.",
                             instead="Train again with more steps.", docs=DOCS)
        if not whole:
            raise UsageError(f"{asked.path / 'config.json'} was changed since the run wrote it.",
                             why="It does not have its checksum, and there is no checkpoint to tell what was changed.",
                             instead="Put it back as it was, or train again with the settings that you want.",
                             docs=DOCS)
        return
    told = point.about["run"]
    found = differences({**config, "config": {**config["config"], **asked.settings}}, told)
    mine = {"algorithm": asked.algorithm, "env_id": asked.env}
    wrong = {name: values for name, values in found.items() if name in FIXED or not (
        whole or name in asked.given or mine.get(name))}
    if wrong:
        raise UsageError(
            f"The run {asked.path} was made with other settings than its config.json says: {', '.join(wrong)}.",
            why="\n".join(f"{name} is {here!r:.60} there, and {there!r:.60} in the checkpoint {point.place.name}."
                          for name, (here, there) in wrong.items()),
            instead=f"Put back what was changed{on_purpose(asked, wrong)}.", docs=DOCS)
    steps, reached = asked.settings.get("total_steps"), point.about["env_steps"]
    if steps is not None and steps <= reached:
        raise UsageError(f"The run {asked.path} has made {reached:,} steps already.",
                         why=f"--total-steps {steps} counts from its beginning.",
                         instead=f"Give a higher number: {asked.command} --total-steps {2 * reached}", docs=DOCS)
    if config["status"] == FINISHED and len(config["seeds"]) > point.about["seeds"]:
        raise UsageError(f"The run {asked.path} cannot be trained further.",
                         why="Its seeds were trained one after another: there is no point at which all of them are.",
                         instead="Train each of its seeds in a run of its own.", docs=DOCS)


def on_purpose(asked: Request, wrong: Mapping[str, tuple[Any, Any]]) -> str:
    """How to say that settings are to be others."""
    if set(wrong) & {*FIXED, "algorithm", "env_id", "profile"}:
        return ""
    words = []
    for name, (here, _) in wrong.items():
        flag = name.replace("_", "-")
        words += [f"--{flag}" if here else f"--no-{flag}"] if isinstance(here, bool) else [
            f"--{flag}", *map(str, here if isinstance(here, list) else [here])]
    return f", or say that it is on purpose: {asked.command} {shlex.join(words)}"


def find(asked: Request) -> Point | None:
    """The checkpoint of that name, or the newest; None if the run has none yet."""
    there = checkpoints.listed(asked.path)
    if asked.checkpoint is not None:
        known = [each.name for each in there]
        if asked.checkpoint not in known:
            raise UsageError(f"The run {asked.path} has no checkpoint {asked.checkpoint!r}.",
                             why=f"It has {', '.join(known) or 'none'}.",
                             instead="Leave --checkpoint out for the newest.")
        there = [there[known.index(asked.checkpoint)]]
    notes: list[str] = []
    for place in reversed(there):
        try:
            manifest = checkpoints.read_manifest(place)
            check_about(place, manifest)
            return Point(place, manifest, tuple(notes))
        except checkpoints.Unsound as problem:
            if not asked.auto:
                raise checkpoints.refused(place, problem) from problem
            notes.append(f"damaged      {place.name}: {problem}")
    if there:
        raise UsageError(f"No checkpoint of the run {asked.path} can be used.", why="\n".join(
            note.removeprefix("damaged      ") for note in notes),
            instead=f"Train again: sh {asked.path / 'reproduce.sh'}", docs=DOCS)
    return None


def command(job: Job, path: Path | str) -> str:
    """The line for a shell that goes on with a run, with all that the user has to name."""
    deployment = lasting_deployment(job)
    said = {"algorithm": lasting_algorithm(job), "env": about(job)["env_id"], "distribution": deployment.distribution}
    words = [f"--{kind}={value}" for kind, value in said.items() if needs_flag(kind, value)]
    words += [f"--address={deployment.address}"] if deployment.address else []
    return shlex.join(["msrl", "resume", str(path), *words])
