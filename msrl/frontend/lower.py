"""`Trainer.train` source → Graph.

In: a trainer object (anything with a `train(self, msrl)` method whose source can be read) and the names of its buffers
and components. Out: a verified, simplified Graph with the meaning of the Python loop. What is outside the loop
language is a LoweringError that says where, why and what to write instead; nothing is skipped in silence.
"""

import ast
import inspect
from typing import Any

from msrl.errors import LoweringError
from msrl.frontend.builder import Binding, Scope, Static, Unbound
from msrl.frontend.complaints import STATEMENTS
from msrl.frontend.expressions import _MISSING, Expressions, NewCounter
from msrl.frontend.source import DOCS, Method, read_method, stored_names
from msrl.ir.graph import Carry, For, Graph, If, Merge, Node, While
from msrl.ir.interactions import ANNOTATIONS, INTERACTIONS
from msrl.ir.simplify import simplify
from msrl.ir.verify import verify


def lower(trainer: Any, buffers: tuple[str, ...] = (), components: tuple[str, ...] = ()) -> Graph:
    counters = [f"#{entry.component}.{entry.method}" for entry in INTERACTIONS.values()
                if entry.keyed and "{" not in entry.component]
    counters += [f"#{buffer}.sample" for buffer in buffers]
    while True:
        try:
            graph = _Lowering(trainer, buffers, components).graph(counters)
        except NewCounter as counter:
            counters.append(str(counter))
            continue
        verify(graph)
        graph = simplify(graph)
        verify(graph)
        return graph


