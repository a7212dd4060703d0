"""The rows of values: which of their leaves have one per environment, and which one per sample of a replay.

Shards divide the one, learners both. An actor's argument that has no row per environment is given to every shard
whole, however many rows it has.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from msrl.api import Component
from msrl.engines.leaf_axes import LeafAxis
from msrl.engines.scopes import Scopes
from msrl.engines.world import World
from msrl.ir.graph import Call


class Rows(LeafAxis):
    def __init__(self, world: World, active: bool, hints: Mapping[str, int], scopes: Scopes):
        self.world = world
        super().__init__(active, hints, scopes)

    def own(self, component: str) -> Component:
        """A component as it would be if the axis were longer."""
        return self.world.own[component]


class Environments(Rows):
    """Probed with twice as many: what can be divided as asked for then still can."""

    title, usual = "environments", 0
    instead = "Write its size as `self.config.num_envs` if it has, and as another number if not."

    def __init__(self, world: World, hints: Mapping[str, int], scopes: Scopes):
        super().__init__(world, world.config.shards > 1, hints, scopes)

    def longer(self, size: int) -> int:
        return 2 * size

    def possible(self, size: int) -> bool:
        return size == self.world.config.num_envs

    def declared(self, node: Call, out: Any) -> list[int] | None:
        component, over = node.component, self.world.over(node.component)
        if component in ("env", "actor"):
            return on(0, out)
        if component in self.world.buffers:
            return on(1 if node.method == "sample" else 0, out) if over == "shard" else []
        return None

    @cached_property
    def doubled(self) -> Any:
        """The trainer with twice as many environments; None if it does not work with so many."""
        trainer = self.world.trainer
        try:
            return type(trainer)(replace(trainer.config, num_envs=2 * trainer.config.num_envs), trainer.spec)
        except Exception:  # the user's code, with a configuration that the user did not choose
            return None

    @cached_property
    def _scopes(self) -> Scopes | None:
        return Scopes(self.doubled, self.scopes.names) if self.doubled is not None else None

    def longer_scopes(self) -> Scopes | None:
        return self._scopes

    @cached_property
    def _own(self) -> Mapping[str, Component]:
        """Components on the host may do something when they are made, so there are no others of them."""
        if self.doubled is None or not all(each.traceable for each in self.world.own.values()):
            return self.world.own
        try:
            return {**self.world.own, **self.doubled.components()}
        except Exception:  # as above
            return self.world.own

    def own(self, component: str) -> Component:
        return self._own[component]


class Samples(Rows):
    """Of replays that several learners have a part of each. Probed with three times as many, so that they are not
    mistaken for environments."""

    title, usual = "samples of a batch", 0
    instead = "Take its size from the batch: `batch.reward.shape[0]`, or compute it inside `learn`."

    def __init__(self, world: World, scopes: Scopes):
        super().__init__(world, world.config.learner_shards > 1, {}, scopes)

    def longer(self, size: int) -> int:
        return 3 * size

    def possible(self, size: int) -> bool:
        return size > 0

    def declared(self, node: Call, out: Any) -> list[int] | None:
        if node.component in ("env", "actor"):
            return []
        if node.component in self.world.buffers:
            return on(0, out) if self.world.over(node.component) == "learner" else []
        return None


def on(dim: int, tree: Any) -> list[int]:
    """All leaves on one dimension."""
    return [dim if np.ndim(leaf) > dim else -1 for leaf in jax.tree.leaves(tree)]
