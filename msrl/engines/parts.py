"""What an instance has to do with that is given some of the shards: its ops, and the shapes that it sees."""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

import jax

from msrl.engines.agents import Agents
from msrl.engines.library import Ops
from msrl.engines.shapes import Shapes
from msrl.ir.graph import is_resource
from msrl.ir.placed import Fragment


def part_of(ops: Ops, shapes: Shapes, fragment: Fragment, divided: Mapping[str, int], run: range) -> tuple[Ops, Shapes]:
    """`run`: shards of the environments or, of a fragment over agents, of the agents. `divided`: the names of which
    instances of the fragment have a part."""
    world = ops.world
    if fragment.axis == "agent":
        mine = ops.part_of_agents(run) if len(run) < world.agent_shards else ops
        return mine, agent_shapes(shapes, ops.agents, divided, len(run) * world.agents_per_shard)
    mine = ops.part(run) if len(run) < world.shards else ops
    return mine, local_shapes(shapes, divided, world.num_envs, mine.world.num_envs)


def local_shapes(shapes: Shapes, axes: Mapping[str, int], whole: int, part: int) -> Shapes:
    """The shapes that an instance sees that has `part` of the `whole` environments."""
    if part == whole:
        return shapes

    def cut(tree: Any, dim: int) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(
            (*x.shape[:dim], x.shape[dim] * part // whole, *x.shape[dim + 1:]), x.dtype)
            if len(x.shape) > dim else x, tree)

    names = {name: cut(tree, axes[name]) if name in axes and not is_resource(name) else tree
             for name, tree in shapes.names.items()}
    return replace(shapes, names=names, items={name: cut(item, 0) for name, item in shapes.items.items()})


def agent_shapes(shapes: Shapes, agents: Agents, divided: Container[str], part: int) -> Shapes:
    """The shapes that an instance sees that has `part` of the agents, and so of the names in `divided`."""
    if part == agents.count:
        return shapes

    def cut(name: str, tree: Any) -> Any:
        dims = agents.tree(agents.of(name), tree)
        return jax.tree.map(lambda x, dim: x if dim < 0 else jax.ShapeDtypeStruct(
            (*x.shape[:dim], part, *x.shape[dim + 1:]), x.dtype), tree, dims)

    return replace(shapes, names={name: cut(name, tree) if name in divided else tree
                                  for name, tree in shapes.names.items()})
