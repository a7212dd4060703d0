"""Loops and branches → For, While and If nodes, with what they carry and merge."""

import ast
from collections.abc import Callable
from typing import Any

from msrl.frontend.builder import Binding, Bound, Scope, Static, Unbound
from msrl.frontend.expressions import NOT_CONSTANT, bound
from msrl.frontend.helpers import Helpers
from msrl.frontend.source import free_names, stored_names
from msrl.ir.graph import Carry, For, If, Merge, Node, While, base

Loop = tuple[tuple[Carry, ...], tuple[Node, ...]]  # carries, body


class Control(Helpers):
    # -- for ---------------------------------------------------------------------------------------------------------

    def for_(self, node: ast.For, scope: Scope) -> None:
        error = scope.method.error
        self.no_else(node, scope)
        iterable = node.iter
        if not (isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"
                and not iterable.keywords and 1 <= len(iterable.args) <= 3):
            raise error(iterable, f"A loop over `{ast.unparse(iterable)}`.",
                        "The compiler counts passes, and can count a `range` only.",
                        "Write `for i in range(n):` and index with `i`.")
        if not isinstance(node.target, ast.Name):
            raise error(node.target, f"`{ast.unparse(node.target)}` is no name for a loop's index.",
                        "A `range` gives one number per pass.", "Write `for i in range(n):`.")
        bounds = [self.range_bound(arg, scope) for arg in iterable.args]
        start, stop, step = {1: [0, *bounds, 1], 2: [*bounds, 1], 3: bounds}[len(bounds)]
        if step == 0:
            raise error(iterable, "A `range` with step 0.", "It would never end.", "Give it another step.")
        index = self.fresh(node.target.id)
        trips = For(index, start, stop, step, (), ()).trips
        if trips == 0:
            self.never_runs(node, scope)
            return
        carries, body = self.loop(node, scope, {node.target.id: index}, sure=trips is not None)
        self.emit(For(index, start, stop, step, carries, body, scope.method.span(node)))

    def range_bound(self, expr: ast.expr, scope: Scope) -> int | str:
        """One argument of a `range`: a number, or the name of a value."""
        found: Any = NOT_CONSTANT
        if not self.contains_interaction(expr, scope):
            self.check_names(expr, scope)
            found = self.fold(expr, scope, only_harmless=False)
        if found is NOT_CONSTANT:
            given = self.binding(expr, scope)
            if isinstance(given, str):
                return given
            found = given.value
        number = whole_number(found)
        if number is None:
            raise scope.method.error(expr, f"`{ast.unparse(expr)}` is {found!r}, which is no whole number.",
                                     "A loop runs a whole number of times.", "Use `//` or `int(...)`.")
        return number

    # -- while -------------------------------------------------------------------------------------------------------

    def while_(self, node: ast.While, scope: Scope) -> None:
        error = scope.method.error
        self.no_else(node, scope)
        if self.contains_interaction(node.test, scope):
            raise error(node.test, "An interaction is called in the head of a `while`.",
                        "It would run once more than the body, at a place of its own.",
                        "Call it before the loop and again as the last line of the body.")
        self.check_names(node.test, scope)
        assigned = stored_names(node.body)
        if not any(name in assigned for name in free_names(node.test)):
            if self.truth(node.test, scope) is False:
                self.never_runs(node, scope)
                return
            raise error(node.test, f"`while {ast.unparse(node.test)}` never ends.",
                        "Nothing in its body changes what the condition depends on.",
                        "Change a name of the condition in the body, or write `for ... in range(...)`.")
        test: list[Node] = []
        condition: list[str] = []

        def head() -> None:
            with self.block(test):
                condition.append(self.value(node.test, scope, "going"))

        carries, body = self.loop(node, scope, {}, sure=False, head=head)
        self.emit(While(carries, tuple(test), condition[0], body, scope.method.span(node)))

    # -- both loops --------------------------------------------------------------------------------------------------

    def no_else(self, node: ast.For | ast.While, scope: Scope) -> None:
        if node.orelse:
            raise scope.method.error(node.orelse[0], "`else` after a loop.",
                                     "It belongs to `break`, which the loop language lacks.",
                                     "Put the lines after the loop.")

    def never_runs(self, node: ast.For | ast.While, scope: Scope) -> None:
        scope.leave_unbound(stored_names([node]), f"It is made in the loop of line {node.lineno}, "
                                                  "which runs zero times in this configuration.")

    def loop(self, node: ast.For | ast.While, scope: Scope, indices: dict[str, str], *, sure: bool,
             head: Callable[[], None] | None = None) -> Loop:
        """Lowers a loop's body between phis. `sure`: it runs at least once."""
        assigned = {**stored_names(node.body), **indices}
        phis = self.open_loop(node, scope, assigned, indices if sure else {})
        if head:
            head()
        scope.names.update(indices)
        scope.inside.append("a loop")
        carries: list[Carry] = []
        with self.block() as body:
            self.statements(node.body, scope)
            for name, (phi, init) in phis.items():
                latest = self.resources.get(name) or self.named(bound(scope.names[name]), name, scope, node)
                carries.append(Carry(phi, init, latest, self.fresh(name)))
            for name in assigned:
                held = scope.names.get(name)
                if name not in phis and sure and isinstance(held, (str, Static)):
                    carries.append(Carry(None, None, self.named(held, name, scope, node), self.fresh(name)))
        scope.inside.pop()
        self.close_loop(node, scope, assigned, carries)
        return tuple(carries), tuple(body)

    def open_loop(self, node: ast.For | ast.While, scope: Scope, assigned: dict, replaced: dict) -> dict:
        """Gives what the loop may change a name of its own at the head of each pass: name → (phi, init)."""
        phis: dict[str, tuple[str, str]] = {}
        for name in assigned:
            held = scope.names.get(name)
            if isinstance(held, (str, Static)) and name not in replaced:
                init = self.named(held, name, scope, node)
                phis[name] = (self.fresh(name), init)
                scope.names[name] = phis[name][0]
        for resource, version in self.resources.items():
            phis[resource] = (self.fresh(resource), version)
            self.resources[resource] = phis[resource][0]
        return phis

    def close_loop(self, node: ast.For | ast.While, scope: Scope, assigned: dict, carries: list[Carry]) -> None:
        """Names what the loop leaves behind."""
        outs = {base(carry.out): carry.out for carry in carries}
        for name in assigned:
            held = scope.names.get(name)
            if name in outs:
                scope.names[name] = outs[name]
            elif not isinstance(held, Unbound):
                scope.names[name] = Unbound(f"It is made in the loop of line {node.lineno}, which may run zero times.")
        for resource in self.resources:
            self.resources[resource] = outs[resource]

    # -- if ----------------------------------------------------------------------------------------------------------

    def if_(self, node: ast.If, scope: Scope) -> None:
        known = self.truth(node.test, scope)
        if known is not None:
            taken, other = (node.body, node.orelse) if known else (node.orelse, node.body)
            self.statements(taken, scope)
            scope.leave_unbound(stored_names(other), f"It is made in the branch of the `if` of line {node.lineno} that "
                                                     "is not taken in this configuration.")
            return
        condition = self.value(node.test, scope, "condition")
        names, resources = dict(scope.names), dict(self.resources)
        scope.inside.append("a branch")
        sides: list[_Side] = []
        for body in (node.body, node.orelse):
            scope.names, self.resources = dict(names), dict(resources)
            with self.block() as nodes:
                self.statements(body, scope)
            sides.append(_Side(scope.names, self.resources, nodes))
        scope.inside.pop()
        scope.names, self.resources = names, resources
        merges = self.merges(node, scope, *sides)
        self.emit(If(condition, tuple(sides[0].nodes), tuple(sides[1].nodes), merges, scope.method.span(node)))

    def merges(self, node: ast.If, scope: Scope, then: "_Side", orelse: "_Side") -> tuple[Merge, ...]:
        """Joins what the branches left in different states."""
        merges: list[Merge] = []

        def merge(name: str, left: Bound, right: Bound) -> str:
            picks = []
            for held, side in ((left, then), (right, orelse)):
                with self.block(side.nodes):
                    picks.append(self.named(held, name, scope, node))
            merges.append(Merge(self.fresh(name), *picks))
            return merges[-1].out

        for name in {**then.names, **orelse.names}:
            left, right = then.names.get(name), orelse.names.get(name)
            if isinstance(left, (str, Static)) and isinstance(right, (str, Static)):
                scope.names[name] = left if same(left, right) else merge(name, left, right)
            else:
                reasons = [side for side in (left, right) if isinstance(side, Unbound)]
                only = Unbound(f"It is made in one branch of the `if` of line {node.lineno} only.")
                scope.names[name] = reasons[0] if reasons else only
        for resource in self.resources:
            before, after = then.resources[resource], orelse.resources[resource]
            if before != after:
                self.resources[resource] = merge(resource, before, after)
        return tuple(merges)


def whole_number(value: Any) -> int | None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return int(value.__index__())
    except TypeError:  # an array of floats has an `__index__` that refuses
        return None


class _Side:
    """A branch as it was left."""

    def __init__(self, names: dict[str, Binding], resources: dict[str, str], nodes: list[Node]):
        self.names, self.resources, self.nodes = names, resources, nodes


def same(left: Bound, right: Bound) -> bool:
    if isinstance(left, Static) and isinstance(right, Static):
        return repr(left.value) == repr(right.value)  # tells 1 from 1.0 and from True, inside tuples too
    return left == right
