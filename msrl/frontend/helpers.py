"""Helper methods of the trainer, lowered in place of their calls."""

import ast
import inspect
from abc import abstractmethod
from typing import Any

from msrl.frontend.builder import Bound, Scope, Static
from msrl.frontend.calls import Calls
from msrl.frontend.expressions import is_literal
from msrl.frontend.source import Method, read_method


class Helpers(Calls):
    def __init__(self, trainer: Any, buffers: tuple[str, ...], components: tuple[str, ...]):
        super().__init__(trainer, buffers, components)
        self.stack: list[str] = []  # methods being inlined

    @abstractmethod
    def statements(self, body: list[ast.stmt], scope: Scope) -> None: ...

    def inline(self, call: ast.Call, scope: Scope, base: str) -> Bound | None:
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
                        f"Define `def {name}(self, {scope.interaction}, ...):` in {owner.__name__}.")
        method = read_method(owner, name)
        inner = self.enter(call, method, scope)
        inner.result = base
        self.stack.append(name)
        self.statements(method.tree.body, inner)
        self.stack.pop()
        return inner.returned

    def enter(self, call: ast.Call, method: Method, scope: Scope) -> Scope:
        """The helper's scope, with its parameters bound to what the call gives."""
        error, parameters = scope.method.error, method.signature.parameters
        packed = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
        if packed or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            raise error(call, f"`{method.name}` is called or defined with `*` or `**`.",
                        "Helpers are inlined argument by argument.", "Name each parameter and each argument.")
        try:
            given = method.signature.bind(*call.args, **{k.arg or "": k.value for k in call.keywords}).arguments
        except TypeError:
            raise error(call, f"`{method.name}` is called with the wrong arguments.",
                        f"It is `def {method.name}({ast.unparse(method.tree.args)})`.",
                        "Write the call like that.") from None
        api = [name for name, expr in given.items() if isinstance(expr, ast.Name) and expr.id == scope.interaction]
        if len(api) > 1:
            raise error(call, f"`{method.name}` is given `{scope.interaction}` twice.",
                        "It stands for one and the same boundary.", "Pass it once.")
        inner = Scope(method, api[0])
        for name, parameter in parameters.items():
            if name not in given:
                inner.names[name] = self.default(call, parameter, scope)
        # In the order in which Python evaluates them, which is that of the call.
        for expr in (*call.args, *(keyword.value for keyword in call.keywords)):
            name = next(each for each, argument in given.items() if argument is expr)
            if name != api[0]:
                inner.names[name] = self.binding(expr, scope, name)
        return inner

    def default(self, call: ast.Call, parameter: inspect.Parameter, scope: Scope) -> Static:
        if not is_literal(parameter.default):
            raise scope.method.error(call, f"`{parameter.name}` is left to its default, {parameter.default!r}.",
                                     "The compiler takes over numbers, strings, None and tuples of these.",
                                     f"Pass it in the call: `{parameter.name}=...`.")
        return Static(parameter.default, scope.method.span(call))
