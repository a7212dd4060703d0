"""Learners in several processes as one program over all their devices (`jax.distributed`).

In: an instance's part of a batch, and the state that all have alike. Out: the new state, and what the op returns to the
loop, the same for all. Gradients move by XLA's own collectives. Every process of the group must call it as often as the
others, with parts of one size; each device has an equal number of the learners.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from msrl.api.agreement import DEVICES
from msrl.engines.library import Ops
from msrl.engines.ops import divide, op_key, op_keys, strong
from msrl.ir.graph import Call


class Group:
    def __init__(self, ops: Ops, root: jax.Array):
        """`ops` are those of the whole world."""
        devices = jax.devices()
        self.mesh, self.root = Mesh(np.array(devices), (DEVICES,)), root
        self.ops = ops.part(range(ops.world.shards // len(devices)))  # of one device
        self.programs: dict[Any, Callable[..., Any]] = {}
        self.held: dict[int, tuple[Any, jax.Array]] = {}  # by identity: an array of this process → that of all

    def learn(self, node: Call, args: tuple, reads: tuple, compiled: Callable[[float], None]) -> tuple[Any, tuple]:
        """`compiled` is told the seconds that compiling took."""
        *states, count = reads
        args, dims = strong(args), self.ops.dims(node)
        op = self.ops.op("learner", "learn")
        axes = divide(op, args, {}, self.ops.world.num_envs, dims)[0]
        spread = jax.tree.map(lambda x, dim: self.share(x, dim), args, axes)
        given = (self.everywhere(self.root), self.everywhere(np.int32(count)),
                 jax.tree.map(self.everywhere, tuple(states)), spread)
        leaves, form = jax.tree.flatten(given)
        known = form, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if known not in self.programs:
            began = time.perf_counter()
            specs = (*[PartitionSpec()] * 3, jax.tree.map(spec, axes))
            program = jax.jit(jax.shard_map(self.program(dims), mesh=self.mesh, in_specs=specs,
                                            out_specs=PartitionSpec(), check_vma=False))
            self.programs[known] = program.lower(*given).compile()
            compiled(time.perf_counter() - began)
        made = self.programs[known](*given)
        leaves, form = jax.tree.flatten(made)
        mine = [leaf.addressable_data(0) for leaf in leaves]
        self.held = {id(local): (local, leaf) for local, leaf in zip(mine, leaves, strict=True)}
        out, written = jax.tree.unflatten(form, mine)
        return out, (*written, count + 1)

    def program(self, dims: Any) -> Callable[..., Any]:
        """What each device does."""
        op, run = self.ops.op("learner", "learn"), self.ops.fused("learner", "learn", dims)

        def learn(root: jax.Array, count: Any, states: tuple, args: tuple) -> Any:
            keys = op_keys(op_key(root, "learner", "learn"), op, self.ops.world)
            keys = (jax.vmap(jax.random.fold_in, (0, None)) if keys.ndim else jax.random.fold_in)(keys, count)
            return run(keys, states, args, {})

        return learn

    def everywhere(self, x: Any) -> jax.Array:
        """The same in all processes. What the group itself made is at hand in that form."""
        if id(x) in self.held:
            return self.held[id(x)][1]
        return self.put(x, PartitionSpec())

    def share(self, x: Any, dim: int) -> jax.Array:
        return self.put(x, spec(dim))

    def put(self, x: Any, where: PartitionSpec) -> jax.Array:
        sharding = NamedSharding(self.mesh, where)
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = self.put(jax.random.key_data(x), where)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))


def spec(dim: int) -> PartitionSpec:
    """Of a leaf that is divided among learners on this dimension; -1: of one that all have."""
    return PartitionSpec() if dim < 0 else PartitionSpec(*[None] * dim, DEVICES)
