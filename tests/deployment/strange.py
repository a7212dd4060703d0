"""Distributions that nobody needs. Each divides a loop in some way that can be had."""

from msrl.distribution.policy import DistributionPolicy, rest
from msrl.ir.placed import Fragment


class Apart(DistributionPolicy):
    """Every component in a place of its own."""

    name = "apart"
    summary = "Everything alone."
    counts = ()
    axis = None

    def fragments(self, graph, with_actors):
        return tuple(Fragment(f"place-of-{name}", (name,)) for name, _ in graph.components)


class ActorsOnly(DistributionPolicy):
    """One place has all environments, and the actors are many."""

    name = "actors-only"
    summary = "Actors replicated, environments not."

    def fragments(self, graph, with_actors):
        return [Fragment("acting", ("actor",), axis="env"), Fragment("others", rest(graph, ("actor",)))]


class Chain(DistributionPolicy):
    """Environments, actors and their buffers replicated, each apart from the other."""

    name = "chain"
    summary = "Three replicated fragments and one that is not."

    def fragments(self, graph, with_actors):
        stores = tuple(sorted(with_actors))
        return (Fragment("env", ("env",), "env"), Fragment("actor", ("actor",), "env"),
                Fragment("store", stores, "env"), Fragment("learner", rest(graph, ("env", "actor", *stores))))


class StoresOnly(DistributionPolicy):
    """The rollout is divided, and neither environments nor actors are."""

    name = "stores-only"
    summary = "Rollouts replicated and nothing else."

    def fragments(self, graph, with_actors):
        stores = tuple(sorted(with_actors))
        return Fragment("rest", rest(graph, stores)), Fragment("store", stores, "env")


class OwnReplicated(DistributionPolicy):
    """What is whole has a copy in each instance."""

    name = "own-replicated"
    summary = "Components of one's own and metrics with the actors."

    def fragments(self, graph, with_actors):
        taken = ("env", "actor", "metrics", *(name for name, kind in graph.components if kind == "own"))
        return Fragment("acting", taken, "env"), Fragment("learner", rest(graph, taken))


class LearnersOnly(DistributionPolicy):
    """Learners and replays are many, and there is one place for the rest."""

    name = "learners-only"
    summary = "Learners replicated with their replays."
    counts = ("learners",)

    def fragments(self, graph, with_actors):
        acting = ("env", "actor", "metrics", *sorted(with_actors))
        return Fragment("acting", acting), Fragment("learner", rest(graph, acting), "env")


class TwoKinds(DistributionPolicy):
    """Actors and learners are many, and each pair of them has its shards."""

    name = "two-kinds"
    summary = "Actors and learners replicated apart."
    counts = ("actors", "learners")

    def fragments(self, graph, with_actors):
        acting = ("env", "actor", *sorted(with_actors))
        return Fragment("actor", acting, "env"), Fragment("learner", rest(graph, acting), "env")


class ReplayWithActors(DistributionPolicy):
    """Not to be had, if there are several actors."""

    name = "replay-with-actors"
    summary = "Replays replicated with the actors."

    def fragments(self, graph, with_actors):
        return Fragment("learner", ("learner",)), Fragment("acting", rest(graph, ("learner",)), "env")
