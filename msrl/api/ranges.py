"""What values a setting takes, said in its type: `rollout: Count = 128`.

In: a Config. Out: nothing, or a UsageError that names the setting, what it may be, and how to give it. What always
holds: a field that is declared again without a range, in a subclass, keeps the one it had.
"""

import dataclasses
import inspect
import math
import numbers
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_origin

from msrl.errors import UsageError


@dataclass(frozen=True)
class Range:
    """Finite numbers from `least` to `most`."""

    least: float
    most: float = math.inf
    above: bool = False
    """Whether `least` itself is left out."""
    whole: bool = False
    """Whether only whole numbers will do."""
    several: bool = False
    """Whether the setting is a tuple of such numbers."""

    def holds(self, value: Any) -> bool:
        if self.several:
            return isinstance(value, (tuple, list)) and all(self.holds_one(each) for each in value)
        return self.holds_one(value)

    def holds_one(self, value: Any) -> bool:
        kind = isinstance(value, numbers.Integral if self.whole else numbers.Real)
        # Not by math.isfinite, which takes no whole number beyond the range of floats.
        return kind and -math.inf < value < math.inf and self.least <= value <= self.most and \
            not (self.above and value == self.least)

    def __str__(self) -> str:
        one = "a whole number" if self.whole else "a number" if self.most < math.inf else "a finite number"
        match self.above, self.most < math.inf:
            case True, True:
                one += f" above {self.least:g} and at most {self.most:g}"
            case True, False:
                one += f" above {self.least:g}"
            case False, True:
                one += f" from {self.least:g} to {self.most:g}"
            case _:
                one += f", {self.least:g} or more"
        return f"a tuple, and each entry {one}" if self.several else one


Count = Annotated[int, Range(1, whole=True)]
"""1, 2, 3, ..."""
Natural = Annotated[int, Range(0, whole=True)]
"""0, 1, 2, ..."""
Positive = Annotated[float, Range(0, above=True)]
"""Above 0."""
NotNegative = Annotated[float, Range(0)]
"""0 or more."""
Portion = Annotated[float, Range(0, 1)]
"""From 0 to 1, both included."""
Widths = Annotated[tuple[int, ...], Range(1, whole=True, several=True)]
"""Of layers, one after another; there may be none."""


SEEDS = Range(-2**31, 2**32 - 1, whole=True)
"""The seeds that JAX tells apart: it takes 32 bits of one."""


def check_seeds(seed: int, seeds: int = 1) -> None:
    """Are `seeds` of them, from `seed` on, ones that JAX tells apart from others?"""
    check_value("seeds", seeds, Count.__metadata__[0])
    for each in (seed, seed + seeds - 1) if isinstance(seed, numbers.Integral) else (seed,):
        if not SEEDS.holds(each):
            long = isinstance(each, int) and each.bit_length() > 128
            raise UsageError("The seed is a number of more than 128 bits." if long else f"The seed is {each!r}.",
                             why=f"It must be a whole number from {SEEDS.least} to {SEEDS.most}: JAX takes 32 bits of "
                                 "it, and a longer one would give the random numbers of another.",
                             instead="Give --seed (in Python: seed=) another value.")


def check_value(name: str, value: Any, allowed: Range) -> None:
    if not allowed.holds(value):
        raise UsageError(f"{name} is {value!r}.", why=f"It must be {allowed}.",
                         instead=f"Give --{name.replace('_', '-')} (in Python: {name}=) another value.")


def check_values(config: Any) -> None:
    """Every field of a dataclass that has a range is in it."""
    for name, allowed in ranges_of(type(config)).items():
        check_value(name, getattr(config, name), allowed)


@cache
def ranges_of(cls: type) -> dict[str, Range]:
    """By field, in the order of the fields."""
    found: dict[str, Range] = {}
    for each in reversed(cls.__mro__):
        for name, hint in inspect.get_annotations(each, eval_str=True).items():
            for extra in hint.__metadata__ if get_origin(hint) is Annotated else ():
                if isinstance(extra, Range):
                    found[name] = extra
    return {field.name: found[field.name] for field in dataclasses.fields(cls) if field.name in found}
