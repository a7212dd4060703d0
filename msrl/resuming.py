"""Going on with a run: a run folder goes in, a `Job` and where to start come out.

What is read from the folder is data. A trainer, an environment or a distribution in a file of one's own is code, which
is executed only if the user names it again.
"""

from pathlib import Path
from typing import Any

from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.jobs import DEPLOYMENT, Job, prepare
from msrl.playing import tuples
from msrl.running import Start
from msrl.runtime import checkpoints
from msrl.runtime.folder import FINISHED, read_config, read_rows


def resumed(path: Path, checkpoint: str | None = None, algorithm: str | None = None, env: str | None = None,
            deployment: Deployment | None = None, **flags: Any) -> tuple[Job, Start]:
    """`flags` are the deployment's fields that are to be others than those of the run, or of `deployment`."""
    about = read_config(path)
    if about.get("status") == FINISHED:
        raise UsageError(f"The run {path} is finished.", why="There is nothing left of it to do.",
                         instead=f"Play what it has learnt: msrl eval {path}")
    place = find(path, checkpoint)
    placed = deployment or Deployment.from_file(path / DEPLOYMENT)
    if deployment is None and "distribution" not in flags:
        named(placed.distribution, None, "distribution", path)
    algorithm = named(about["algorithm"], algorithm, "algorithm", path)
    env = named(about["env_id"], env, "env", path)
    settings = {name: tuples(value) for name, value in about["config"].items()}
    try:
        job = prepare(algorithm, env, seed=about["seeds"][0], seeds=len(about["seeds"]), strict=about["strict"],
                      eval_every=about["eval_every"], eval_episodes=about["eval_episodes"],
                      checkpoint_every=about["checkpoint_every"], checkpoint_keep=about["checkpoint_keep"],
                      profile=about["profile"],
                      deployment=placed.replace(**flags), **settings)
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{path} is not a run folder that can be resumed.",
                         why=f"Its config.json is not one that this version of MSRL writes: {error!r}.",
                         instead="Use the version of MSRL that it was made with.") from error
    if place is None:
        return job, Start(None, [])
    rows = read_rows(path)
    start = checkpoints.load(place)  # after strict mode's settings are made, as reading starts JAX
    done = [seed["seed"] for seed in start.about["done"]]
    return job, Start(start, [row for row in rows if row.get("seed") in done or row["env_steps"] <= start.env_steps])


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


def named(said: str, given: str | None, flag: str, path: Path) -> str:
    """What the folder says, unless that is a file: its code is executed only if the user says so."""
    if given is not None:
        return given
    if said.rpartition(":")[0].endswith(".py"):
        raise UsageError(f"The run's {flag} is a file, {said}.",
                         why="What a run folder names is not executed unless you name it, too.",
                         instead=f"Go on with: msrl resume {path} --{flag} {said}")
    return said
