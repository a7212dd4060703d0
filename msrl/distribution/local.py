"""local: everything in one place."""

from msrl.distribution.policy import DistributionPolicy
from msrl.ir.placed import Fragment


class Local(DistributionPolicy):
    name = "local"
    summary = "Everything in one process: no moves."
    counts = ()
    axis = None

    def fragments(self, graph, with_actors):
        return (Fragment("all", tuple(name for name, _ in graph.components)),)
