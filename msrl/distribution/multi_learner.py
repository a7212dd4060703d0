"""multi-learner: everything together, many times over; the learners agree on every gradient.

No trajectory and no weight ever moves: per gradient, an AllReduce. It takes an algorithm with as many learner shards as
there are instances, or more. DD-PPO and cleanba are built like this.
"""

from msrl.distribution.policy import DistributionPolicy
from msrl.ir.placed import Fragment


class MultiLearner(DistributionPolicy):
    name = "multi-learner"
    summary = "Everything replicated; learners average every gradient."
    counts = ("learners",)

    def fragments(self, graph, with_actors):
        return (Fragment("learner", tuple(name for name, _ in graph.components), axis="env"),)
