"""The meaning: walks a graph in one place, op after op, in the order the user wrote.

A `Machine` says what an op and an expression do to real values. `Host` machines take control flow in Python; a
tracing machine (msrl/engines/xla.py) takes it as compiled control flow. Every deployment must reproduce what
`interpret` gives with the reference machine.
"""

from abc import ABC, abstractmethod
from typing import Any, assert_never

from msrl.errors import TypeCheckError
from msrl.ir.graph import Call, Flush, For, Graph, If, Node, Pure, Recv, Send, Stretch, While, base, nexts

Names = dict[str, Any]


def unpack(value: Any, count: int) -> tuple:
    """What `a, b = value` unpacks: lowering writes it as `unpack_(value, 2)`."""
    try:
        parts = tuple(value)
    except TypeError:
        raise TypeCheckError(f"A value without parts is unpacked into {count} names.",
                             why="Tuples, lists and arrays have parts.", instead="Give it one name.") from None
    if len(parts) != count:
        raise TypeCheckError(f"A value of {len(parts)} parts is unpacked into {count} names.",
                             instead="Give as many names as there are parts.")
    return parts


EXPRESSION_NAMES = {"unpack_": unpack}
"""What pure expressions see besides the names of the user's method."""


class Machine(ABC):
    @abstractmethod
    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        """(what the op returns, the resources it writes)."""

    @abstractmethod
    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any: ...

    @abstractmethod
    def for_(self, node: For, names: Names) -> None:
        """Runs the loop; leaves its carries' `out` in names."""

    @abstractmethod
    def while_(self, node: While, names: Names) -> None: ...

    @abstractmethod
    def if_(self, node: If, names: Names) -> None: ...

    def move(self, node: Send | Recv | Flush, names: Names) -> None:
        """What crosses between instances, for a machine that is all of them at once."""
        raise AssertionError("moves are for whoever runs the local programs")

    def block(self, nodes: tuple[Node, ...], names: Names, tail: tuple[str, ...]) -> None:
        """Runs a block; `names` holds what is defined so far and gains at least the names in `tail`."""
        run_nodes(nodes, names, self)


class Host(Machine):
    """Control flow as Python does it."""

    def for_(self, node: For, names: Names) -> None:
        bounds = (int(names[b]) if isinstance(b, str) else b for b in (node.start, node.stop, node.step))
        carried = {carry.phi: names[carry.init] for carry in node.carries if carry.phi and carry.init}
        last: Names = dict(names)
        for index in range(*bounds):
            last = {**names, **carried, node.index: index}
            self.block(node.body, last, nexts(node))
            carried = {carry.phi: last[carry.next] for carry in node.carries if carry.phi}
        leave_loop(node, names, carried, last)

    def while_(self, node: While, names: Names) -> None:
        carried = {carry.phi: names[carry.init] for carry in node.carries if carry.phi and carry.init}
        while True:
            here = {**names, **carried}
            self.block(node.test, here, (node.condition,))
            if not bool(here[node.condition]):
                break
            self.block(node.body, here, nexts(node))
            carried = {carry.phi: here[carry.next] for carry in node.carries if carry.phi}
        leave_loop(node, names, carried, names)

    def if_(self, node: If, names: Names) -> None:
        taken = bool(names[node.condition])
        here = dict(names)
        picks = [merge.then if taken else merge.orelse for merge in node.merges]
        self.block(node.then if taken else node.orelse, here, tuple(picks))
        names.update((merge.out, here[pick]) for merge, pick in zip(node.merges, picks, strict=True))


def leave_loop(node: For | While, names: Names, carried: Names, last: Names) -> None:
    for carry in node.carries:
        names[carry.out] = carried[carry.phi] if carry.phi else last[carry.next]


def run_nodes(nodes: tuple[Node, ...], names: Names, machine: Machine) -> None:
    """Runs a block node by node."""
    for node in nodes:
        match node:
            case Call():
                args = tuple(names[a] for a in node.args)
                kwargs = {field: names[value] for field, value in node.kwargs}
                out, written = machine.call(node, args, kwargs, tuple(names[r] for r in node.reads))
                if node.out:
                    names[node.out] = out
                names.update(zip(node.writes, written, strict=True))
            case Pure():
                names[node.out] = machine.pure(node, {name: names[value] for name, value in node.inputs})
            case For():
                machine.for_(node, names)
            case While():
                machine.while_(node, names)
            case If():
                machine.if_(node, names)
            case Send() | Recv() | Flush():
                machine.move(node, names)
            case Stretch():
                machine.block(node.nodes, names, node.outputs)
            case _:
                assert_never(node)


def interpret(graph: Graph, machine: Machine) -> Names:
    """Runs the whole graph: the resources as it leaves them, by name without version."""
    names: Names = {}
    machine.block(graph.nodes, names, graph.results)
    return {base(result): names[result] for result in graph.results}
