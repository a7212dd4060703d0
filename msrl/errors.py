"""The one family of errors a user can meet, with a branch per stage.

Every message has the same five parts: where (a span with a caret, or the command), what was found, why it cannot be,
what to write instead, and a page to read. `assert` is for our own bugs only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SHIPPED = Path(__file__).parent / "docs"  # which setup.py makes of the source tree's docs/


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one line of the user's source. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    width: int
    text: str

    def show(self) -> str:
        gutter = f"{self.line:>5} | "
        caret = " " * (len(gutter) + self.column - 1) + "^" * max(1, self.width)
        return f"  {self.file}:{self.line}\n{gutter}{self.text}\n{caret}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class MsrlError(Exception):
    """Base of the family. `what` is the headline; the rest is optional and printed in a fixed order."""

    def __init__(self, what: str, *, span: Span | None = None, why: str = "", instead: str = "", docs: str = "",
                 also: Span | None = None):
        self.what, self.span, self.why, self.instead, self.docs, self.also = what, span, why, instead, docs, also
        super().__init__(self.render())

    def retold(self, **parts: Any) -> "MsrlError":
        """The same error with other words; what else it carries goes along."""
        mine = {name: getattr(self, name) for name in ("what", "span", "why", "instead", "docs", "also")}
        words = {**mine, **parts}
        other = type(self)(words.pop("what"), **words)
        vars(other).update((name, value) for name, value in vars(self).items() if name not in mine)
        return other

    def render(self) -> str:
        parts = [self.what]
        parts += ["", self.span.show()] if self.span else []
        parts += ["", self.also.show()] if self.also else []
        parts += [""] if self.span or self.also else []
        parts += [self.why] if self.why else []
        parts += [self.instead] if self.instead else []
        parts += [f"See {reachable(self.docs)}."] if self.docs else []
        return "\n".join(parts)


def docs_folder() -> Path:
    """Where the documentation's pages are."""
    return _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parents[1] / "docs"


def reachable(docs: str) -> str:
    """A page, given by its path in the source tree and perhaps a section, as the reader can reach it: by a command,
    where MSRL was installed without its source tree."""
    if not _SHIPPED.is_dir():
        return docs
    page, hash_, section = docs.removeprefix("docs/").partition("#")
    return f"`msrl docs {page.removesuffix('.md')}{hash_}{section}`"


def located(problem: MsrlError, where: str) -> MsrlError:
    """The same error, which says where it happened."""
    why = f"{problem.why}\nIt happened in {where}." if problem.why else f"It happened in {where}."
    return problem.retold(why=why)


class UsageError(MsrlError):
    """The command, a flag or an argument is wrong. The command line exits with 2."""


class RoomError(UsageError):
    """A cluster does not have what a deployment needs. If it had it before, it may have it again."""


class LoweringError(MsrlError):
    """`Trainer.train` says something outside the loop language."""


class TypeCheckError(MsrlError):
    """Shapes, dtypes or tree structures do not fit together."""


class PurityError(MsrlError):
    """A component that is compiled depends on, or changes, what a compiled program cannot see."""


class PurityWarning(UserWarning):
    """The same, where what the program computes does not depend on it."""


class EnvError(MsrlError):
    """An environment cannot be made, or an algorithm cannot take it."""


class VerifyError(MsrlError):
    """A graph breaks an invariant: a bug in a pass, or a hand-written text form."""


class RunError(MsrlError):
    """Something failed while training; names the user's line."""


class LostError(RunError):
    """A worker is gone, through no fault of the algorithm's: the run may be tried again from its last checkpoint."""


class NonFiniteError(RunError):
    """A learn was given, or made, a value that is not finite. `fault` is what there is to say of it, as plain data
    (msrl/engines/faults.py)."""

    fault: Any = None
