"""Evaluates a graph's pure expressions with the names that the user's method sees."""

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np

from msrl.engines.blame import title
from msrl.engines.logic import LOGIC, with_logic
from msrl.errors import TypeCheckError
from msrl.frontend.source import closure
from msrl.ir.graph import Pure
from msrl.ir.interp import EXPRESSION_NAMES


class Scopes:
    """Expressions become functions of their inputs, once, with their method's globals and `self` around them."""

    def __init__(self, trainer: Any, names: Mapping[str, Any]):
        """`names`: what else expressions see."""
        self.trainer, self.names = trainer, dict(names)
        self._globals = cache(self._make_globals)
        self._function = cache(self._make_function)

    def evaluate(self, node: Pure, inputs: dict[str, Any]) -> Any:
        if all(isinstance(value, (bool, int, float, np.ndarray, jax.Array)) for value in inputs.values()):
            return self.function(node)(**inputs)
        before = {name: jax.tree.flatten(value) for name, value in inputs.items()}
        found = self.function(node)(**inputs)
        for name, (leaves, form) in before.items():
            now, now_form = jax.tree.flatten(inputs[name])
            if form != now_form or any(old is not new for old, new in zip(leaves, now, strict=True)):
                raise TypeCheckError(
                    f"{title(node)} changes `{name}` in place.",
                    why="Values are immutable: fragments that hold one share no memory, and a compiled loop keeps what "
                        "an expression returns, not what it does to its arguments.",
                    instead="Return a new value, and assign it.", docs="docs/loop-language.md")
        return found

    def function(self, node: Pure) -> Callable[..., Any]:
        """The expression as a function of its inputs, in their order."""
        return self._function(node.expr, node.scope, tuple(name for name, _ in node.inputs))

    def value(self, expr: str, scope: str) -> Any:
        """Of an expression without inputs."""
        return eval(expr, self._globals(scope))

    def _make_function(self, expr: str, scope: str, inputs: tuple[str, ...]) -> Callable[..., Any]:
        given = ast.arguments([], [ast.arg(name) for name in inputs], None, [], [], None, [])
        tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(given, with_logic(expr).body)))
        return eval(compile(tree, "<loop expression>", "eval"), self._globals(scope))

    def _make_globals(self, scope: str) -> dict[str, Any]:
        raw = inspect.getattr_static(type(self.trainer), scope)
        function = inspect.unwrap(getattr(raw, "__func__", raw))
        return {**function.__globals__, **closure(function), **EXPRESSION_NAMES, **LOGIC, **self.names,
                "self": self.trainer}
