"""environments: all environments in one place; actors and learners many times over, each with some of the agents.

Per step, observations are scattered by agent and actions gathered by agent; per update, each learner is sent what its
agents have lived through, or all of it if it sees all agents. Multi-agent systems are built like this.
"""

from msrl.distribution.policy import DistributionPolicy, rest
from msrl.ir.placed import Fragment


class Environments(DistributionPolicy):
    name = "environments"
    summary = "Environments in one place; actors and learners replicated, each with its part of the agents."
    counts = ("learners",)
    axis = "agent"

    def fragments(self, graph, with_actors):
        thinking = ("actor", "learner")
        return Fragment("env", rest(graph, thinking)), Fragment("learner", thinking, axis="agent")
