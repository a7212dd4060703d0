"""Ops that run once for each shard of the agents: how their arguments are divided and their values joined.

In: an op and what is known of its arguments' agents. Out: the same op on whole values. An agent shard is a contiguous
run of agents with weights and a learner state of its own, and no two of them agree on anything; what a learner returns
to the loop is the mean over all. What an actor or learner `sees_all` of is given to each whole.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax

from msrl.api import Agent
from msrl.engines.ops import ArgDims, LeafDims, Op, leaf_tree
from msrl.engines.world import World
from msrl.errors import TypeCheckError


def seen_whole(agent: Agent) -> dict[str, tuple[int, ...]]:
    """Of actor and learner, the positions of those arguments that they see all agents in."""
    found = {}
    owners: tuple[tuple[str, Any, Any], ...] = (
        ("actor", agent.actor, agent.actor.act), ("learner", agent.learner, agent.learner.learn))
    for name, owner, method in owners:
        params = [each.name for each in inspect.signature(method).parameters.values()][2:]  # after weights and key
        for wanted in owner.sees_all:
            if wanted not in params:
                raise TypeCheckError(
                    f"{type(owner).__name__} sees all agents in `{wanted}`, and has no such parameter.",
                    why=f"`{method.__name__}` takes {', '.join(params)} from the loop.",
                    instead="Name one of these in `sees_all`.")
        found[name] = tuple(params.index(wanted) for wanted in owner.sees_all)
    return found


def cut_agents(whole: Any, dims: LeafDims, world: World) -> Any:
    """What belongs to the world's agents."""
    size = world.agents_per_shard
    first, last = world.first_agent_shard * size, (world.first_agent_shard + world.agent_shards) * size
    return jax.tree.map(lambda x, dim: x if dim < 0 else x[(slice(None),) * dim + (slice(first, last),)],
                        whole, leaf_tree((whole,), (dims,))[0])


def fuse_by_agent(op: Op, run: Callable[..., tuple[Any, tuple]], world: World, agents: ArgDims,
                  settled: bool) -> Callable[..., tuple[Any, tuple]]:
    """`run`, which is for one agent shard, for all of the world's at once. If there are several, their states have a
    leading dimension, and so have the keys. Unless `settled`, what learners return has it too, even of one alone."""
    count, size, acts = world.agent_shards, world.agents_per_shard, op.over == "shard"

    def each(keys, states, args, fields):
        if count == 1:
            out, written = run(keys, states, args, fields)
            return jax.tree.map(alone, out), written
        dims = leaf_tree(args, agents)
        args = jax.tree.map(lambda x, dim: x if dim < 0 else x.reshape(
            *x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1:]), args, dims)
        axes = jax.tree.map(lambda dim: None if dim < 0 else dim, dims)
        mapped = jax.vmap(run, in_axes=(0, 0, axes, None), out_axes=(1 if acts else 0, 0))
        out, written = mapped(keys, states, args, fields)
        return jax.tree.map(joined if acts else mean if settled else lambda x: x, out), written

    def alone(x):
        if acts:
            check(x, x.shape[1:2])
        return x if acts or settled else x[None]

    def joined(x):  # (B, G, N / G, ...) → (B, N, ...)
        check(x, x.shape[2:3])
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    def check(x, found):
        if found != (size,):
            raise TypeCheckError(
                "A part of its value has no entry per agent.",
                why=f"There are {world.config.agent_shards} agent shards of {size}, and their values are joined agent "
                    f"by agent; this part is {x.dtype}{list(x.shape[:1] + x.shape[1 + (count > 1):])} in each.",
                instead="Give it one entry per environment and agent, or leave it out.")

    return jax.jit(each)


def mean(x: Any) -> Any:
    """Over the learners of all agent shards (leading dimension)."""
    return x.mean(0).astype(x.dtype)
