"""Whatever a distribution of one's own makes of a loop gives the bits of the interpreter, or is refused in words."""

from functools import cache
from pathlib import Path

import pytest

from msrl.deployment import Deployment
from msrl.distribution.fragments import check_fragments
from msrl.distribution.policy import DistributionPolicy
from msrl.errors import UsageError
from msrl.ir.graph import Graph
from msrl.ir.placed import Fragment
from msrl.pipeline import Program, compile
from tests.matrix.comparing import Outcome, assert_same, strict
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor

FILE = Path(__file__).parent / "strange.py"


@cache
def program(name: str, learner_shards: int = 1, shards: int = 2) -> tuple[Program, Outcome]:
    found = compile(LOOPS[name], Corridor(), strict=True, shards=shards, learner_shards=learner_shards)
    return found, Outcome(*found.interpret())


def same_bits(name: str, policy: str, learner_shards: int = 1, shards: int = 2, **counts: int) -> None:
    whole, wanted = program(name, learner_shards, shards)
    found = strict(whole.deployed(Deployment(f"{FILE}:{policy}", "inline", **counts)))
    assert found.reports == wanted.reports
    assert_same(wanted.resources, found.resources)


@pytest.mark.parametrize("name", ["TwoBuffers", "Components", "Branches"])
@pytest.mark.parametrize(("policy", "actors"), [("Apart", 1), ("ActorsOnly", 2), ("Chain", 2), ("StoresOnly", 2),
                                                ("OwnReplicated", 2)])
def test_the_bits_of_the_interpreter(name, policy, actors):
    same_bits(name, policy, actors=actors)


@pytest.mark.parametrize(("policy", "counts"), [
    ("LearnersOnly", {"learners": 2}), ("TwoKinds", {"actors": 2, "learners": 2}), ("Chain", {"actors": 2}),
    ("ReplayWithActors", {"actors": 2})])
def test_with_several_learners(policy, counts):
    same_bits("TwoBuffers", policy, learner_shards=2, **counts)


def test_steps_are_counted_where_trajectories_come_from_another_place():
    whole, _ = program("Plain")
    found = whole.deployed(Deployment(f"{FILE}:Chain", "inline", actors=2))
    last = list(found.run())[-1]
    assert last.accounts["produced"] == last.accounts["trained"] == last.env_steps > 0


# -- refused -----------------------------------------------------------------------------------------------------------

DOCS = "See docs/distributions.md#a-distribution-of-ones-own."


def refusal(name: str, policy: str, learner_shards: int = 1, shards: int = 2, **counts: int) -> str:
    whole, _ = program(name, learner_shards, shards)
    with pytest.raises(UsageError) as caught:
        whole.deployed(Deployment(f"{FILE}:{policy}", "inline", **counts))
    return str(caught.value)


def test_a_replay_among_several():
    assert refusal("TwoBuffers", "ReplayWithActors", actors=2) == (
        "replay-with-actors: the policy puts replay in acting, which has 2 instances.\n"
        "This buffer keeps one store, and cannot be divided among them.\n"
        f"Put it with the learner, or in a fragment of its own without an axis.\n{DOCS}")
    assert refusal("TwoBuffers", "ReplayWithActors", learner_shards=2, shards=4, actors=4) == (
        "replay-with-actors: the policy puts replay in acting, which has 4 instances.\n"
        "This buffer keeps 2 stores, one for each learner shard, and cannot be divided among them.\n"
        f"Put it with the learner, or in a fragment of its own without an axis.\n{DOCS}")


def test_replicated_in_different_numbers():
    message = refusal("Plain", "TwoKinds", learner_shards=2, actors=2, learners=1)
    assert message.startswith("two-kinds: actor and learner are not divided alike.\n")
    assert message.endswith(
        "Their instances have 2, 2 and 4 environments, and each sends this value to its own.\n"
        "Use as many --actors as --learners, so that both have the same shards, or put both in one fragment.\n" + DOCS)


GRAPH = Graph("Loop", (("env", "env"), ("actor", "actor"), ("learner", "learner")), (), ())
ALL = ("env", "actor", "learner")


class Mine(DistributionPolicy):
    name = "mine"
    summary = "Under test."

    def fragments(self, graph, with_actors):
        raise AssertionError("not asked here")


class OnDevices(Mine):
    device_each = True


class Nowhere(Mine):
    axis = None


