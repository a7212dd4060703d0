"""A world's ops, each made once and shared by all that run or study them.

`alone` runs an op for one shard at the shard's own shape, `fused` for all shards at once on whole values; the rest
tells what ops return without running them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from msrl.api import Record
from msrl.engines.ops import Op, World, alone, divided, fuse, make_op
from msrl.engines.scopes import Scopes


class Ops:
    """One per world. Functions are cached, so that JAX traces and compiles each op once."""

    def __init__(self, world: World):
        self.world = world
        self.scopes = Scopes(world.trainer, {"part_": world.cut})
        self.op: Callable[[str, str], Op] = cache(lambda component, method: make_op(world, component, method))
        self.alone = cache(lambda component, method: alone(self.op(component, method), component, method))
        self.fused = cache(lambda component, method: fuse(
            self.op(component, method), world.shards, world.num_envs))

    def part(self, shards: range) -> "Ops":
        """The same ops for some of the shards. What runs one shard alone is shared."""
        other = Ops(self.world.part(shards))
        other.op, other.alone = self.op, self.alone
        return other

    def keys_shape(self, op: Op) -> jax.ShapeDtypeStruct:
        key = jax.eval_shape(lambda: jax.random.key(0))
        many = (self.world.shards,) if op.sharded and self.world.shards > 1 else ()
        return jax.ShapeDtypeStruct(many, key.dtype)

    def shape(self, component: str, method: str, states: tuple, args: tuple, kwargs: dict, counter: tuple):
        """(value, resources written) of an op, abstractly."""
        op = self.op(component, method)
        if op.traceable:
            out, written = jax.eval_shape(self.fused(component, method), self.keys_shape(op), states, args, kwargs)
        else:
            out, written = self.host_shape(component, method, args), states or (None,)
        return out, (*written, *counter)

    def host_shape(self, component: str, method: str, args: tuple) -> Any:
        num_envs = self.world.num_envs
        match component, method:
            case _, "init":
                return None
            case "env", "reset":
                return self.world.env.obs_shape(num_envs)
            case "env", "step":
                return self.world.env.step_shape(num_envs)
        return self.world.own[component].output_shape(method, *args)

    def shard_item(self, item: Record, component: str) -> Record:
        """One shard's part of a buffer's item."""
        world = self.world
        if not world.sharded(component) or world.shards == 1:
            return item

        def part(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            mine = divided(x, world.num_envs)
            return jax.ShapeDtypeStruct((world.envs_per_shard, *x.shape[1:]), x.dtype) if mine else x

        return jax.tree.map(part, item)

    def new_buffer(self, component: str, item: Record | None) -> Any:
        """An empty store for all shards: stacked if traceable, a tuple of shards' stores on the host. Without an item,
        None: the loop does not use it."""
        if item is None:
            return None
        buffer, shards = self.world.buffers[component], self.world.shards
        part = self.shard_item(item, component)
        if not self.world.sharded(component):
            return buffer.init(part)
        if not buffer.traceable:
            return tuple(buffer.init(part) for _ in range(shards))
        state = buffer.init(part)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (shards, *x.shape)), state) if shards > 1 else state

    def check_insert(self, component: str, item: Record) -> None:
        """Lets the buffer say what it thinks of such records. One on the host is not asked: it would allocate."""
        if self.world.buffers[component].traceable:
            op, state = self.op(component, "insert"), jax.eval_shape(lambda: self.new_buffer(component, item))
            jax.eval_shape(self.fused(component, "insert"), self.keys_shape(op), (state,), (), item.asdict())

    def buffer_shape(self, component: str, method: str, item: Record, args: tuple) -> Any:
        buffer = self.world.buffers[component]
        if not buffer.traceable:
            return buffer.output_shape(method, item, *args)
        op = self.op(component, method)
        state = jax.eval_shape(lambda: self.new_buffer(component, item))
        return jax.eval_shape(self.fused(component, method), self.keys_shape(op), (state,), args, {})[0]
