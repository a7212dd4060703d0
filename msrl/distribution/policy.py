"""What a distribution policy declares: which components form which fragment, and what is replicated over which axis."""

from abc import ABC, abstractmethod

from msrl.ir.graph import Graph
from msrl.ir.placed import Fragment


class DistributionPolicy(ABC):
    """A name, a sentence, and the fragments of a graph. Every component belongs to exactly one of them."""

    name: str
    summary: str
    devices: bool = False  # is an instance a device, of one program?

    @abstractmethod
    def fragments(self, graph: Graph, with_actors: frozenset[str]) -> tuple[Fragment, ...]:
        """`with_actors`: the buffers that live with the actors, one store per shard."""


def rest(graph: Graph, taken: tuple[str, ...]) -> tuple[str, ...]:
    """The graph's components other than those taken."""
    return tuple(name for name, _ in graph.components if name not in taken)
