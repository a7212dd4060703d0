"""What holds of every graph, checked before and after each pass.

Each name is defined once and before it is used; a resource is joined with versions of itself only, is read only in its
newest version, and is among the results, so that effects cannot be reordered or lost; ops name components that exist.
Of a local program the same holds, but for what it only has a copy of: that may be dropped when nobody reads it.
"""

from collections.abc import Container

from msrl.errors import VerifyError
from msrl.ir.graph import (
    Call,
    Carry,
    For,
    Graph,
    If,
    Node,
    Pure,
    Recv,
    While,
    base,
    calls,
    definitions,
    is_resource,
    uses,
)
from msrl.ir.placed import PARAMETERS, LocalProgram


def verify(graph: Graph) -> None:
    """Raises VerifyError, naming the node, where an invariant is broken."""
    checker = _Checker({name for name, _ in graph.components})
    checker.whole(graph.nodes, graph.results)


def verify_local(program: LocalProgram) -> None:
    """The same for a local program. What projection adds, a part that is cut or a whole that is put together, may be
    made in several places, each time in the same way."""
    kept = {base(name) for call in calls(program.nodes) if call.component != PARAMETERS for name in call.writes}
    _Checker(set(program.fragment.components), kept).whole(program.nodes, program.results)


class _Checker:
    """`kept`: of a local program, the resources that may not be lost."""

    def __init__(self, components: set[str], kept: Container[str] | None = None):
        self.components, self.kept = components, kept
        self.defined: dict[str, Node] = {}

    def whole(self, nodes: tuple[Node, ...], results: tuple[str, ...]) -> None:
        newest = self.block(nodes, set(), {})
        for result in results:
            if newest.get(base(result)) != result:
                raise VerifyError(f"The result {result} is not the newest version of {base(result)}.")
        for name, version in newest.items():
            if self.matters(name) and version not in results:
                raise VerifyError(f"The resource {version} is not among the results.")

    def matters(self, name: str) -> bool:
        return is_resource(name) and (self.kept is None or name in self.kept)

    def fail(self, node: Node, what: str) -> VerifyError:
        return VerifyError(what, span=node.span, why=f"In {type(node).__name__}.")

    def define(self, node: Node, name: str, visible: set[str]) -> None:
        again = self.kept is not None and isinstance(node, (Pure, Recv)) and self.defined.get(name) == node
        if name in self.defined and not again:
            raise self.fail(node, f"{name} is defined twice.")
        self.defined[name] = node
        visible.add(name)

    def use(self, node: Node, name: str, visible: set[str], newest: dict[str, str]) -> None:
        if name not in visible:
            raise self.fail(node, f"{name} is used where it is not defined.")
        if is_resource(name) and newest[base(name)] != name:
            raise self.fail(node, f"{name} is read, but {newest[base(name)]} has replaced it.")

    def block(self, nodes: tuple[Node, ...], visible: set[str], newest: dict[str, str]) -> dict[str, str]:
        for node in nodes:
            for name in uses(node):
                self.use(node, name, visible, newest)
            match node:
                case Call():
                    self.call(node)
                case Pure():
                    pass
                case For():
                    inside = set(visible)
                    self.define(node, node.index, inside)
                    self.loop(node, node.carries, inside, dict(newest), ())
                case While():
                    self.loop(node, node.carries, set(visible), dict(newest), node.test)
                case If():
                    self.branches(node, visible, newest)
            for name in definitions(node):
                self.define(node, name, visible)
                newest[base(name)] = name
        return newest

    def one_resource(self, node: Node, what: str, joined: tuple[str | None, ...]) -> None:
        names = {base(name) for name in joined if name}
        if len(names) > 1 and any(is_resource(name) for name in names):
            raise self.fail(node, f"A {what} joins different resources: {', '.join(sorted(names))}.")

    def call(self, node: Call) -> None:
        if node.component not in self.components:
            raise self.fail(node, f"There is no component {node.component}.")
        values = (*node.args, *(value for _, value in node.kwargs), *((node.out,) if node.out else ()))
        for name in values:
            if is_resource(name):
                raise self.fail(node, f"The resource {name} stands where a value belongs.")
        for name in (*node.reads, *node.writes):
            if not is_resource(name):
                raise self.fail(node, f"The value {name} stands where a resource belongs.")

    def loop(self, node: For | While, carries: tuple[Carry, ...], visible: set[str], newest: dict[str, str],
             test: tuple[Node, ...]) -> None:
        for carry in carries:
            self.one_resource(node, "carry", (carry.phi, carry.init, carry.next, carry.out))
            if (carry.phi is None) != (carry.init is None):
                raise self.fail(node, f"The carry of {carry.out} has a phi or an init, but not both.")
            if carry.phi:
                self.define(node, carry.phi, visible)
                newest[base(carry.phi)] = carry.phi
        carried = {base(carry.out) for carry in carries}
        before = dict(newest)
        newest = self.block(test, visible, newest)
        if isinstance(node, While):
            self.use(node, node.condition, visible, newest)
        newest = self.block(node.body, visible, newest)
        for carry in carries:
            self.use(node, carry.next, visible, newest)
        for name, version in newest.items():
            if self.matters(name) and name not in carried and before.get(name) != version:
                raise self.fail(node, f"{name} is written in the loop, but the loop does not carry it.")

    def branches(self, node: If, visible: set[str], newest: dict[str, str]) -> None:
        merged = {base(merge.out) for merge in node.merges}
        for merge in node.merges:
            self.one_resource(node, "merge", (merge.out, merge.then, merge.orelse))
        sides = ((node.then, [m.then for m in node.merges]), (node.orelse, [m.orelse for m in node.merges]))
        for nodes, picks in sides:
            inside, latest = set(visible), dict(newest)
            latest = self.block(nodes, inside, latest)
            for pick in picks:
                self.use(node, pick, inside, latest)
            for name, version in latest.items():
                if self.matters(name) and name not in merged and newest.get(name) != version:
                    raise self.fail(node, f"{name} is written in a branch, but not merged after it.")
