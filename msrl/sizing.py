"""How large a run has to be to show something: an algorithm's configuration goes in, a small one comes out.

`smallest` keeps what the user gave, and otherwise takes few environments, short rollouts, and enough shards to divide
among several instances. `for_updates` then finds the `total_steps` with which the loop that learns makes a given number
of passes: it lowers the graph and looks, so it works for any loop whose length follows from the configuration.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection

from msrl.api import Config, Env, Trainer
from msrl.engines.world import make_world
from msrl.envs.wrappers import EpisodeStats
from msrl.errors import UsageError
from msrl.frontend.lower import lower
from msrl.ir.graph import For, Graph, While, calls

ENVS, SHARDS = 8, 4
LONG = {"rollout": 32, "warmup": 64, "capacity": 1024}
"""Fields that algorithms have by these names, and how much of each will do."""
MOST_STEPS = 2**40  # a loop that is too short with so many does not depend on them


def smallest(config: Config, given: Collection[str], agents: int = 0) -> Config:
    """`given` names the fields that are not ours to choose. `agents`: how many there are to divide, if any."""
    shards, envs, learners = config.shards, config.num_envs, config.learner_shards
    if "shards" not in given:
        fitting = [number for number in range(learners, max(SHARDS, learners) + 1, learners)
                   if "num_envs" not in given or envs % number == 0]
        shards = fitting[-1] if fitting else shards
    if "num_envs" not in given:
        envs = ENVS if ENVS % shards == 0 else 2 * shards
    apart = agents if agents and "agent_shards" not in given and learners == 1 else config.agent_shards
    config = dataclasses.replace(config, shards=shards, num_envs=envs, agent_shards=apart)
    for name, enough in LONG.items():
        if name not in given and getattr(config, name, 0) > enough:
            with contextlib.suppress(UsageError):  # it does not fit another field, and stays
                config = dataclasses.replace(config, **{name: enough})
    return config


def for_updates(cls: type[Trainer], config: Config, env: Env, updates: int) -> Config:
    """The configuration with the fewest total_steps that give this many passes, or the number nearest to it."""

    def sized(steps: int) -> Config:
        return dataclasses.replace(config, total_steps=steps)

    def passes(steps: int) -> int:
        loop = learning_loop(graph_of(cls, sized(steps), env))
        trips = loop.trips if isinstance(loop, For) else None
        if trips is None:
            raise UsageError(
                "How many updates there will be is not known before the loop runs.",
                why="It is a `while`, or a `for` over what is computed." if loop else "No loop of it learns.",
                instead="Say how long it is to run: --total-steps 1000, for instance.")
        return trips

    return sized(least(passes, min(updates, passes(MOST_STEPS))))


def least(passes: Callable[[int], int], updates: int) -> int:
    """The fewest steps that give as many passes, or more; `passes` never falls."""
    high = 1
    while passes(high) < updates:
        high *= 2
    low = high // 2  # too few, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) >= updates else (middle, high)
    return high


def graph_of(cls: type[Trainer], config: Config, env: Env) -> Graph:
    wrapped = cls.wrap(EpisodeStats(env), config)
    trainer = cls(config, wrapped.spec)
    world = make_world(trainer, wrapped)
    return lower(trainer, tuple(world.buffers), tuple(world.own))


def learning_loop(graph: Graph) -> For | While | None:
    """The first top-level loop that learns: one of its passes is an update."""
    loops = [node for node in graph.nodes if isinstance(node, (For, While))]
    return next((loop for loop in loops if any(call.method == "learn" and call.component == "learner"
                                               for call in calls((loop,)))), None)
