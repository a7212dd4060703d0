"""A deployment: how a program is spread out. It changes what is computed only where it asks for overlap.

`Deployment.from_file` reads one from TOML, `to_toml` writes it down, and reading what was written gives the same. No
code is run. Whether a deployment is possible is for `msrl.feasibility` to say.
"""

import dataclasses
import difflib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msrl.errors import Span, UsageError
from msrl.passes import NAMES

BACKENDS = ("inline", "threads", "ray")
DOCS = "docs/distributions.md"


@dataclass(frozen=True)
class Host:
    """A machine of a cluster."""

    name: str
    """Its address, as Ray knows it."""
    devices: int | None = None
    """How many devices may be used there; the deployment's `devices` unless given."""


@dataclass(frozen=True)
class Deployment:
    """How a program is spread out. It changes what is computed only where its passes have +overlap."""

    distribution: str = "local"
    """A distribution policy: a name from `msrl list`, or file.py:Class."""
    backend: str = ""
    """inline: one thread steps all fragments; threads: one thread per instance; ray: one process per instance.
    Threads unless given; inline where there is but one place, and a thread of its own would bring nothing."""
    actors: int = 1
    """Instances of the fragment that acts."""
    learners: int = 1
    """Instances of the fragment that learns."""
    max_lag: int | None = None
    """How many updates old the weights behind a trajectory may be, where the distribution is asynchronous."""
    address: str | None = None
    """A Ray cluster to join; one is started on this machine unless given."""
    hosts: tuple[Host, ...] = ()
    """The machines to use; wherever Ray finds room unless given."""
    devices: int | None = None
    """How many devices to use on each host; all that JAX finds unless given."""
    passes: str = ""
    """Optimiser passes to switch, like -fuse-instances,+overlap; each is as the optimiser has it unless named."""
    worker_timeout: int | None = None
    """Seconds without a heartbeat after which a worker of Ray's counts as lost; 60 unless given."""

    def __post_init__(self) -> None:
        if not self.backend:
            object.__setattr__(self, "backend", self.usual_backend)

    @property
    def usual_backend(self) -> str:
        return "inline" if self.distribution == "local" else "threads"

    @classmethod
    def from_file(cls, path: str | Path) -> "Deployment":
        """The deployment that a TOML file describes."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(f"The deployment {path} cannot be read.", why=f"{reason}.",
                             instead="Name a TOML file, as `msrl train` leaves one in its run folder.",
                             docs=DOCS) from error
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # the former of a number with thousands of digits, too
            found = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
            span = _span(path, text, int(found[1]), int(found[2])) if found else None
            why = str(error)[:found.start()] if found else str(error)
            raise UsageError(f"The deployment {path} is not TOML.", span=span, why=f"{why}.",
                             instead='Write lines like: actors = 2, or: backend = "threads".', docs=DOCS) from error
        hosts = table.get("hosts", [])
        if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
            raise UsageError(f"`hosts` in {path} is {hosts!r}.", span=_line_of(path, text, "hosts"),
                             why="It is a list of tables, one for each machine.",
                             instead='Write, for each: [[hosts]], then name = "10.0.0.2", then devices = 1.', docs=DOCS)
        for host in hosts:
            _check_table(Host, host, path, text)
            if "name" not in host:
                raise UsageError(f"A host in {path} has no name.", span=_line_of(path, text, "hosts"),
                                 why="Machines are told apart by their addresses.",
                                 instead='Add a line like: name = "10.0.0.2".', docs=DOCS)
        _check_table(cls, {name: value for name, value in table.items() if name != "hosts"}, path, text)
        return cls(**{**table, "hosts": tuple(Host(**host) for host in hosts)})

    def to_toml(self) -> str:
        """Every field that is set, as TOML."""
        values = {name: getattr(self, name) for name in FIELDS if name != "hosts" and (name != "passes" or self.passes)}
        lines = [f"{name} = {_literal(value)}" for name, value in values.items() if value is not None]
        for host in self.hosts:
            lines += ["", "[[hosts]]", f"name = {_literal(host.name)}"]
            lines += [f"devices = {host.devices}"] if host.devices is not None else []
        return "\n".join(lines) + "\n"

    def switches(self) -> dict[str, bool]:
        """The optimiser's passes that are named: on or off. The last word counts."""
        found = {}
        for word in filter(None, (word.strip() for word in self.passes.split(","))):
            sign, name = word[0], word[1:]
            if sign not in "+-":
                raise UsageError(f"{word!r} does not say whether to switch a pass on or off.",
                                 why="Passes are written with a sign.", instead=f"Write +{word} or -{word}.")
            if name not in NAMES:
                raise UsageError(f"There is no pass {name!r}.", why=f"There are {', '.join(NAMES)}.",
                                 instead=nearest(name, NAMES))
            found[name] = sign == "+"
        return found

    def replace(self, **fields: Any) -> "Deployment":
        """The same with other fields. A backend that was not chosen goes along with the distribution."""
        chosen = {} if self.backend != self.usual_backend else {"backend": ""}
        return dataclasses.replace(self, **{**chosen, **fields})


FIELDS = tuple(each.name for each in dataclasses.fields(Deployment))


def nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]}?" if near else "Use one of these."


def _check_table(cls: type, table: dict[str, Any], path: Path, text: str) -> None:
    kinds = {each.name: each.type for each in dataclasses.fields(cls)}
    what = "host" if cls is Host else "deployment"
    for name, value in table.items():
        span = _line_of(path, text, name)
        if name not in kinds:
            raise UsageError(f"A {what} has no {name!r}.", span=span, why=f"It has {', '.join(kinds)}.",
                             instead=nearest(name, tuple(kinds)), docs=DOCS)
        wanted = int if "int" in str(kinds[name]) else str
        if type(value) is not wanted:
            example = f"{name} = 2" if wanted is int else f'{name} = "{getattr(cls, name, None) or "10.0.0.2"}"'
            kind = "a whole number" if wanted is int else "text in quotes"
            raise UsageError(f"`{name}` in {path} is {value!r}.", span=span, why=f"It must be {kind}.",
                             instead=f"Write, for instance: {example}.", docs=DOCS)


def _span(path: Path, text: str, line: int, column: int, width: int = 1) -> Span:
    lines = text.splitlines() or [""]
    line = min(line, len(lines))
    return Span(str(path), line, column, width, lines[line - 1])


def _line_of(path: Path, text: str, key: str) -> Span | None:
    """Where a key stands in a file, if it is written plainly."""
    found = re.search(rf"^[ \t]*\[*({re.escape(key)})[ \t]*[=\]]", text, re.M)
    if not found:
        return None
    line = text.count("\n", 0, found.start(1)) + 1
    return _span(path, text, line, found.start(1) - text.rfind("\n", 0, found.start(1)), len(found[1]))


def _literal(value: Any) -> str:
    """A TOML value. Its strings are JSON's, but for one more character that is escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else str(value)
