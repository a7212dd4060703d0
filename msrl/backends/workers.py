"""Local programs × instances → workers, with the channels between them."""

import itertools

import jax

from msrl.backends.worker import Worker
from msrl.engines.library import Ops
from msrl.engines.shapes import Shapes, local_shapes
from msrl.errors import UsageError
from msrl.ir.placed import PlacedGraph
from msrl.projection.project import project
from msrl.runtime.channels import Exchange


def make_workers(placed: PlacedGraph, ops: Ops, shapes: Shapes, root: jax.Array, strict: bool,
                 actors: int) -> list[Worker]:
    """Workers in the order of fragments and instances. `actors`: instances of what is replicated."""
    world = ops.world
    runs = {fragment.name: shard_runs(world.shards, actors) if fragment.axis else [range(world.shards)]
            for fragment in placed.fragments}
    exchange = Exchange(placed.moves, {name: tuple(len(run) * world.envs_per_shard for run in mine)
                                       for name, mine in runs.items()})
    workers = []
    for name, program in project(placed).items():
        for instance, run in enumerate(runs[name]):
            mine = ops.part(run) if len(runs[name]) > 1 else ops
            local = local_shapes(shapes, dict(placed.axes), world.num_envs, mine.world.num_envs)
            workers.append(Worker(program, instance, local, mine, root, strict, exchange))
    return workers


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
