"""single-learner-coarse: environments and actors together, many times over; one learner.

Per update, trajectories are gathered and weights broadcast: few and large messages. Acme, Sebulba and RLlib are built
like this.
"""

from msrl.distribution.policy import DistributionPolicy, rest
from msrl.ir.placed import Fragment


class SingleLearnerCoarse(DistributionPolicy):
    name = "single-learner-coarse"
    summary = "Environments and actors replicated; trajectories are gathered by one learner, per update."

    def fragments(self, graph, with_actors):
        acting = ("env", "actor", *(name for name, _ in graph.components if name in with_actors))
        return Fragment("actor", acting, axis="env"), Fragment("learner", rest(graph, acting))
