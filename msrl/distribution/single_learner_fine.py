"""single-learner-fine: environments alone, many times over; one place that acts and learns.

Per step, observations are gathered and actions scattered: inference is batched on the learner's device, and weights
never move. SEED RL is built like this.
"""

from msrl.distribution.policy import DistributionPolicy, rest
from msrl.ir.placed import Fragment


class SingleLearnerFine(DistributionPolicy):
    name = "single-learner-fine"
    summary = "Environments replicated; one place acts and learns, and exchanges observations and actions per step."

    def fragments(self, graph, with_actors):
        return Fragment("env", ("env",), axis="env"), Fragment("learner", rest(graph, ("env",)))
