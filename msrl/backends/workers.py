"""Local programs × instances → workers, with the channels between them, and the backend that runs them."""

import importlib
import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax

from msrl.api import Env, Trainer
from msrl.backends.inline import Inline
from msrl.backends.remote import assign
from msrl.backends.threads import Threads
from msrl.backends.worker import Worker
from msrl.engines.devices import use_devices
from msrl.engines.library import Ops
from msrl.engines.shapes import Shapes, local_shapes
from msrl.errors import UsageError
from msrl.ir.placed import Fragment, PlacedGraph
from msrl.projection.project import project
from msrl.runtime.channels import Exchange


def make_workers(placed: PlacedGraph, ops: Ops, shapes: Shapes, root: jax.Array, strict: bool,
                 actors: int, learners: int = 1, devices: int = 1) -> list[Worker]:
    """Workers in the order of fragments and instances. `actors` and `learners`: instances of what is replicated,
    without and with the learner. On several `devices`, one worker has all."""
    world = ops.world

    def instances(fragment: Fragment) -> list[range]:
        if fragment.axis is None:
            return [range(world.shards)]
        if "learner" not in fragment.components:
            return shard_runs(world.shards, actors)
        return learner_runs(world.shards, world.config.learner_shards, learners)

    runs = {fragment.name: instances(fragment) for fragment in placed.fragments}
    exchange = Exchange(placed.moves, {name: tuple(len(run) * world.envs_per_shard for run in mine)
                                       for name, mine in runs.items()})
    workers = []
    for name, program in project(placed).items():
        if devices > 1:
            use_devices(program, ops, shapes, placed.moves, devices)
        for instance, run in enumerate(runs[name]):
            mine = ops.part(run) if len(runs[name]) > 1 else ops
            local = local_shapes(shapes, dict(placed.axes), world.num_envs, mine.world.num_envs)
            workers.append(Worker(program, instance, local, mine, root, strict, exchange))
    return workers


def learner_runs(shards: int, learner_shards: int, instances: int) -> list[range]:
    """The shards of contiguous, nearly equal runs of learners."""
    if not 1 <= instances <= learner_shards:
        raise UsageError(
            f"{learner_shards} learner shards cannot be divided among {instances} instances.",
            why="A learner shard is the unit of replication, and each instance needs at least one.",
            instead=f"Use --learners {learner_shards} or fewer, or give the algorithm more: "
                    f"--learner-shards {instances} (and --shards {instances} or a multiple).")
    each = shards // learner_shards
    return [range(run.start * each, run.stop * each) for run in shard_runs(learner_shards, instances)]


def shard_runs(shards: int, instances: int) -> list[range]:
    """Contiguous, nearly equal runs of the shards."""
    if not 1 <= instances <= shards:
        raise UsageError(
            f"{shards} shards cannot be divided among {instances} instances.",
            why="A shard is the unit of replication, and each instance needs at least one.",
            instead=f"Use --actors {shards} or fewer, or give the algorithm more: --shards {instances}.")
    least, more = divmod(shards, instances)
    ends = [0]
    for instance in range(instances):
        ends.append(ends[-1] + least + (instance < more))
    return [range(start, stop) for start, stop in itertools.pairwise(ends)]


def make_backend(name: str, workers: list[Worker], placed: PlacedGraph, trainer: Trainer, env: Env, *, seed: int,
                 seeds: int, address: str | None = None, hosts: Sequence[str] = ()) -> Any:
    """What runs the workers. Under ray they stay here as mirrors of those at work, `address` names the cluster, and
    they go to the `hosts` in turn, or wherever there is room."""
    match name:
        case "inline":
            return Inline(workers)
        case "threads":
            return Threads(workers)
        case "ray":
            module = ray_backend()
            return module.RayBackend(workers, assign(workers, placed, trainer, env, seed=seed, seeds=seeds), address,
                                     tuple(hosts))
    raise UsageError(f"There is no backend {name!r}.", why="The backends are inline, threads and ray.",
                     instead="Use one of these.")


def ray_backend() -> ModuleType:
    """Imported when it is asked for: Ray is an extra, and takes a second to import."""
    try:
        return importlib.import_module("msrl.backends.ray_backend")
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "ray":
            raise
        raise UsageError("The ray backend needs Ray, which is not installed.",
                         why="Ray is an optional extra, since one machine does not need it.",
                         instead="pip install 'msrl[ray]', or use --backend threads.") from missing
