"""What lowering keeps in hand: the names in scope, the newest resources, and the block being written."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from msrl.errors import Span
from msrl.frontend.source import Method
from msrl.ir.graph import Call, Node, Pure


@dataclass(frozen=True, slots=True)
class Static:
    """A Python constant known while compiling; its `repr` is a literal. `span` is where the user wrote it."""

    value: Any
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Unbound:
    """A name that has a value on some paths only; `why` says on which it has none."""

    why: str


Bound = str | Static  # str: an SSA name
Binding = Bound | Unbound


@dataclass(slots=True)
class Scope:
    """One method's local names while it is lowered. An inlined helper has a scope of its own."""

    method: Method
    interaction: str  # the parameter that is the interaction API
    result: str = "t"  # what to call the value that the method returns
    names: dict[str, Binding] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)  # the loops and branches around the statement
    returned: Bound | None = None
    done: bool = False

    def leave_unbound(self, names: Iterator[str] | dict[str, Any], why: str) -> None:
        """Marks names that a block which never runs would have made."""
        self.names.update((name, Unbound(why)) for name in names if name not in self.names)


class Builder:
    """Emits nodes with fresh names."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.resources: dict[str, str] = {}
        self.partition: tuple[str, ...] = ()
        self._versions: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        self._versions[base] = self._versions.get(base, 0) + 1
        return f"{base}.{self._versions[base]}"

    def emit(self, node: Node) -> None:
        self.nodes.append(node)

    @contextmanager
    def block(self, nodes: list[Node] | None = None) -> Iterator[list[Node]]:
        """Nodes emitted inside go to a list of their own, or to the end of `nodes`."""
        outer, self.nodes = self.nodes, [] if nodes is None else nodes
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def constant(self, base: str, value: Any, scope: str, span: Span | None) -> str:
        out = self.fresh(base)
        self.emit(Pure(out, repr(value), (), scope, span))
        return out

    def op(self, component: str, method: str, *, reads: tuple[str, ...], writes: tuple[str, ...], out: str | None,
           args: tuple[str, ...] = (), kwargs: tuple[tuple[str, str], ...] = (),
           span: Span | None = None) -> str | None:
        """Emits a Call; `reads` and `writes` are resources without versions. Returns the name of its value."""
        before = tuple(self.resources[resource] for resource in reads)
        for resource in writes:
            self.resources[resource] = self.fresh(resource)
        after = tuple(self.resources[resource] for resource in writes)
        value = self.fresh(out) if out else None
        self.emit(Call(value, component, method, args, kwargs, before, after, self.partition, span))
        return value
