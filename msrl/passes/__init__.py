"""The optimiser: named rewrites, each in a file of its own, in the order in which they are applied.

`overlap` and `decide-branches` rewrite the graph before it is placed; the others rewrite local programs. What they
decide stands in the program: a worker does what is written there, and `msrl graph --fragment` prints it. All but
`overlap` leave the meaning as it is; those that fuse or call back change rounding, and strict mode has none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msrl.errors import UsageError


@dataclass(frozen=True)
class Pass:
    name: str
    on: bool  # unless it is switched
    strict: bool  # does it leave every bit as it is?
    does: str


PASSES = (
    Pass("overlap", on=False, strict=True, does="actors act on weights one pass old, while the learner learns"),
    Pass("decide-branches", on=True, strict=True, does="an `if` that goes one way on every pass is no branch"),
    Pass("coalesce-moves", on=True, strict=True, does="what can leave together is one message"),
    Pass("fuse-instances", on=True, strict=False, does="the shards of an instance run as one batch"),
    Pass("call-back", on=True, strict=False, does="compiled loops call environments that are on the host"),
    Pass("fuse-stretches", on=True, strict=False, does="consecutive ops, and whole loops, are one compiled program"),
)
NAMES = tuple(each.name for each in PASSES)


def chosen(switches: Mapping[str, bool], strict: bool) -> frozenset[str]:
    """The passes that are on. `switches`: those that are named, on or off."""
    for each in PASSES:
        if strict and not each.strict and switches.get(each.name):
            raise UsageError(f"{each.name} cannot be had in strict mode.",
                             why="It changes rounding, and strict mode runs every op of every shard by itself.",
                             instead=f"Leave out +{each.name}, or --strict.", docs="docs/distributions.md#passes")
    return frozenset(each.name for each in PASSES
                     if switches.get(each.name, each.on) and (each.strict or not strict))
