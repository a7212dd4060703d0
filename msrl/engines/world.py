"""A trainer's components, made for one environment and configuration, and which of the shards are here.

In: a trainer and its environment. Out: a `World`, or a UsageError where the numbers do not fit together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from msrl.api import Agent, Buffer, Component, Config, Env, Trainer
from msrl.api.agreement import DEVICES, in_scope
from msrl.engines.agents import check_agent_shards
from msrl.errors import UsageError

if TYPE_CHECKING:
    from msrl.engines.ops import Op

Over = Literal["shard", "learner", "agent"]


@dataclass(frozen=True)
class World:
    """A trainer's components, made for one environment and configuration, with all of its shards or a run of them."""

    trainer: Trainer
    env: Env
    agent: Agent
    buffers: Mapping[str, Buffer]
    own: Mapping[str, Component]
    first_shard: int = 0
    shards: int = 1
    first_agent_shard: int = 0
    agent_shards: int = 1

    @property
    def config(self) -> Config:
        return self.trainer.config

    @property
    def envs_per_shard(self) -> int:
        return self.config.num_envs // self.config.shards

    @property
    def num_envs(self) -> int:
        """The environments of this world's shards."""
        return self.envs_per_shard * self.shards

    @property
    def agents_per_shard(self) -> int:
        return len(self.env.spec.agents) // self.config.agent_shards

    def span(self, over: Over | None) -> range:
        """The numbers of this world's shards or learners; of an op that runs once, 0."""
        match over:
            case "agent":
                return range(self.first_agent_shard, self.first_agent_shard + self.agent_shards)
            case "shard":
                return range(self.first_shard, self.first_shard + self.shards)
            case "learner":
                each = self.config.shards // self.config.learner_shards
                return range(self.first_shard // each, (self.first_shard + self.shards) // each)
        return range(1)

    def numbers(self, op: "Op") -> list[int]:
        """By which the op's calls here are known, as are their random numbers: one for each shard of the environments
        and, within it, of the agents."""
        agents = self.span("agent") if op.by_agent else range(1)
        each = self.config.agent_shards if op.by_agent else 1
        return [number * each + agent for number in self.span(op.over) for agent in agents]

    def cut(self, whole: Any, dims: Any) -> Any:
        """This world's part of a value: of each leaf on its dimension, or the whole of it where that is -1. A number
        stands for all leaves that have such a dimension."""
        if self.shards == self.config.shards:
            return whole
        spread = in_scope(DEVICES)

        def leaf(x: Any, dim: int) -> Any:
            if dim < 0 or np.ndim(x) <= dim:
                return x
            size, first = (x.shape[dim] * shards // self.config.shards for shards in (self.shards, self.first_shard))
            if spread:
                return jax.lax.dynamic_slice_in_dim(x, device() * size, size, dim)
            return x[(slice(None),) * dim + (slice(first, first + size),)]

        if isinstance(dims, int):
            dims = jax.tree.map(lambda _: dims, whole)
        return jax.tree.map(leaf, whole, dims)

    def part(self, shards: range) -> "World":
        """The same components with some of the shards only."""
        return replace(self, first_shard=shards.start, shards=len(shards))

    def part_of_agents(self, shards: range) -> "World":
        return replace(self, first_agent_shard=shards.start, agent_shards=len(shards))

    def traceable(self, component: str) -> bool:
        match component:
            case "env":
                return self.env.traceable
            case "actor" | "learner" | "metrics":
                return True
            case "parameters":  # they are where several instances meet
                return False
        return (self.buffers.get(component) or self.own[component]).traceable

    def on_host(self) -> dict[str, bool]:
        """The components of one's own that are not compiled, and whether each may run in several places."""
        return {name: each.replicable for name, each in self.own.items() if not each.traceable}

    def over(self, component: str) -> Over | None:
        """What the component keeps one state for each of."""
        if component == "env" or (component in self.buffers and self.buffers[component].home == "actor"):
            return "shard"
        if component in ("learner", "weights") and self.config.agent_shards > 1:
            return "agent"
        return "learner" if component in self.buffers and self.config.learner_shards > 1 else None


def device() -> Any:
    """The number of the device that this is traced for, along a mesh; else 0."""
    return jax.lax.axis_index(DEVICES) if in_scope(DEVICES) else 0


def make_buffers(trainer: Trainer, compiled: bool) -> dict[str, Buffer]:
    """The trainer's buffers, for loops that are compiled or for loops that Python steps."""
    learners = trainer.config.learner_shards
    buffers = {name: buffer.for_env(compiled) for name, buffer in trainer.buffers().items()}
    return {name: buffer.divide(learners) if buffer.home == "learner" and learners > 1 else buffer
            for name, buffer in buffers.items()}


def check_shards(config: Config, env: Env) -> None:
    """Refuses numbers of shards that the environments, the learners and the agents cannot be divided into."""
    if config.shards < 1 or config.num_envs % config.shards:
        raise UsageError(
            f"{config.num_envs} environments cannot be divided into {config.shards} shards.",
            why="All shards have the same number of environments, so that they run the same program.",
            instead=f"Use --shards with a divisor of {config.num_envs}, or change --num-envs.")
    if config.learner_shards < 1 or config.shards % config.learner_shards:
        raise UsageError(
            f"{config.shards} shards cannot be divided among {config.learner_shards} learner shards.",
            why="Each learner has the same number of the environments' shards.",
            instead=f"Use --learner-shards with a divisor of {config.shards}, or more --shards.")
    check_agent_shards(config, env)


def make_world(trainer: Trainer, env: Env) -> World:
    config = trainer.config
    check_shards(config, env)
    buffers = make_buffers(trainer, env.traceable)
    own = dict(trainer.components())
    reserved = {"env", "actor", "learner", "metrics", "weights"}
    for name in (*buffers, *own):
        if name in reserved or (name in buffers and name in own) or not name.isidentifier():
            raise UsageError(f"A component cannot be called {name!r}.",
                             why=f"Names are identifiers, each used once; {', '.join(sorted(reserved))} are taken.",
                             instead="Give it another name in `buffers()` or `components()`.")
    return World(trainer, env, trainer.agent(), buffers, own, shards=config.shards, agent_shards=config.agent_shards)
