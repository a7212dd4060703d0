"""Going on with a run: a run folder goes in, a `Job` and where to start come out.

What is read from the folder is data. What it names is resolved by `msrl.trust`: code that does not come with MSRL is
executed only if the user has named it.
"""

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from msrl import algorithms
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.jobs import DEPLOYMENT, Job, about, lasting_algorithm, lasting_deployment, prepare
from msrl.results import Start, rewound
from msrl.runtime import checkpoints, threads
from msrl.runtime.folder import FINISHED, read_rows
from msrl.runtime.lease import FILE as LEASE
from msrl.runtime.lease import Lease
from msrl.runtime.reading import read_config
from msrl.trust import needs_flag, read_settings, resolve, resolve_deployment

KEPT = ("strict", "eval_every", "eval_episodes", "checkpoint_every", "checkpoint_keep", "restarts", "env_timeout",
        "profile", "non_finite")  # of what a command was given, beside the algorithm's settings and the deployment's


BEGINNING = "resume       The run has no checkpoint yet: it starts again from the beginning."


def resumed(path: Path, checkpoint: str | None = None, algorithm: str | None = None, env: str | None = None,
            deployment: Deployment | None = None, non_finite: str | None = None, own_process: bool = False,
            **flags: Any) -> tuple[Job, Start]:
    """`flags` are the deployment's fields that are to be others than those of the run, or of `deployment`; what becomes
    of an update that is `non_finite` may be another thing, too. `own_process` as in a `Job`. The folder's lease comes
    with the start, so that nobody else writes to what was read."""
    check_made(path)
    config = read_config(path)
    lease = Lease.take(path)
    try:
        job, start = _resumed(path, config, checkpoint, algorithm, env, deployment, non_finite, own_process, flags)
    except BaseException:
        lease.release()
        raise
    return job, dataclasses.replace(start, lease=lease)


def _resumed(path: Path, config: dict[str, Any], checkpoint: str | None, algorithm: str | None, env: str | None,
             deployment: Deployment | None, non_finite: str | None, own_process: bool, flags: dict[str, Any]
             ) -> tuple[Job, Start]:
    if config.get("status") == FINISHED:
        raise UsageError(f"The run {path} is finished.", why="There is nothing left of it to do.",
                         instead=f"Play what it has learnt: msrl eval {path}")
    place, again = find(path, checkpoint), f"msrl resume {shlex.quote(str(path))}"
    placed = resolve_deployment(path / DEPLOYMENT, deployment, flags, again)
    algorithm = resolve("algorithm", config["algorithm"], algorithm, again)
    env = resolve("env", config["env_id"], env, again)
    kept = {name: config[name] for name in KEPT} | ({} if non_finite is None else {"non_finite": non_finite})
    settings = read_settings(algorithms.load(algorithm), config["config"], path)
    job = prepare(algorithm, env, config=settings, seed=config["seeds"][0], seeds=len(config["seeds"]),
                  deployment=placed, own_process=own_process, **kept)
    if own_process and placed == Deployment.from_file(path / DEPLOYMENT):
        threads.recall(config["flags"])
    if place is None:
        return job, Start(None, [], notes=(BEGINNING,))
    start = checkpoints.load(place)  # after settings are made, as reading starts JAX
    return job, Start(*rewound(start, read_rows(path), start.about["done"]))


def check_made(path: Path) -> None:
    """A run that was killed while it made its folder in one that was there already has left no config.json."""
    if (path / LEASE).is_file() and not os.path.lexists(path / "config.json"):
        raise UsageError(f"The run in {path} was killed while its folder was being made.",
                         why="It has no config.json, and nothing was trained yet.",
                         instead="Train it again, with the same command: the folder counts as empty.",
                         docs="docs/resuming.md")


def find(path: Path, name: str | None) -> Path | None:
    """The checkpoint of that name, or the newest; None if the run has none yet."""
    there = checkpoints.listed(path)
    if name is None:
        return there[-1] if there else None
    known = [each.name for each in there]
    if name not in known:
        raise UsageError(f"The run {path} has no checkpoint {name!r}.",
                         why=f"It has {', '.join(known) or 'none'}.", instead="Leave --checkpoint out for the newest.")
    return there[known.index(name)]


def command(job: Job, path: Path | str) -> str:
    """The line for a shell that goes on with a run, with all that the user has to name."""
    deployment = lasting_deployment(job)
    said = {"algorithm": lasting_algorithm(job), "env": about(job)["env_id"], "distribution": deployment.distribution}
    words = [f"--{kind}={value}" for kind, value in said.items() if needs_flag(kind, value)]
    words += [f"--address={deployment.address}"] if deployment.address else []
    return shlex.join(["msrl", "resume", str(path), *words])
