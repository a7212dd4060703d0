"""Placed graphs of all loops of the suite and of algorithms, under every synchronous distribution. No shapes are found
and nothing is compiled, so that there can be many."""

import dataclasses
from functools import cache
from pathlib import Path

from msrl import algorithms, distribution, envs
from msrl.distribution.place import place
from msrl.engines.world import make_world
from msrl.envs.wrappers import EpisodeStats
from msrl.frontend.lower import lower
from msrl.ir.axes import find_axes
from msrl.ir.placed import LocalProgram, PlacedGraph
from msrl.projection.project import project
from tests.matrix.loops import LOOPS
from tests.matrix.test_algorithms import TINY
from tests.matrix.toys import Corridor

OWN = f"{Path(__file__).parents[2] / 'examples' / 'own_distribution.py'}:ReplayApart"
DISTRIBUTIONS = {"local": 1, "single-learner-coarse": 1, "single-learner-fine": 1, "multi-learner": 2, "central": 2,
                 OWN: 1}  # with so many learner shards
NAMES = [*LOOPS, "ppo", "dqn", "sac", "mappo"]
ALL = [(name, each) for name in NAMES for each in DISTRIBUTIONS
       if not (name == "Stores" and DISTRIBUTIONS[each] > 1)]  # its replay cannot be halved


@cache
def placed(name: str, policy: str) -> PlacedGraph:
    """By the name of a loop or algorithm and that of a distribution, with two shards."""
    if name in LOOPS:
        cls, env, fields = LOOPS[name], Corridor(), {}
    else:
        (env_name, fields), cls = TINY[name], algorithms.load(name)
        env = envs.make(env_name)
    config = dataclasses.replace(cls.Config(), **{"num_envs": 4, "shards": 2, "learner_shards": DISTRIBUTIONS[policy],
                                                  **fields})
    wrapped = cls.wrap(EpisodeStats(env), config)
    trainer = cls(config, wrapped.spec)
    world = make_world(trainer, wrapped)
    graph = lower(trainer, tuple(world.buffers), tuple(world.own))
    axes = find_axes(graph, {buffer: over for buffer in world.buffers if (over := world.over(buffer))})
    with_actors = frozenset(buffer for buffer, each in world.buffers.items() if each.home == "actor")
    return place(graph, distribution.load(policy).fragments(graph, with_actors), axes)


@cache
def projected(name: str, policy: str) -> dict[str, LocalProgram]:
    return project(placed(name, policy))
