"""One program on several devices: a local program goes in, a program over a mesh comes out (`jax.shard_map`).

Each device has an equal run of the shards and of the learners. A name that is divided among shards is laid out along
the mesh on that dimension, a component's states on their leading one; all else is the same on every device. A gather
among instances becomes an all-gather of the devices, and learners agree by a collective.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from msrl.api.agreement import DEVICES
from msrl.engines.group import threads_suffice
from msrl.engines.library import Ops
from msrl.engines.ops import leaf_tree
from msrl.engines.parts import local_shapes
from msrl.engines.shapes import Shapes
from msrl.errors import UsageError
from msrl.ir.graph import base, is_resource
from msrl.ir.placed import LocalProgram, Move


@dataclass(frozen=True)
class Devices:
    mesh: Mesh
    ops: Ops  # of one device
    shapes: Shapes  # of one device
    whole: Shapes
    axes: Mapping[str, int]
    parts: Mapping[str, tuple[str, int | None]]  # what was cut from which name, on which dimension; None: leaf by leaf
    moves: Mapping[str, Move]

    def spec(self, name: str) -> Any:
        if is_resource(name):
            return PartitionSpec(DEVICES) if self.stacked(name) else PartitionSpec()
        of, dim = self.parts.get(name, (name, self.axes.get(name)))
        tree = self.whole.names[of] if name in self.parts or dim is not None else None
        if tree is None:
            return PartitionSpec()
        dims = leaf_tree((tree,), (self.ops.layouts.rows(of),))[0] if dim is None else jax.tree.map(
            lambda x: dim if len(x.shape) > dim else -1, tree)
        return jax.tree.map(lambda at: PartitionSpec(*[None] * at, DEVICES) if at >= 0 else PartitionSpec(), dims)

    def stacked(self, name: str) -> bool:
        """Is it a state that each shard or learner has one of?"""
        return name.startswith("$") and self.ops.world.over(base(name)[1:]) is not None

    def spread(self, program: Callable[..., tuple], names: tuple[tuple[str, ...], ...], others: int,
               out: tuple[str, ...]) -> Callable[..., tuple]:
        """`program` takes tuples of these names, then `others` that are the same everywhere, then guards, of which
        each device has its own; it returns a tuple of the names `out`, and the guards."""
        own = PartitionSpec(DEVICES)
        specs = (*(tuple(map(self.spec, group)) for group in names), *[PartitionSpec()] * others, own)

        def local(*args: Any) -> tuple:
            given = [tuple(map(self.enter, group, values)) for group, values in zip(names, args)]
            *values, guards = program(*given, *args[len(names):-1], jax.tree.map(lambda x: x[0], args[-1]))
            return (*map(self.leave, out, values), jax.tree.map(lambda x: x[None], guards))

        return jax.shard_map(local, mesh=self.mesh, in_specs=specs, out_specs=(*map(self.spec, out), own),
                             check_vma=False)

    # A device with one shard works on its state as it is, without a leading dimension.

    def enter(self, name: str, value: Any) -> Any:
        return jax.tree.map(lambda x: x[0], value) if self.alone(name) else value

    def leave(self, name: str, value: Any) -> Any:
        return jax.tree.map(lambda x: x[None], value) if self.alone(name) else value

    def alone(self, name: str) -> bool:
        return self.stacked(name) and len(self.ops.world.span(self.ops.world.over(base(name)[1:]))) == 1


def use_devices(program: LocalProgram, ops: Ops, shapes: Shapes, moves: tuple[Move, ...], count: int) -> None:
    """Lets the ops' programs run on `count` devices."""
    if count == 1:
        return
    config, found = ops.world.config, jax.devices()
    if count > len(found):
        raise UsageError(
            f"There are {len(found)} devices, and {count} are asked for.",
            why=f"JAX finds {', '.join(map(str, found))}.",
            instead=f"Use --learners {len(found)} or fewer; for trial, a CPU can stand for several: "
                    f"XLA_FLAGS=--xla_force_host_platform_device_count={count} PJRT_NPROC={2 * count}.")
    if config.learner_shards % count:
        raise UsageError(
            f"{config.learner_shards} learner shards cannot be divided evenly among {count} devices.",
            why="All devices run the same program, so each has the same number of learners.",
            instead=f"Use --learner-shards with a multiple of {count} (and --shards with a multiple of that).")
    if not threads_suffice(count):
        threads = int(os.environ.get("PJRT_NPROC", os.cpu_count() or 1))
        raise UsageError(
            f"{count} devices on a CPU need {2 * count} threads, and JAX has {threads}.",
            why="They wait for one another at every gradient, and with fewer threads for ever.",
            instead=f"Set PJRT_NPROC={2 * count} in the environment.")
    mine = ops.part(range(config.shards // count))
    local = local_shapes(shapes, dict(ops.axes), config.num_envs, mine.world.num_envs)
    parts = {out: (source, dim) for out, source, dim in program.parts}
    ops.devices = Devices(Mesh(np.array(found[:count]), (DEVICES,)), mine, local, shapes, ops.axes, parts,
                          {move.id: move for move in moves})
