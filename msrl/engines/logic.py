"""`not`, `and`, `or`, `a if c else b` and `a < b < c` on numbers that are computed at run time.

In: a pure expression. Out: the same with these operators as calls, so that `while not done and steps < limit` compiles.
What always holds: on Python's numbers they do what Python does; on JAX's scalars, traced or at hand, both sides are
taken and one is selected, which is the same for pure expressions but for the type: `1 if c else 0.5` is a float.
"""

import ast
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from msrl.errors import TypeCheckError

Thunk = Callable[[], Any]


def not_(value: Any) -> Any:
    return jnp.logical_not(_scalar(value)) if _computed(value) else not value


def and_(*parts: Thunk) -> Any:
    return _chain(parts, stop=False)


def or_(*parts: Thunk) -> Any:
    return _chain(parts, stop=True)


def if_(condition: Any, yes: Thunk, no: Thunk) -> Any:
    if not _computed(condition):
        return yes() if condition else no()
    return _select(_scalar(condition), yes(), no())


def text(value: Any) -> Any:
    """What stands in the braces of an f-string."""
    if isinstance(value, jax.core.Tracer):
        raise TypeCheckError("A number that is computed at run time is put into text.",
                             why="Text is made while compiling, when the number is not known.",
                             instead="Report the number as a metric of its own.")
    return value


def _chain(parts: tuple[Thunk, ...], stop: bool) -> Any:
    """Python's `and` (which stops at what is false) or `or`: the value of the part at which it stops."""
    value = parts[0]()
    if len(parts) == 1:
        return value
    if not _computed(value):
        return value if bool(value) is stop else _chain(parts[1:], stop)
    rest = _chain(parts[1:], stop)
    return _select(_scalar(value), value, rest) if stop else _select(_scalar(value), rest, value)


def _computed(value: Any) -> bool:
    return isinstance(value, jax.Array)


def _scalar(value: Any) -> Any:
    if value.shape != ():
        raise TypeCheckError(f"An array of shape {value.shape} is used as true or false.",
                             why="Python can decide on one number only.",
                             instead="Reduce it first, with `.any()` or `.all()`; or combine arrays with `&`, `|`, `~` "
                                     "and `jnp.where`.")
    return value.astype(bool)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


# No user can have a name like these.
NOT, AND, OR, IF, TEXT = "<not>", "<and>", "<or>", "<if>", "<text>"
LOGIC: dict[str, Callable] = {NOT: not_, AND: and_, OR: or_, IF: if_, TEXT: text}


class LogicCalls(ast.NodeTransformer):
    """The operators as calls of the functions in LOGIC."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call(NOT, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _call(AND if isinstance(node.op, ast.And) else OR, *map(_thunk, node.values))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        self.generic_visit(node)
        return ast.FormattedValue(_call(TEXT, node.value), node.conversion, node.format_spec)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return _call(IF, node.test, _thunk(node.body), _thunk(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        pairs = [ast.Compare(left, [op], [right]) for left, op, right in zip(sides, node.ops, sides[1:], strict=False)]
        return _call(AND, *map(_thunk, pairs))


def _thunk(body: ast.expr) -> ast.expr:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, body)


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def with_logic(expr: str) -> ast.Expression:
    tree = ast.parse(expr, mode="eval")
    return ast.fix_missing_locations(LogicCalls().visit(tree))