class _Lowering(Expressions):
    def __init__(self, trainer: Any, buffers: tuple[str, ...], components: tuple[str, ...]):
        super().__init__(trainer, buffers, components)
        self.stack: list[str] = []  # methods being inlined
        self.annotations = 0

    def graph(self, counters: list[str]) -> Graph:
        owner = type(self.trainer)
        method = read_method(owner, "train")
        if len(method.parameters) != 1:
            raise method.error(method.tree, "`train` does not take exactly one argument besides `self`.",
                               "It is given the interaction API and nothing else.", "Write `def train(self, msrl):`.")
        for component, writes in [("env", ("$env",)), ("learner", ("$learner", "$weights")), ("metrics", ("$metrics",)),
                                  *((name, (f"${name}",)) for name in (*self.buffers, *self.components))]:
            self.op(component, "init", reads=(), writes=writes, out=None)
        for counter in counters:
            self.resources[counter] = self.constant(counter, 0, "train", None)
        scope = Scope(method, method.parameters[0])
        self.stack.append("train")
        self.statements(method.tree.body, scope)
        if isinstance(scope.returned, (str, Static)) and scope.returned != Static(None):
            raise method.error(method.tree.body[-1], "`train` returns a value.",
                               "A run leaves weights and metrics behind; there is nobody to return a value to.",
                               "Report it: `msrl.report(...)`.")
        kinds = [("env", "env"), ("actor", "actor"), ("learner", "learner"), ("metrics", "metrics"),
                 *((name, "buffer") for name in self.buffers), *((name, "own") for name in self.components)]
        return Graph(owner.__name__, tuple(kinds), tuple(self.nodes), tuple(self.resources.values()))

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            if scope.done:
                return
            self.statement(statement, scope)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        error = scope.method.error
        match node:
            case ast.Assign():
                self.assign(node, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.store(target, self.binding(value, scope, _base(target)), scope)
            case ast.AugAssign(target=target, op=op, value=value):
                if not isinstance(target, ast.Name):
                    raise self.not_a_name(target, scope)
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                joined = ast.copy_location(ast.BinOp(read, op, value), node)
                self.store(target, self.binding(joined, scope, target.id), scope)
            case ast.Expr(value=value):
                self.expression_statement(value, scope)
            case ast.For():
                self.for_(node, scope)
            case ast.While():
                self.while_(node, scope)
            case ast.If():
                self.if_(node, scope)
            case ast.With():
                self.annotation(node, scope)
            case ast.Return():
                self.return_(node, scope)
            case ast.Pass():
                pass
            case _ if type(node) in STATEMENTS:
                raise error(node, *STATEMENTS[type(node)])
            case _:
                raise error(node, f"`{type(node).__name__}` is not part of the loop language.", "",
                            "Use loops, branches, assignments and interaction calls.")

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        first, value = node.targets[0], node.value
        if (len(node.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple)
                and len(first.elts) == len(value.elts)
                and not any(isinstance(part, ast.Starred) for part in (*first.elts, *value.elts))):
            # All right-hand sides are taken before any name changes: `a, b = b, a` swaps.
            parts = [self.binding(part, scope, _base(target)) for target, part in zip(first.elts, value.elts)]
            for target, part in zip(first.elts, parts):
                self.store(target, part, scope)
            return
        binding = self.binding(value, scope, _base(first))
        for target in node.targets:
            self.store(target, binding, scope)

    def store(self, target: ast.expr, binding: Binding, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                if name == scope.interaction or name == "self":
                    raise scope.method.error(target, f"`{name}` is given a new value.",
                                             "The compiler relies on what it stands for.", "Use another name.")
                scope.names[name] = binding
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                whole = self.named(binding, "t", scope, target)
                hidden = "unpacked_"
                scope.names[hidden] = whole
                for position, part in enumerate(parts):
                    if isinstance(part, ast.Starred):
                        raise scope.method.error(part, f"`{ast.unparse(part)}` takes an unknown number of values.",
                                                 "Each name on the left is an edge of the graph.",
                                                 "Name each value, or index the tuple.")
                    item = ast.Subscript(ast.Name(hidden, ast.Load()), ast.Constant(position), ast.Load())
                    self.store(part, self.pure(ast.copy_location(item, part), scope, _base(part)), scope)
                del scope.names[hidden]
            case _:
                raise self.not_a_name(target, scope)

    def not_a_name(self, target: ast.expr, scope: Scope) -> LoweringError:
        text = ast.unparse(target)
        if isinstance(target, ast.Subscript):
            base, index = ast.unparse(target.value), ast.unparse(target.slice)
            return scope.method.error(target, f"`{text}` is changed in place.",
                                      "Values are immutable: fragments that hold one share no memory.",
                                      f"Make a new value: `{base} = {base}.at[{index}].set(...)`.")
        return scope.method.error(target, f"`{text}` is assigned.",
                                  "State outside local variables is invisible to the compiler, and lost when the "
                                  "loop runs elsewhere.",
                                  "Carry the value in a local variable, or keep it in the state of a component.")

    def expression_statement(self, value: ast.expr, scope: Scope) -> None:
        if isinstance(value, ast.Constant):  # a docstring, or `...`
            return
        if self.interacts(value, scope):
            assert isinstance(value, ast.Call)
            self.interaction(value, scope)
            return
        self.binding(value, scope)  # its own complaints come first
        raise scope.method.error(value, f"The value of `{ast.unparse(value)}` is not used.",
                                 "Expressions in the loop are pure, so this line would do nothing.",
                                 "Assign it, or hand it to `msrl.report(...)`.")

    def annotation(self, node: ast.With, scope: Scope) -> None:
        item, *more = node.items
        call = item.context_expr
        if not (not more and item.optional_vars is None and isinstance(call, ast.Call) and not call.args
                and not call.keywords and self.interacts(call, scope) and isinstance(call.func, ast.Attribute)
                and call.func.attr in ANNOTATIONS):
            raise scope.method.error(item.context_expr, f"`with {ast.unparse(item.context_expr)}` cannot be compiled.",
                                     "A context manager runs code on entry and exit that the compiler cannot see.",
                                     f"`with` takes a partition annotation: `{scope.interaction}.together()` or "
                                     f"`{scope.interaction}.apart()`.")
        self.annotations += 1
        outer, self.partition = self.partition, (*self.partition, f"{call.func.attr}.{self.annotations}")
        self.statements(node.body, scope)
        self.partition = outer

    def return_(self, node: ast.Return, scope: Scope) -> None:
        if scope.inside:
            where = scope.inside[-1]
            raise scope.method.error(node, f"`return` inside {where}.",
                                     "Every fragment must reach the end of the method by the same path.",
                                     "Assign the value to a name, and return that on the method's last line.")
        scope.returned = Static(None) if node.value is None else self.binding(node.value, scope)
        scope.done = True

    # -- control flow ------------------------------------------------------------------------------------------------

    def for_(self, node: ast.For, scope: Scope) -> None:
        error = scope.method.error
        if node.orelse:
            raise error(node.orelse[0], "`else` after a loop.", "It belongs to `break`, which the loop language lacks.",
                        "Put the lines after the loop.")
        iterable = node.iter
        if not (isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"
                and not iterable.keywords and 1 <= len(iterable.args) <= 3):
            raise error(iterable, f"A loop over `{ast.unparse(iterable)}`.",
                        "The compiler counts passes, and can count a `range` only.",
                        "Write `for i in range(n):` and index with `i`.")
        if not isinstance(node.target, ast.Name):
            raise error(node.target, f"`{ast.unparse(node.target)}` is no name for a loop's index.",
                        "A `range` gives one number per pass.", "Write `for i in range(n):`.")
        bounds = [self.bound(arg, scope) for arg in iterable.args]
        start, stop, step = {1: [0, *bounds, 1], 2: [*bounds, 1], 3: bounds}[len(bounds)]
        if step == 0:
            raise error(iterable, "A `range` with step 0.", "It would never end.", "Give it another step.")
        index = self.fresh(node.target.id)
        trips = For(index, start, stop, step, (), ()).trips
        if trips == 0:
            return
        carries, body = self.loop(node, scope, {node.target.id: index}, sure=trips is not None)
        self.emit(For(index, start, stop, step, carries, body, scope.method.span(node)))

    def bound(self, expr: ast.expr, scope: Scope) -> int | str:
        for name, place in _names(expr):
            self.check_name(name, place, scope)
        found = _MISSING if self.contains_interaction(expr, scope) else self.fold(expr, scope, only_harmless=False)
        if found is _MISSING:
            return self.value(expr, scope)
        if isinstance(found, bool) or not hasattr(found, "__index__"):
            raise scope.method.error(expr, f"`{ast.unparse(expr)}` is {found!r}, which is no whole number.",
                                     "A loop runs a whole number of times.", "Use `//` or `int(...)`.")
        return found.__index__()

    def while_(self, node: ast.While, scope: Scope) -> None:
        error = scope.method.error
        if node.orelse:
            raise error(node.orelse[0], "`else` after a loop.", "It belongs to `break`, which the loop language lacks.",
                        "Put the lines after the loop.")
        if self.contains_interaction(node.test, scope):
            raise error(node.test, "An interaction is called in the head of a `while`.",
                        "It would run once more than the body, at a place of its own.",
                        "Call it before the loop and again as the last line of the body.")
        for name, place in _names(node.test):
            self.check_name(name, place, scope)
        assigned = stored_names(node.body)
        if not any(name in assigned for name, _ in _names(node.test)):
            found = self.fold(node.test, scope, only_harmless=False)
            if found is not _MISSING and not found:
                return
            raise error(node.test, f"`while {ast.unparse(node.test)}` never ends.",
                        "Nothing in its body changes what the condition depends on.",
                        "Change a name of the condition in the body, or write `for ... in range(...)`.")
        self.loop_test: ast.expr | None
        carries, body, test, condition = self.while_loop(node, scope)
        self.emit(While(carries, test, condition, body, scope.method.span(node)))

    def while_loop(self, node: ast.While, scope: Scope) -> tuple[tuple[Carry, ...], tuple[Node, ...],
                                                                 tuple[Node, ...], str]:
        made: list[Any] = []

        def head() -> None:
            with self.block() as test:
                made.append(self.value(node.test, scope, "going"))
            made.append(tuple(test))

        carries, body = self.loop(node, scope, {}, sure=False, head=head)
        condition, test = made
        return carries, body, test, condition

    def loop(self, node: ast.For | ast.While, scope: Scope, indices: dict[str, str], sure: bool,
             head: Any = None) -> tuple[tuple[Carry, ...], tuple[Node, ...]]:
        """Lowers a loop's body between phis. `sure`: it runs at least once."""
        assigned = stored_names(node.body) | {name: None for name in indices}
        phis: dict[str, tuple[str, str]] = {}  # name → (phi, init)
        for name in assigned:
            before = scope.names.get(name)
            if isinstance(before, (str, Static)) and not (name in indices and sure):
                init = self.named(before, name, scope, node)
                phis[name] = (self.fresh(name), init)
        for resource, version in self.resources.items():
            phis[resource] = (self.fresh(resource), version)
        for name, (phi, _) in phis.items():
            (self.resources if name in self.resources else scope.names)[name] = phi
        if head:
            head()
        scope.names.update(indices)
        scope.inside.append("a loop")
        carries: list[Carry] = []
        with self.block() as body:
            self.statements(node.body, scope)
            after = {name: scope.names.get(name) for name in assigned}
            for name, (phi, init) in phis.items():
                latest = self.resources[name] if name in self.resources else self.named(after[name], name, scope, node)  # type: ignore[arg-type]
                carries.append(Carry(phi, init, latest, self.fresh(name)))
            for name in assigned:
                if name not in phis and sure and isinstance(after[name], (str, Static)):
                    latest = self.named(after[name], name, scope, node)  # type: ignore[arg-type]
                    carries.append(Carry(None, None, latest, self.fresh(name)))
        scope.inside.pop()
        line = scope.method.span(node).line
        outs = {carry.out.rpartition(".")[0]: carry.out for carry in carries}
        for name in assigned:
            scope.names[name] = outs.get(name) or (
                after[name] if isinstance(after[name], Unbound)  # type: ignore[assignment]
                else Unbound(f"It is made in the loop of line {line}, which may run zero times."))
        for resource in self.resources:
            self.resources[resource] = outs[resource]
        return tuple(carries), tuple(body)

    def if_(self, node: ast.If, scope: Scope) -> None:
        if not self.contains_interaction(node.test, scope):
            for name, place in _names(node.test):
                self.check_name(name, place, scope)
            found = self.fold(node.test, scope, only_harmless=False)
            if found is not _MISSING:
                self.statements(node.body if found else node.orelse, scope)
                return
        condition = self.value(node.test, scope, "condition")
        names, resources = dict(scope.names), dict(self.resources)
        scope.inside.append("a branch")
        sides: list[tuple[dict[str, Binding], dict[str, str], list[Node]]] = []
        for body in (node.body, node.orelse):
            scope.names, self.resources = dict(names), dict(resources)
            with self.block() as nodes:
                self.statements(body, scope)
            sides.append((scope.names, self.resources, nodes))
        scope.inside.pop()
        (names_then, resources_then, then), (names_else, resources_else, orelse) = sides
        scope.names, self.resources = names, resources
        merges: list[Merge] = []

        def merge(name: str, left: Binding, right: Binding) -> str:
            picks = []
            for side, nodes in ((left, then), (right, orelse)):
                outer, self.nodes = self.nodes, nodes
                picks.append(self.named(side, name, scope, node))
                self.nodes = outer
            merges.append(Merge(self.fresh(name), *picks))
            return merges[-1].out

        line = scope.method.span(node).line
        for name in {**names_then, **names_else}:
            left, right = names_then.get(name), names_else.get(name)
            if isinstance(left, (str, Static)) and isinstance(right, (str, Static)):
                same = left == right and type(left) is type(right)
                scope.names[name] = left if same else merge(name, left, right)
            else:
                partly = next(side for side in (left, right) if not isinstance(side, (str, Static)))
                scope.names[name] = partly if isinstance(partly, Unbound) else Unbound(
                    f"It is made in one branch of the `if` of line {line} only.")
        for resource in self.resources:
            left, right = resources_then[resource], resources_else[resource]
            if left != right:
                self.resources[resource] = merge(resource, left, right)
        self.emit(If(condition, tuple(then), tuple(orelse), tuple(merges), scope.method.span(node)))

    def contains_interaction(self, node: ast.AST, scope: Scope) -> bool:
        return any(self.interacts(inner, scope) for inner in ast.walk(node))

    # -- helpers -----------------------------------------------------------------------------------------------------

    def inline(self, call: ast.Call, scope: Scope) -> Binding | None:
        """Lowers the body of a helper method in place of its call."""
        assert isinstance(call.func, ast.Attribute)
        name, error = call.func.attr, scope.method.error
        if name in self.stack:
            chain = " → ".join([*self.stack[self.stack.index(name):], name])
            raise error(call, f"`{name}` calls itself ({chain}).",
                        "Helpers are inlined, and this one would be inlined without end.", "Write a loop.")
        owner = type(self.trainer)
        if not callable(getattr(owner, name, None)):
            raise error(call.func, f"The trainer has no method `{name}`.", "Helpers are methods of the trainer.",
                        f"Define `def {name}(self, msrl, ...):` in {owner.__name__}.")
        method = read_method(owner, name)
        given = self.arguments(call, method, scope)
        interaction = next(parameter for parameter, value in given.items() if value is _MISSING)
        inner = Scope(method, interaction)
        for parameter, bound in given.items():
            if bound is not _MISSING:
                inner.names[parameter] = bound
        self.stack.append(name)
        self.statements(method.tree.body, inner)
        self.stack.pop()
        return inner.returned

    def arguments(self, call: ast.Call, method: Method, scope: Scope) -> dict[str, Any]:
        """Parameter → binding; the interaction API itself is marked _MISSING."""
        error = scope.method.error
        kinds = [p.kind for p in inspect.signature(getattr(type(self.trainer), method.name)).parameters.values()]
        packed = any(k in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for k in kinds)
        if packed or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            raise error(call, f"`{method.name}` is called or defined with `*` or `**`.",
                        "Helpers are inlined argument by argument.", "Name each parameter and each argument.")
        pairs = [*zip(method.parameters, call.args), *((k.arg or "", k.value) for k in call.keywords)]
        names = [name for name, _ in pairs]
        wrong = (len(call.args) > len(method.parameters) or len(set(names)) < len(names)
                 or any(name not in method.parameters for name in names)
                 or any(p not in names and p not in method.defaults for p in method.parameters))
        if wrong:
            raise error(call, f"`{method.name}` is called with the wrong arguments.",
                        f"It is `def {method.name}({ast.unparse(method.tree.args)})`.", "Write the call like that.")
        found: dict[str, Any] = {name: Static(default) for name, default in method.defaults.items()}
        for name, expr in pairs:
            is_api = isinstance(expr, ast.Name) and expr.id == scope.interaction
            found[name] = _MISSING if is_api else self.binding(expr, scope, name)
        return found


def _base(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else "t"


def _names(expr: ast.expr) -> list[tuple[str, ast.Name]]:
    from msrl.frontend.source import free_names
    return list(free_names(expr).items())


__all__ = ["DOCS", "lower"]
