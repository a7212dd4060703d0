"""Whether buffers that take a certain number of inserts before each sample have been given that number.

Before the run it is counted in the graph. What depends on values is looked at when the host does: the state of a
traceable buffer remembers the first sample that was wrong.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from msrl.api import Buffer
from msrl.api.buffer import describe_miscount
from msrl.engines.world import World
from msrl.errors import RunError, TypeCheckError
from msrl.ir.filling import find_miscount
from msrl.ir.graph import Graph


def check_counts(graph: Graph, world: World) -> None:
    for name, buffer in world.buffers.items():
        found = find_miscount(graph, name, buffer.inserts_per_sample) if buffer.inserts_per_sample else None
        if found is not None:
            raise TypeCheckError(**describe_miscount(buffer, found.inserts), span=found.sample.span)


def check_samples(world: World, resources: Mapping[str, Any]) -> None:
    """`resources`: by name, without versions."""
    for name, buffer in world.buffers.items():
        if buffer.inserts_per_sample and buffer.traceable and resources.get(f"${name}") is not None:
            states = resources[f"${name}"]
            for state in states if type(states) is tuple else (states,):
                check_sample(buffer, state)


def check_sample(buffer: Buffer, state: Any) -> None:
    found = int(np.max(np.asarray(buffer.miscounted(state))))
    if found >= 0:
        raise RunError(**describe_miscount(buffer, found))
