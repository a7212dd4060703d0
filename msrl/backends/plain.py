"""A trainer's loop as Python that computes what its graph means.

In: a trainer and its graph. Out: the same trainer, whose `train` and helper methods are compiled anew from their own
source, with their own lines, so that debuggers show the user's file. Two things are rewritten:

- An expression that the graph computes at run time is given JAX's numbers, of 32 bits, and gives such. Left to Python,
  `x += 0.1` would count in doubles. Expressions of constants and of loop indices are Python's, here as there.
- `x += y` is `x = x + y`: values are immutable, and a list or an array of NumPy's would change under its other names.
"""

import ast
import copy
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from msrl.api import Trainer
from msrl.engines.logic import LOGIC, LogicCalls
from msrl.engines.ops import values
from msrl.errors import Span
from msrl.frontend.source import Method, read_method, stored_anywhere
from msrl.ir.graph import Graph, Pure, walk

VALUE, EITHER = "<value>", "<either>"  # no user can have names like these


class Place(NamedTuple):
    """Where an expression stands."""

    method: str
    line: int
    column: int
    width: int


@dataclass
class Meaning:
    """What the graph makes of an expression: of a helper that is called in several places, perhaps several things."""

    inputs: set[str] = field(default_factory=set)
    by_jax: bool = False
    by_python: bool = False


def place(method: str, span: Span) -> Place:
    return Place(method, span.line, span.column, span.width)


def plain_python(trainer: Trainer, graph: Graph, tabular: frozenset[str], folded: frozenset[Place]) -> Trainer:
    """`tabular`: the names of the graph that Python computes. `folded`: expressions that were found to be constants."""
    meanings: dict[Place, Meaning] = {}
    for node in walk(graph.nodes):
        if isinstance(node, Pure) and node.span:
            meaning = meanings.setdefault(place(node.scope, node.span), Meaning())
            meaning.inputs.update(name for name, _ in node.inputs)
            meaning.by_jax |= node.out not in tabular
            meaning.by_python |= node.out in tabular
    for at in folded:
        if at in meanings:
            meanings[at].by_python = True
    owner = type(trainer)
    methods = {name: rewritten(owner, name, api, meanings) for name, api in methods_of_loop(owner).items()}
    other = copy.copy(trainer)
    other.__class__ = type(owner.__name__, (owner,), {**methods, "__module__": owner.__module__})
    return other


def methods_of_loop(owner: type) -> dict[str, str]:
    """`train` and the helper methods that are handed the interaction API, directly or by one another; each with the
    parameter that is it."""
    found: dict[str, str] = {}
    waiting = [("train", next(iter(read_method(owner, "train").signature.parameters)))]
    while waiting:
        name, api = waiting.pop()
        if name not in found:
            found[name] = api
            for node in ast.walk(read_method(owner, name).tree):
                if is_helper_call(node, api):
                    called = read_method(owner, node.func.attr)
                    given = called.signature.bind(*node.args, **{k.arg: k.value for k in node.keywords}).arguments
                    waiting += [(called.name, parameter) for parameter, arg in given.items() if is_name(arg, api)]
    return found


def is_helper_call(node: ast.AST, api: str) -> bool:
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_name(node.func.value, "self")
            and any(is_name(arg, api) for arg in (*node.args, *(keyword.value for keyword in node.keywords))))


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def rewritten(owner: type, name: str, api: str, meanings: dict[Place, Meaning]) -> Any:
    """The method, compiled anew from its rewritten source."""
    raw = inspect.getattr_static(owner, name)
    function: Any = inspect.unwrap(getattr(raw, "__func__", raw))
    method = read_method(owner, name)
    tree: Any = Rewrite(method, api, meanings).visit(copy.deepcopy(method.tree))
    tree.decorator_list, tree.returns = [], None
    cells = {**dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)),
             **{helper: types.CellType(made) for helper, made in HELPERS.items()}}
    # Inside a function that has the names of its closure, as the original stood inside those that have them.
    around = ast.FunctionDef("around", ast.arguments([], [ast.arg(cell) for cell in cells], None, [], [], None, []),
                             [tree], [], type_params=[])
    module = ast.fix_missing_locations(ast.Module([around], []))
    outer = next(code_in(compile(module, function.__code__.co_filename, "exec")))
    code = next(code for code in code_in(outer) if code.co_name == tree.name)
    made = types.FunctionType(code, function.__globals__, name, function.__defaults__,
                              tuple(cells[free] for free in code.co_freevars))
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return staticmethod(made) if isinstance(raw, staticmethod) else made


def code_in(code: types.CodeType) -> Iterator[types.CodeType]:
    return (each for each in code.co_consts if isinstance(each, types.CodeType))


class Rewrite(ast.NodeTransformer):
    def __init__(self, method: Method, api: str, meanings: dict[Place, Meaning]):
        self.method, self.api, self.meanings = method, api, meanings

    def meaning(self, node: ast.AST) -> Meaning | None:
        found = self.meanings.get(place(self.method.name, self.method.span(node)))
        return found if found and found.by_jax else None

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        joined = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        return ast.copy_location(ast.Assign([node.target], self.visit(joined)), node)

    def visit(self, node: ast.AST) -> Any:
        read = isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store)
        meaning = self.meaning(node) if read else None
        if meaning is None:
            return super().visit(node)
        names = meaning.inputs - {*stored_anywhere(node)}
        if not meaning.by_python:
            return self.call(VALUE, node, LogicCalls().visit(_Inputs(self, names).visit(node)))
        # Which of the two it is here, the numbers that it is given tell.
        given = sorted(names)
        inner = LogicCalls().visit(_Inputs(self, set()).visit(node))
        compute = ast.Lambda(ast.arguments([], [ast.arg(name) for name in given], None, [], [], None, []), inner)
        return self.call(EITHER, node, compute, *(ast.Name(name, ast.Load()) for name in given))

    @staticmethod
    def call(name: str, at: ast.AST, *args: ast.expr) -> ast.expr:
        new = ast.Call(ast.Name(name, ast.Load()), list(args), [])
        return ast.fix_missing_locations(ast.copy_location(new, at))


class _Inputs(ast.NodeTransformer):
    """Inside one expression: what it reads, as values. The arguments of interactions are expressions of their own."""

    def __init__(self, outer: Rewrite, names: set[str]):
        self.outer, self.names = outer, names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return Rewrite.call(VALUE, node, node) if node.id in self.names else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node
        if is_name(owner, self.outer.api) or is_helper_call(node, self.outer.api):
            return ast.copy_location(ast.Call(node.func, [self.outer.visit(arg) for arg in node.args], [
                ast.keyword(keyword.arg, self.outer.visit(keyword.value)) for keyword in node.keywords]), node)
        return self.generic_visit(node)


def either(compute: Callable[..., Any], *given: Any) -> Any:
    """By JAX if it is given an array, else by Python."""
    if any(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in jax.tree.leaves(given)):
        return values(compute(*map(values, given)))
    return compute(*given)


HELPERS: dict[str, Any] = {VALUE: values, EITHER: either, **LOGIC}
