"""Faults on purpose: what `--chaos` asks for, from text to plain data and back.

In: `kill:actor@200,hang:env@50,nan:reward@80,delay:moves=5ms`. Out: a `Chaos`. It always holds that `str` gives text
that parses to the same again, that text which says anything else is refused with the nearest that is right, and that a
fault is taken out of a run's chaos once it has happened, so that a run which goes on after it does not meet it again.
"""

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import NoReturn

from msrl.errors import LostError, UsageError

# kind → what it can befall; None for any fragment.
KINDS: dict[str, tuple[str, ...] | None] = {
    "kill": None, "hang": ("env",), "raise": ("env",), "nan": ("reward", "observation"), "delay": ("moves",)}
COMMON = ("actor", "learner", "env")  # what is killed most often, for suggestions
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}
DOCS = "docs/reliability.md#faults-on-purpose"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, once: in the pass `at` of the loop that trains if something is killed, else in the
    step `at` of a shard's environments. Both count from 1."""

    kind: str  # kill, hang, raise or nan
    what: str
    at: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.what}@{self.at}"


@dataclass(frozen=True)
class Link:
    """What messages go over: how many seconds each is on its way, and how many bytes a second leave the sender. With
    neither, they take what they take."""

    delay: float = 0.0
    rate: float = 0.0  # 0: as many as there are

    def __bool__(self) -> bool:
        return bool(self.delay or self.rate)

    def __str__(self) -> str:
        parts = ((f"{self.delay * 1e3:.12g}ms",) if self.delay else ()) + (
            (f"{self.rate / 1e6:.12g}MB/s",) if self.rate else ())
        return "+".join(parts)


@dataclass(frozen=True)
class Chaos:
    """All that is to go wrong in a run. `link`: what messages between instances go over."""

    faults: tuple[Fault, ...] = ()
    link: Link = Link()

    def __str__(self) -> str:
        return ",".join((*map(str, self.faults), *((f"delay:moves={self.link}",) if self.link else ())))

    def of(self, *kinds: str) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if fault.kind in kinds)

    def poison(self, what: str) -> tuple[int, ...]:
        """The steps in which this is NaN."""
        return tuple(fault.at for fault in self.of("nan") if fault.what == what)

    def without(self, happened: Fault | None, steps: int) -> "Chaos":
        """What is left after this, and after so many steps of each environment."""
        left = [fault for fault in self.faults if fault != happened and (fault.kind == "kill" or fault.at > steps)]
        return dataclasses.replace(self, faults=tuple(left))


class Killed(LostError):
    """A worker that was ended on purpose, by `fault`. It is lost as any other."""

    def __init__(self, fault: Fault, title: str):
        self.fault = fault
        super().__init__(f"The worker of {title} died.", why=f"--chaos {fault} ended it.",
                         instead="Allow for more losses with --restarts, or leave out --chaos.")


def parse(text: str) -> Chaos:
    """`text` as a `Chaos`: an empty one for no text."""
    faults: list[Fault] = []
    link = Link()
    for entry in text.split(",") if text.strip() else ():
        kind, colon, rest = entry.strip().partition(":")
        if not colon or kind not in KINDS:
            refuse(entry, f"A fault is KIND:WHAT@WHEN or delay:moves=TIME; kinds are {', '.join(KINDS)}.")
        what, sign, when = re.fullmatch(r"([^@=]*)([@=]?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        known = KINDS[kind]
        if known is not None and what not in known:
            refuse(entry, f"What {kind} can befall is {' or '.join(known)}.")
        if not what:
            refuse(entry, "It does not say which fragment.")
        if kind == "delay":
            if link:
                refuse(entry, "Moves are delayed already, and all in the same way.")
            link = read_link(when) if sign == "=" else Link()
            if not link:
                refuse(entry, "A delay is a time above zero in us, ms or s, a rate in kB/s, MB/s or GB/s, or both, "
                              "with a + between them.")
        else:
            if sign != "@" or not re.fullmatch("[1-9][0-9]*", when):
                refuse(entry, f"When, after an @, is {'a pass of the loop' if kind == 'kill' else 'a step'}: 1, 2, ...")
            faults.append(Fault(kind, what, int(when)))
            if faults.count(faults[-1]) > 1:
                refuse(entry, "It is there twice, and a fault happens once.")
    return Chaos(tuple(faults), link)


def read_link(text: str) -> Link:
    """An empty one if it is none."""
    number = r"(\d+\.?\d*|\.\d+)"
    found = re.fullmatch(rf"(?:{number}(us|ms|s))?(\+(?!$))?(?:{number}(kB/s|MB/s|GB/s))?", text)
    if found is None or bool(found[3]) != bool(found[1] and found[4]):
        return Link()
    delay, rate = (float(found[at]) * units[found[at + 1]] if found[at] else 0.0
                   for at, units in ((1, UNITS), (4, RATES)))
    return Link(delay, rate) if all(float(found[at]) for at in (1, 4) if found[at]) else Link()


def refuse(entry: str, why: str) -> NoReturn:
    raise UsageError(f"--chaos cannot be told {entry.strip()!r}.", why=why, instead=f"For instance: {nearest(entry)}",
                     docs=DOCS)


def nearest(entry: str) -> str:
    """The text that is right and most like it."""
    words = re.findall("[a-z][a-z_-]*", entry.lower())
    found = [near for word in words if (near := difflib.get_close_matches(word, KINDS, 1, 0.5))]
    # Of what can befall only one kind, what is named tells the kind, too.
    told = {what: kind for kind, known in KINDS.items() for what in known or ()}
    guessed = [told[near[0]] for word in words if (near := difflib.get_close_matches(word, told, 1, 0.6))]
    kind = found[0][0] if found else guessed[0] if guessed else "kill"
    known = KINDS[kind] or COMMON
    likes = [near[0] for word in words if (near := [each for each in known if each.startswith(word)]
                                           or difflib.get_close_matches(word, known, 1, 0.5))]
    number = re.search(r"[1-9]\d*", entry)
    when = number[0] if number else "5" if kind == "delay" else "200"
    what = likes[0] if likes else known[0]
    if kind == "kill" and not likes:  # a fragment of one's own may be called anything
        named = [word for word in words if word not in found[0]] if found else []
        what = named[0] if named else what
    if kind != "delay":
        return f"{kind}:{what}@{when}"
    unit = next((unit for unit in UNITS if entry.rstrip().endswith(unit)), "ms")
    return f"delay:moves={when}{unit}"
