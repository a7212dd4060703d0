"""What a policy says, held against the graph and the deployment, before anything is placed.

A policy's fragments go in and come out as a tuple, or a UsageError says which of them cannot be. Whoever writes a
policy meets these errors and no others: what passes here can be placed, and runs.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

from msrl.distribution.policy import DistributionPolicy
from msrl.errors import UsageError
from msrl.ir.graph import Graph
from msrl.ir.placed import PARAMETERS, Fragment, PlacedGraph

DOCS = "docs/distributions.md#a-distribution-of-ones-own"
_NAME = re.compile(r"[A-Za-z_][\w-]*")


def check_fragments(policy: DistributionPolicy, fragments: Any, graph: Graph, *, actors: int = 1,
                    learners: int = 1) -> tuple[Fragment, ...]:
    """`fragments`: what the policy's method returned; `actors` and `learners` as the deployment has them."""
    if not isinstance(fragments, (tuple, list)) or not all(isinstance(each, Fragment) for each in fragments):
        raise _error(policy, "does not return fragments.", f"It returns {_short(fragments)}",
                     'Return a tuple of them: (Fragment("all", components),).')
    _names(policy, fragments)
    _components(policy, fragments, graph)
    _axes(policy, fragments)
    _instances(policy, fragments, actors, learners)
    return tuple(fragments)


def _error(policy: DistributionPolicy, what: str, why: str, instead: str) -> UsageError:
    return UsageError(f"{policy.name}: the policy {what}", why=why, instead=instead, docs=DOCS)


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text}." if len(text) <= 60 else f"{text[:57]}..."


def _names(policy: DistributionPolicy, fragments: tuple[Fragment, ...] | list[Fragment]) -> None:
    for name, count in Counter(fragment.name for fragment in fragments).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _error(policy, f"calls a fragment {name!r}.", "Names of fragments are part of those of moves.",
                         "Use letters, digits, _ and -, and begin with a letter.")
        if count > 1:
            raise _error(policy, f"calls {count} fragments {name!r}.", "A move names the two fragments that it joins.",
                         "Give each a name of its own.")


def _components(policy: DistributionPolicy, fragments: tuple[Fragment, ...] | list[Fragment], graph: Graph) -> None:
    known = [name for name, _ in graph.components]
    allowed = {*known, PARAMETERS}  # the latter instead of components, where learners agree in one place
    homes: dict[str, str] = {}
    for fragment in fragments:
        if isinstance(fragment.components, str) or not fragment.components:
            raise _error(policy, f"gives {fragment.name} the components {fragment.components!r}.",
                         "A fragment is the components that live in it.",
                         "Give it a tuple of names, or leave the fragment out.")
        for component in fragment.components:
            if component not in allowed:
                raise _error(policy, f"puts {component!r} in {fragment.name}.",
                             f"This loop has no such component; it has {', '.join(known)}.",
                             "Choose from graph.components, as it is another for every algorithm.")
            if component in homes:
                where = f"in both {homes[component]} and" if homes[component] != fragment.name else "twice in"
                raise _error(policy, f"puts {component} {where} {fragment.name}.",
                             "A component's state has one home; the others are sent what they need of it.",
                             "Put it in one of them, once.")
            homes[component] = fragment.name
    if missing := [name for name in known if name not in homes]:
        raise _error(policy, f"has no place for {', '.join(missing)}.", "Every component of the loop runs somewhere.",
                     "Put what you do not name with the learner: Fragment(\"learner\", rest(graph, taken)).")


def _axes(policy: DistributionPolicy, fragments: tuple[Fragment, ...] | list[Fragment]) -> None:
    for fragment in fragments:
        if fragment.axis not in (None, policy.axis):
            raise _error(policy, f"replicates {fragment.name} over {fragment.axis!r}.",
                         f"It declares axis = {policy.axis!r}, and deployments are held against that.",
                         f"Use Fragment(..., axis={policy.axis!r}) or declare the other axis.")
    if policy.device_each and (len(fragments) > 1 or fragments[0].axis is None):
        found = "replicates nothing" if len(fragments) == 1 else f"has {len(fragments)} fragments"
        raise _error(policy, f"asks for a device for every instance, and {found}.",
                     "On several devices the whole loop is one program, of which each has a part.",
                     "Return one fragment with everything in it and an axis, or leave out device_each.")


def _instances(policy: DistributionPolicy, fragments: tuple[Fragment, ...] | list[Fragment], actors: int,
               learners: int) -> None:
    replicated = [fragment for fragment in fragments if fragment.axis]
    learning = [fragment.name for fragment in replicated if "learner" in fragment.components]
    acting = [fragment.name for fragment in replicated if fragment.name not in learning]
    for count, number, names, other in (("actors", actors, acting, "without"),
                                        ("learners", learners, learning, "with")):
        if number > 1 and not names:
            raise _error(policy, f"has no use for {number} {count}.",
                         f"They are the instances of what is replicated {other} the learner, and nothing is.",
                         f"Leave out --{count}, or replicate a fragment {other} the learner: axis={policy.axis!r}.")


def check_sizes(policy: DistributionPolicy, placed: PlacedGraph, sizes: Mapping[str, tuple[int, ...]],
                with_actors: Container[str], learner_shards: int) -> None:
    """`sizes`: how many environments each instance of a fragment has. Those over agents have all of them."""
    for fragment in placed.fragments:
        if fragment.axis != "env":
            continue
        of_learners = [name for name in fragment.components
                       if placed.graph.kind(name) == "buffer" and name not in with_actors]
        each = sum(sizes[fragment.name]) // learner_shards
        if of_learners and any(size % each for size in sizes[fragment.name]):
            one = "one store" if learner_shards == 1 else f"{learner_shards} stores, one for each learner shard"
            raise _error(policy, f"puts {of_learners[0]} in {fragment.name}, which has {len(sizes[fragment.name])} "
                         "instances.", f"This buffer keeps {one}, and cannot be divided among them.",
                         "Put it with the learner, or in a fragment of its own without an axis.")
    for move in placed.moves:
        source, target = sizes[move.source], sizes[move.target]
        if source == target or {placed.fragment(name).axis for name in (move.source, move.target)} != {"env"}:
            continue
        # Each instance speaks to its own; but a whole value goes from one to all, and one copy of it back.
        if move.dim is not None or min(len(source), len(target)) > 1:
            raise UsageError(
                f"{policy.name}: {move.source} and {move.target} are not divided alike.", span=move.span,
                why=f"Their instances have {_list(source)} and {_list(target)} environments, and each sends this value "
                    "to its own.",
                instead="Use as many --actors as --learners, so that both have the same shards, or put both in one "
                        "fragment.", docs=DOCS)


def _list(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
