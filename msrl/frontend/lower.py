"""`Trainer.train` source → Graph.

In: a trainer object (anything with a `train(self, msrl)` method whose source can be read) and the names of its buffers
and components. Out: a verified, simplified Graph with the meaning of the Python loop. What is outside the loop
language is a LoweringError that says where, why and what to write instead; nothing is skipped in silence.
"""

import ast
from typing import Any

from msrl.errors import LoweringError, Span
from msrl.frontend.builder import Bound, Scope, Static
from msrl.frontend.calls import NewCounter
from msrl.frontend.complaints import STATEMENTS, Complaint
from msrl.frontend.control import Control
from msrl.frontend.effects import calls_unknown, is_effect
from msrl.frontend.expressions import base_name
from msrl.frontend.source import DOCS, read_method
from msrl.ir.graph import Graph, Pure, walk
from msrl.ir.interactions import ANNOTATIONS, INTERACTIONS
from msrl.ir.simplify import simplify
from msrl.ir.verify import verify


def lower(trainer: Any, buffers: tuple[str, ...] = (), components: tuple[str, ...] = (), eager: bool = False,
          folded: set[tuple[str, Span]] | None = None) -> Graph:
    """With `eager`, lines that print, log or stop in the debugger are left out of the graph: Python runs the loop, and
    wants to know from the graph how its values are divided. `folded` is given the methods and places of expressions
    that the compiler has computed."""
    counters = [f"#{entry.component}.{entry.method}" for entry in INTERACTIONS.values()
                if entry.keyed and "{" not in entry.component]
    counters += [f"#{buffer}.sample" for buffer in buffers]
    while True:
        try:
            lowering = _Lowering(trainer, buffers, components, eager)
            graph = lowering.graph(counters)
        except NewCounter as counter:
            counters.append(str(counter))
            continue
        if folded is not None:
            folded |= lowering.folded
        verify(graph)
        simple = simplify(graph)
        verify(simple)
        if not eager:
            lowering.check_dropped(graph, simple)
        return simple


_NOT_CALLED = "A compiled loop does not call a function whose value nobody reads, and it may have an effect."


def not_used(text: str, interaction: str) -> Complaint:
    return Complaint(f"The value of `{text}` is not used.",
                     "Expressions in the loop are pure, so this line would do nothing.",
                     f"Leave the line out, or hand the value to `{interaction}.report(...)`. What has an effect "
                     f"belongs in a component: `{interaction}.call(...)`.")


