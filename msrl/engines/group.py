"""Learners of several instances as one program over all their devices, by `jax.shard_map`.

In: each instance's part of a batch, and the state that all have alike. Out: the new state, what the op returns to
the loop, and what each device finds not to be finite, the same for all. Gradients move by XLA's own collectives. Each
device has an equal number of the learners. A `Group` is of instances in one process, each with a device of its own; a
`GroupOfProcesses` is of instances in several (`jax.distributed`), all of which must call it as often as the others.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src import distributed, xla_bridge  # JAX has no public way to say where its collectives listen
from jax._src.lib import _jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from msrl.api.agreement import DEVICES
from msrl.engines.finite import not_finite
from msrl.engines.library import Ops
from msrl.engines.ops import leaf_tree, op_keys, strong
from msrl.ir.graph import Call

Compiled = Callable[[float], None]  # is told the seconds that compiling took


def join_processes(meeting: str, size: int, number: int, host: str) -> None:
    """Makes this process one of `size` that find one another at `meeting`, an address with a port. It listens at `host`
    alone. Left to itself, JAX listens wherever the machine's name leads: on a network that nobody has asked for, or
    nowhere. Goes before JAX starts its backend."""
    jax.distributed.initialize(meeting, size, number, coordinator_bind_address=meeting)
    collectives = _jax.make_gloo_tcp_collectives(distributed_client=distributed.global_state.client, hostname=host)
    xla_bridge.register_backend_factory("cpu", partial(xla_bridge.make_cpu_client, collectives), priority=0,
                                        fail_quietly=False)


class Group:
    def __init__(self, ops: Ops, devices: Sequence[Any]):
        """`ops` are those of the whole world."""
        self.devices, self.mesh = list(devices), Mesh(np.array(devices), (DEVICES,))
        self.ops = ops.part(range(ops.world.shards // len(self.devices)))  # of one device
        self.programs: dict[Any, Callable[..., Any]] = {}

    def learn(self, node: Call, parts: list[tuple[jax.Array, tuple, tuple]], compiled: Compiled) -> list[Any]:
        """For each instance, of (root key, arguments, resources): (value, resources written, flags of all devices)."""
        given = [(root, np.int32(reads[-1]), tuple(reads[:-1]), strong(args)) for root, args, reads in parts]
        axes = leaf_tree(given[0][-1], self.ops.layouts.of(node).rows)
        alike = jax.tree.map(lambda _: -1, given[0][:3])
        specs = jax.tree.map(spec, (*alike, axes))
        whole = jax.tree.map(lambda where, *xs: self.join(xs, where), specs, *given,
                             is_leaf=lambda x: isinstance(x, PartitionSpec))
        made = self.program(node, axes, whole, compiled)(*whole)
        found = []
        for number, (*_, reads) in enumerate(parts):
            out, written, flags = jax.tree.map(lambda x, at=number: x.addressable_shards[at].data, made)
            found.append((out, (*written, reads[-1] + 1), flags))
        return found

    def join(self, parts: Sequence[Any], where: PartitionSpec) -> jax.Array:
        """One array of those that the devices have."""
        mine = [jax.device_put(x, device) for x, device in zip(parts, self.devices, strict=True)]
        dim = list(where).index(DEVICES) if len(where) else None
        shape = tuple(size * (len(mine) if at == dim else 1) for at, size in enumerate(mine[0].shape))
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, where), mine)

    def program(self, node: Call, axes: Any, given: tuple, compiled: Compiled) -> Callable[..., Any]:
        """What runs on all devices, for arguments like these."""
        leaves, form = jax.tree.flatten(given)
        known = form, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if known not in self.programs:
            began = time.perf_counter()
            specs = (*[PartitionSpec()] * 3, jax.tree.map(spec, axes))
            program = jax.jit(jax.shard_map(self.on_each(node), mesh=self.mesh, in_specs=specs,
                                            out_specs=PartitionSpec(), check_vma=False))
            self.programs[known] = program.lower(*given).compile()
            compiled(time.perf_counter() - began)
        return self.programs[known]

    def on_each(self, node: Call) -> Callable[..., Any]:
        op, run = self.ops.op("learner", "learn"), self.ops.fused("learner", "learn", self.ops.layouts.of(node))

        def learn(root: jax.Array, count: Any, states: tuple, args: tuple) -> Any:
            keys = op_keys(root, {("learner", "learn"): op}, self.ops.world)["learner", "learn"]
            keys = (jax.vmap(jax.random.fold_in, (0, None)) if keys.ndim else jax.random.fold_in)(keys, count)
            out, written = run(keys, states, args, {})
            if self.ops.non_finite == "ignore":
                return out, written, None
            return out, written, jax.lax.all_gather(not_finite(args, out, written[0]), DEVICES)  # (devices, n)

        return learn


class GroupOfProcesses(Group):
    def __init__(self, ops: Ops):
        super().__init__(ops, devices_of_all(ops.world.config.learner_shards))
        self.held: dict[int, tuple[Any, jax.Array]] = {}  # by identity: an array of this process → that of all

    def learn(self, node: Call, parts: list[tuple[jax.Array, tuple, tuple]], compiled: Compiled) -> list[Any]:
        ((root, args, reads),) = parts
        args = strong(args)
        axes = leaf_tree(args, self.ops.layouts.of(node).rows)
        given = (self.everywhere(root), self.everywhere(np.int32(reads[-1])),
                 jax.tree.map(self.everywhere, tuple(reads[:-1])),
                 jax.tree.map(lambda x, dim: self.put(x, spec(dim)), args, axes))
        leaves, form = jax.tree.flatten(self.program(node, axes, given, compiled)(*given))
        mine = [leaf.addressable_data(0) for leaf in leaves]
        self.held = {id(local): (local, leaf) for local, leaf in zip(mine, leaves, strict=True)}
        out, written, flags = jax.tree.unflatten(form, mine)
        return [(out, (*written, reads[-1] + 1), flags)]

    def everywhere(self, x: Any) -> jax.Array:
        """The same in all processes. What the group itself made is at hand in that form."""
        return self.held[id(x)][1] if id(x) in self.held else self.put(x, PartitionSpec())

    def put(self, x: Any, where: PartitionSpec) -> jax.Array:
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(self.put(jax.random.key_data(x), where), impl=jax.random.key_impl(x))
        return jax.make_array_from_process_local_data(NamedSharding(self.mesh, where), np.asarray(x))


def devices_of_all(learners: int) -> list[Any]:
    """The devices of all processes: of each as many as its part of the learners can be divided among evenly."""
    found = [[device for device in jax.devices() if device.process_index == number]
             for number in range(jax.process_count())]
    count = max(count for count in range(1, min(map(len, found)) + 1)
                if learners // len(found) % count == 0 and (count == 1 or threads_suffice(count)))
    return [device for devices in found for device in devices[:count]]


def spec(dim: int) -> PartitionSpec:
    """Of a leaf that is divided among learners on this dimension; -1: of one that all have."""
    return PartitionSpec() if dim < 0 else PartitionSpec(*[None] * dim, DEVICES)


def threads() -> int:
    """That XLA computes with on a CPU."""
    return int(os.environ.get("PJRT_NPROC", os.cpu_count() or 1))


def threads_suffice(devices: int) -> bool:
    """Devices of a CPU that wait for one another hold a thread each; the last to arrive needs some to work with."""
    return jax.devices()[0].platform != "cpu" or threads() >= 2 * devices
