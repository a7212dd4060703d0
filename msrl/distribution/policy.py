"""What a distribution policy declares: which components form which fragment, what is replicated over which axis, and
what it needs of a deployment. `msrl.feasibility.check` holds deployments against these declarations."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from msrl.ir.graph import Graph
from msrl.ir.placed import Fragment

Count = Literal["actors", "learners"]


class DistributionPolicy(ABC):
    """A name, a sentence, and the fragments of a graph. Every component belongs to exactly one of them."""

    name: ClassVar[str]
    summary: ClassVar[str]
    counts: ClassVar[tuple[Count, ...]] = ("actors",)
    """Which numbers of instances the deployment chooses; the others stay 1."""
    axis: ClassVar[Literal["env", "agent"] | None] = "env"
    """What is replicated over: shards of the environments, or of the agents. None: nothing is replicated."""
    traceable_only: ClassVar[bool] = False
    """Is the whole loop compiled for the device? Then the environment cannot be a Python object on the host."""
    asynchronous: ClassVar[bool] = False
    """First come, first served? Then a deployment may bound the staleness: `max_lag`."""
    device_each: ClassVar[bool] = False
    """Does every instance need a device of its own?"""

    @abstractmethod
    def fragments(self, graph: Graph, with_actors: frozenset[str]) -> tuple[Fragment, ...]:
        """`with_actors`: the buffers that live with the actors, one store per shard."""


def rest(graph: Graph, taken: tuple[str, ...]) -> tuple[str, ...]:
    """The graph's components other than those taken."""
    return tuple(name for name, _ in graph.components if name not in taken)