NONSENSE = {
    "nothing": (Mine, None, {}, "does not return fragments.", "It returns None.",
                'Return a tuple of them: (Fragment("all", components),).'),
    "names": (Mine, ALL, {}, "does not return fragments.", "It returns ('env', 'actor', 'learner').",
              'Return a tuple of them: (Fragment("all", components),).'),
    "one fragment": (Mine, Fragment("all", ALL), {}, "does not return fragments.",
                     "It returns Fragment(name='all', components=('env', 'actor', 'learner...",
                     'Return a tuple of them: (Fragment("all", components),).'),
    "no fragments": (Mine, (), {}, "has no place for env, actor, learner.",
                     "Every component of the loop runs somewhere.",
                     'Put what you do not name with the learner: Fragment("learner", rest(graph, taken)).'),
    "a component left out": (Mine, (Fragment("a", ("env", "learner")),), {}, "has no place for actor.",
                             "Every component of the loop runs somewhere.",
                             'Put what you do not name with the learner: Fragment("learner", rest(graph, taken)).'),
    "a component in two": (Mine, (Fragment("a", ALL), Fragment("b", ("actor",))), {}, "puts actor in both a and b.",
                           "A component's state has one home; the others are sent what they need of it.",
                           "Put it in one of them, once."),
    "a component twice in one": (Mine, (Fragment("a", (*ALL, "env")),), {}, "puts env twice in a.",
                                 "A component's state has one home; the others are sent what they need of it.",
                                 "Put it in one of them, once."),
    "an unknown component": (Mine, (Fragment("a", (*ALL, "critic")),), {}, "puts 'critic' in a.",
                             "This loop has no such component; it has env, actor, learner.",
                             "Choose from graph.components, as it is another for every algorithm."),
    "a name for a tuple": (Mine, (Fragment("a", "env"), Fragment("b", ALL)), {}, "gives a the components 'env'.",
                           "A fragment is the components that live in it.",
                           "Give it a tuple of names, or leave the fragment out."),
    "an empty fragment": (Mine, (Fragment("a", ()), Fragment("b", ALL)), {}, "gives a the components ().",
                          "A fragment is the components that live in it.",
                          "Give it a tuple of names, or leave the fragment out."),
    "a name twice": (Mine, (Fragment("a", ("env",)), Fragment("a", ("actor", "learner"))), {},
                     "calls 2 fragments 'a'.", "A move names the two fragments that it joins.",
                     "Give each a name of its own."),
    "a name with a sign": (Mine, (Fragment("a>b", ALL),), {}, "calls a fragment 'a>b'.",
                           "Names of fragments are part of those of moves.",
                           "Use letters, digits, _ and -, and begin with a letter."),
    "an axis that is not": (Mine, (Fragment("a", ALL, "time"),), {}, "replicates a over 'time'.",
                            "It declares axis = 'env', and deployments are held against that.",
                            "Use Fragment(..., axis='env') or declare the other axis."),
    "an axis that is not declared": (Nowhere, (Fragment("a", ALL, "env"),), {}, "replicates a over 'env'.",
                                     "It declares axis = None, and deployments are held against that.",
                                     "Use Fragment(..., axis=None) or declare the other axis."),
    "devices for many fragments": (OnDevices, (Fragment("a", ("env",), "env"), Fragment("b", ("actor", "learner"))),
                                   {}, "asks for a device for every instance, and has 2 fragments.",
                                   "On several devices the whole loop is one program, of which each has a part.",
                                   "Return one fragment with everything in it and an axis, or leave out device_each."),
    "devices for what is one": (OnDevices, (Fragment("a", ALL),), {},
                                "asks for a device for every instance, and replicates nothing.",
                                "On several devices the whole loop is one program, of which each has a part.",
                                "Return one fragment with everything in it and an axis, or leave out device_each."),
    "actors of which there is one": (
        Mine, (Fragment("a", ALL, "env"),), {"actors": 3}, "has no use for 3 actors.",
        "They are the instances of what is replicated without the learner, and nothing is.",
        "Leave out --actors, or replicate a fragment without the learner: axis='env'."),
    "learners of which there is one": (
        Mine, (Fragment("a", ("env", "actor"), "env"), Fragment("b", ("learner",))), {"learners": 2},
        "has no use for 2 learners.", "They are the instances of what is replicated with the learner, and nothing is.",
        "Leave out --learners, or replicate a fragment with the learner: axis='env'."),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense(name):
    policy, fragments, counts, what, why, instead = NONSENSE[name]
    with pytest.raises(UsageError) as caught:
        check_fragments(policy(), fragments, GRAPH, **counts)
    assert str(caught.value) == f"mine: the policy {what}\n{why}\n{instead}\n{DOCS}"


def test_sense():
    given = [Fragment("env", ("env", "actor"), "env"), Fragment("learner", ("learner",), "env")]
    assert check_fragments(Mine(), given, GRAPH, actors=2, learners=2) == tuple(given)