class _Lowering(Control):
    """Lowers statements."""

    def __init__(self, trainer: Any, buffers: tuple[str, ...], components: tuple[str, ...], eager: bool):
        super().__init__(trainer, buffers, components)
        self.annotations, self.eager = 0, eager

    def graph(self, counters: list[str]) -> Graph:
        owner = type(self.trainer)
        method = read_method(owner, "train")
        parameters = [p for p in method.signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(parameters) != 1 or len(method.signature.parameters) != 1 or not method.bound:
            raise method.error(method.tree, "`train` does not take exactly one argument besides `self`.",
                               "It is given the interaction API and nothing else.", "Write `def train(self, msrl):`.")
        # Loops carry resources in this order. A store must come before the learner that learns from it, or XLA copies
        # all of it on every pass of a compiled loop: 4.5 ms in place of 0.2 for a million transitions.
        for component, writes in [("env", ("$env",)),
                                  *((name, (f"${name}",)) for name in (*self.buffers, *self.components)),
                                  ("learner", ("$learner", "$weights")), ("metrics", ("$metrics",))]:
            self.op(component, "init", reads=(), writes=writes, out=None)
        for counter in counters:
            self.resources[counter] = self.constant(counter, 0, "train", None)
        self.stack.append("train")
        self.statements(method.tree.body, Scope(method, parameters[0].name))
        kinds = [("env", "env"), ("actor", "actor"), ("learner", "learner"), ("metrics", "metrics"),
                 *((name, "buffer") for name in self.buffers), *((name, "own") for name in self.components)]
        return Graph(owner.__name__, tuple(kinds), tuple(self.nodes), tuple(self.resources.values()))

    def statements(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            if scope.done:
                return
            self.statement(statement, scope)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign():
                self.assign(node, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.store(target, self.binding(value, scope, base_name(target)), scope)
            case ast.AugAssign():
                self.augmented(node, scope)
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
                raise scope.method.error(node, *STATEMENTS[type(node)])
            case _:
                raise scope.method.error(node, f"`{type(node).__name__}` is not part of the loop language.", "",
                                         "Use loops, branches, assignments and interaction calls.")

    # -- assignments -------------------------------------------------------------------------------------------------

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        first, value = node.targets[0], node.value
        if (len(node.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple)
                and not any(isinstance(part, ast.Starred) for part in (*first.elts, *value.elts))):
            if len(first.elts) != len(value.elts):
                raise scope.method.error(node, f"{len(value.elts)} values are given to {len(first.elts)} names.",
                                         "Python would stop here.", "Give as many names as there are values.")
            # All right-hand sides are taken before any name changes: `a, b = b, a` swaps.
            parts = [self.binding(part, scope, base_name(target)) for target, part in zip(first.elts, value.elts)]
            for target, part in zip(first.elts, parts):
                self.store(target, part, scope)
            return
        binding = self.binding(value, scope, base_name(first))
        for target in node.targets:
            self.store(target, binding, scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.not_a_name(node.target, scope)
        name = node.target.id
        read = ast.copy_location(ast.Name(name, ast.Load()), node.target)
        joined = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        self.store(node.target, self.binding(joined, scope, name), scope)

    def store(self, target: ast.expr, given: Bound, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                if name == scope.interaction or name == "self":
                    raise scope.method.error(target, f"`{name}` is given a new value.",
                                             "The compiler relies on what it stands for.", "Use another name.")
                scope.names[name] = given
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for part in targets:
                    if isinstance(part, ast.Starred):
                        raise scope.method.error(part, f"`{ast.unparse(part)}` takes an unknown number of values.",
                                                 "Each name on the left is an edge of the graph.",
                                                 "Name each value, or index the tuple.")
                for part, value in zip(targets, self.unpack(given, targets, scope, target)):
                    self.store(part, value, scope)
            case _:
                raise self.not_a_name(target, scope)

    def not_a_name(self, target: ast.expr, scope: Scope) -> LoweringError:
        text = ast.unparse(target)
        if isinstance(target, ast.Subscript):
            base, index = ast.unparse(target.value), ast.unparse(target.slice)
            by_name = isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
            new = f"{{**{base}, {index}: ...}}" if by_name else f"{base}.at[{index}].set(...)"
            return scope.method.error(target, f"`{text}` is changed in place.",
                                      "Values are immutable: fragments that hold one share no memory.",
                                      f"Make a new value: `{base} = {new}`.")
        return scope.method.error(target, f"`{text}` is assigned.",
                                  "State outside local variables is invisible to the compiler, and lost when the "
                                  "loop runs elsewhere.",
                                  "Carry the value in a local variable, or keep it in the state of a component.")

    # -- other simple statements -------------------------------------------------------------------------------------

    def expression_statement(self, value: ast.expr, scope: Scope) -> None:
        if isinstance(value, ast.Constant):  # a docstring, or `...`
            return
        if isinstance(value, ast.Call) and self.interacts(value, scope):
            self.interaction(value, scope)
            return
        if self.eager and isinstance(value, ast.Call) and not self.contains_interaction(value, scope) \
                and is_effect(value, scope.names, scope.method.lookup, self.trainer):
            return
        self.binding(value, scope)  # its own complaints come first
        raise scope.method.error(value, *not_used(ast.unparse(value), scope.interaction))

    def check_dropped(self, graph: Graph, simple: Graph) -> None:
        """Refuses a call of the user's own function that `simplify` has left out: only Python would make it."""
        kept = {node.out for node in walk(simple.nodes) if isinstance(node, Pure)}
        for node in walk(graph.nodes):
            if isinstance(node, Pure) and node.out not in kept:
                method = read_method(type(self.trainer), node.scope)
                call = calls_unknown(node.expr, {name for name, _ in node.inputs}, method.lookup, self.trainer)
                if call is not None:
                    raise LoweringError(not_used(ast.unparse(call), "msrl").what, span=node.span, docs=DOCS,
                                        why=_NOT_CALLED, instead=not_used("", "msrl").instead)

    def annotation(self, node: ast.With, scope: Scope) -> None:
        item, *more = node.items
        call = item.context_expr
        if not (not more and item.optional_vars is None and isinstance(call, ast.Call) and not call.args
                and not call.keywords and self.interacts(call, scope) and isinstance(call.func, ast.Attribute)
                and call.func.attr in ANNOTATIONS):
            raise scope.method.error(node, f"`with {', '.join(map(ast.unparse, node.items))}` cannot be compiled.",
                                     "A context manager runs code on entry and exit that the compiler cannot see.",
                                     f"`with` takes one partition annotation: `{scope.interaction}.together()` or "
                                     f"`{scope.interaction}.apart()`.")
        self.annotations += 1
        outer, self.partition = self.partition, (*self.partition, f"{call.func.attr}.{self.annotations}")
        self.statements(node.body, scope)
        self.partition = outer

    def return_(self, node: ast.Return, scope: Scope) -> None:
        if scope.inside:
            raise scope.method.error(node, f"`return` inside {scope.inside[-1]}.",
                                     "Every fragment must reach the end of the method by the same path.",
                                     "Assign the value to a name, and return that on the method's last line.")
        scope.done = True
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            scope.returned = None if node.value is None else Static(None)
            return
        if len(self.stack) == 1:
            raise scope.method.error(node, "`train` returns a value.",
                                     "A run leaves weights and metrics behind; there is nobody to return a value to.",
                                     f"Report it: `{scope.interaction}.report(...)`.")
        scope.returned = self.binding(node.value, scope, scope.result)


__all__ = ["lower"]
