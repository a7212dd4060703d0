"""central: environments, actors, buffers and learners together, many times over; one place keeps the parameters.

Learners bring it their gradients and take the parameters it makes of them. Parameter servers are built like this.
"""

from msrl.distribution.policy import DistributionPolicy
from msrl.ir.placed import PARAMETERS, Fragment


class Central(DistributionPolicy):
    name = "central"
    summary = "Everything replicated but the parameters: learners bring gradients to one place that applies them."
    counts = ("learners",)

    def fragments(self, graph, with_actors):
        learners = Fragment("learner", tuple(name for name, _ in graph.components), axis="env")
        return learners, Fragment("parameters", (PARAMETERS,))
