"""Evaluates a graph's pure expressions with the names that the user's method sees."""

import inspect
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

from msrl.engines.logic import LOGIC, with_logic
from msrl.frontend.source import closure
from msrl.ir.graph import Pure
from msrl.ir.interp import EXPRESSION_NAMES


class Scopes:
    """Expressions are compiled once, and evaluated with their method's globals, `self` and the values given."""

    def __init__(self, trainer: Any, names: Mapping[str, Any]):
        """`names`: what else expressions see."""
        self.trainer, self.names = trainer, dict(names)
        self._globals = cache(self._make_globals)

    def evaluate(self, node: Pure, inputs: dict[str, Any]) -> Any:
        (code, inside), known = _code(node.expr), self._globals(node.scope)
        return eval(code, {**known, **inputs}) if inside else eval(code, known, inputs)

    def _make_globals(self, scope: str) -> dict[str, Any]:
        raw = inspect.getattr_static(type(self.trainer), scope)
        function = inspect.unwrap(getattr(raw, "__func__", raw))
        return {**function.__globals__, **closure(function), **EXPRESSION_NAMES, **LOGIC, **self.names,
                "self": self.trainer}


@cache
def _code(expr: str) -> tuple[CodeType, bool]:
    """Compiled, and whether there is a comprehension or a lambda in it: what is inside sees globals only, so that all
    names must be among them."""
    code = compile(with_logic(expr), "<loop expression>", "eval")
    return code, any(isinstance(const, CodeType) for const in code.co_consts)
