"""Which parts of a value have one entry per agent, and on which dimension: the axis of agents.

A step's observations and rewards have agents on dimension 1, and so has all that an actor makes; what goes into a
buffer comes out by the same name.
"""

from collections.abc import Mapping
from typing import Any

import jax

from msrl.api import Config, Env, Record
from msrl.engines.leaf_axes import LeafAxis
from msrl.engines.scopes import Scopes
from msrl.errors import UsageError
from msrl.ir.graph import Call, Node, is_resource

BY_AGENT = ("obs", "reward", "final_obs")  # of a Step


class Agents(LeafAxis):
    """Without agents there is nothing to find. Probed with one agent more."""

    title, usual = "agents", 1
    instead = "Compute it from what the environment gives; or list the parameter in `sees_all`, and it is given whole."

    def __init__(self, count: int, hints: Mapping[str, int], scopes: Scopes):
        """`count`: agents of an environment, or 0."""
        self.count = count
        super().__init__(count > 0, hints, scopes)

    def longer(self, size: int) -> int:
        return size + 1

    def possible(self, size: int) -> bool:
        return size == self.count

    def declared(self, node: Call, out: Any) -> list[int] | None:
        if (node.component, node.method) == ("env", "step"):
            return [1 if path[0].name in BY_AGENT else -1 for path, _ in _flat(out)]
        return [1] * len(jax.tree.leaves(out)) if node.component in ("env", "actor") else None

    def spread(self) -> dict[str, int]:
        """The names that have agents anywhere, with the first dimension on which they do."""
        return {name: next(dim for dim in dims if dim >= 0) for name, dims in self.found.items()
                if not is_resource(name)}

    def divisible(self) -> frozenset[str]:
        """Of these, the names that can be computed for some of the agents alone."""
        return frozenset(name for name, dims in self.found.items()
                         if {*dims} - {-1} == {self.hints.get(name)} and name not in self.mixed)

    def buffer(self, node: Call, out: Any, kwargs: dict[str, Any], dim: int) -> None:
        """What goes in by a name comes out by it. `dim`: that on which environments lie in what is sampled."""
        if self.active and node.method == "insert":
            named = {field: self.tree(self.of(name), kwargs[field]) for field, name in node.kwargs}
            self.items[node.component] = {jax.tree_util.keystr(path): at for path, at in _flat(Record(**named))}
        elif self.active and node.method == "sample" and node.out:
            held = self.items.get(node.component, {})
            places = [(held.get(jax.tree_util.keystr(path), -1), leaf) for path, leaf in _flat(out)]
            self.note(node.out, [at + dim if at >= 0 and leaf.shape[at + dim:at + dim + 1] == (self.count,) else -1
                                 for at, leaf in places])

    def begin(self, nodes: tuple[Node, ...]) -> None:
        super().begin(nodes)
        self.items: dict[str, dict[str, int]] = {}  # buffer → path in a record → dimension


def _flat(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def check_agent_shards(config: Config, env: Env) -> None:
    """Refuses a number of agent shards that the environment's agents cannot be divided into."""
    agents, shards = len(env.spec.agents), config.agent_shards
    if shards == 1:
        return
    if not agents:
        raise UsageError(
            f"{env.spec.id} cannot be divided into {shards} agent shards.",
            why="Each has some of the agents, and this environment has one.",
            instead="Leave out --agent-shards, or use an environment with several agents, like --env simple_spread.")
    if agents % shards:
        raise UsageError(
            f"{agents} agents cannot be divided into {shards} agent shards.",
            why="All agent shards have the same number of agents, so that they run the same program.",
            instead=f"Use --agent-shards with a divisor of {agents}.")
    if config.learner_shards > 1:
        raise UsageError(
            f"{shards} agent shards and {config.learner_shards} learner shards cannot be had at once.",
            why="Learners of agent shards learn apart, and those of learner shards agree on every gradient.",
            instead="Leave out --agent-shards or --learner-shards.")
