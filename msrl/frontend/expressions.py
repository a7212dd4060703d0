"""Expressions → values: interaction calls become ops, all else becomes pure expressions or compile-time constants."""

import ast
import copy
import difflib
from abc import abstractmethod
from typing import Any

from msrl.errors import Span
from msrl.frontend.builder import Binding, Bound, Builder, Scope, Static, Unbound
from msrl.frontend.complaints import AROUND_INTERACTIONS, EXPRESSIONS, LAMBDA
from msrl.frontend.effects import complaint
from msrl.frontend.source import free_names, stored_anywhere
from msrl.ir.graph import Pure

NOT_CONSTANT = object()
"""What `fold` gives for an expression whose value is known at run time only."""

_ARITHMETIC = (abs, bool, divmod, float, int, len, max, min, pow, round, sum)
_LOOPING = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Starred)


class Expressions(Builder):
    """Lowers expressions. What an interaction call becomes is left to the subclass."""

    def __init__(self, trainer: Any):
        super().__init__()
        self.trainer = trainer
        self.folded: set[tuple[str, Span]] = set()  # where constants were computed: method and place

    @abstractmethod
    def interaction(self, call: ast.Call, scope: Scope, base: str = "t") -> Bound | None:
        """Lowers an interaction or helper call; None if it gives no value."""

    # -- what an expression is ---------------------------------------------------------------------------------------

    def interacts(self, node: ast.AST, scope: Scope) -> bool:
        """Is this very node an interaction call, or a helper call that is given the interaction API?"""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        owner = node.func.value
        if not isinstance(owner, ast.Name):
            return False
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        passes = any(isinstance(arg, ast.Name) and arg.id == scope.interaction for arg in given)
        return owner.id == scope.interaction or (owner.id == "self" and scope.method.bound and passes)

    def contains_interaction(self, node: ast.AST, scope: Scope) -> bool:
        return any(self.interacts(inner, scope) for inner in ast.walk(node))

    def binding(self, expr: ast.expr, scope: Scope, base: str = "t") -> Bound:
        """Lowers an expression: an SSA name, or a constant."""
        if isinstance(expr, ast.Call) and self.interacts(expr, scope):
            given = self.interaction(expr, scope, base)
            if given is None:
                raise scope.method.error(expr, f"`{ast.unparse(expr.func)}` gives no value.",
                                         "It is called for its effect alone.", "Call it on a line of its own.")
            return given
        if isinstance(expr, ast.Lambda):
            raise scope.method.error(expr, *LAMBDA)
        hoist = _Hoist(self, scope)
        expr = hoist.visit(copy.deepcopy(expr))
        self.check_names(expr, scope)
        if isinstance(expr, ast.Name) and expr.id in scope.names:
            return bound(scope.names[expr.id])
        constant = self.fold(expr, scope, only_harmless=True)
        found: Bound
        if is_literal(constant):
            found = Static(constant, scope.method.span(expr))
            self.folded.add((scope.method.name, scope.method.span(expr)))
        else:
            found = self.pure(expr, scope, base)
        for name in hoist.made:
            del scope.names[name]
        return found

    def value(self, expr: ast.expr, scope: Scope, base: str = "t") -> str:
        """Lowers an expression to an SSA name; constants become pure expressions."""
        return self.named(self.binding(expr, scope, base), base, scope, expr)

    def named(self, given: Bound, base: str, scope: Scope, place: ast.AST) -> str:
        if isinstance(given, Static):
            return self.constant(base, given.value, scope.method.name, given.span or scope.method.span(place))
        return given

    def pure(self, expr: ast.expr, scope: Scope, base: str) -> str:
        used = {name: scope.names.get(name) for name in free_names(expr)}
        rebound = {*stored_anywhere(expr)}  # a lambda's or comprehension's own name is not to be replaced
        statics = {name: held.value for name, held in used.items() if isinstance(held, Static) and name not in rebound}
        inputs = tuple((name, self.named(bound(held), name, scope, expr)) for name, held in used.items()
                       if held is not None and name not in statics)
        out = self.fresh(base)
        source = ast.unparse(_Literals(statics).visit(copy.deepcopy(expr)))
        self.emit(Pure(out, source, inputs, scope.method.name, scope.method.span(expr)))
        return out

    def unpack(self, given: Bound, targets: list[ast.expr], scope: Scope, place: ast.AST) -> list[Bound]:
        """The parts of a value, one for each target."""
        count, name, span = len(targets), scope.method.name, scope.method.span(place)
        if isinstance(given, Static):
            parts = tuple(given.value) if isinstance(given.value, (tuple, str)) else None
            if parts is None or len(parts) != count:
                has = "no parts" if parts is None else f"{len(parts)} parts"
                raise scope.method.error(place, f"{given.value!r} has {has}, and {count} names are given.",
                                         "Python would stop here.", "Give as many names as there are parts.")
            return [Static(part, given.span) for part in parts]
        whole = self.fresh("parts")
        self.emit(Pure(whole, f"unpack_(parts, {count})", (("parts", given),), name, span))
        found: list[Bound] = []
        for position, target in enumerate(targets):
            found.append(self.fresh(base_name(target)))
            self.emit(Pure(str(found[-1]), f"parts[{position}]", (("parts", whole),), name, span))
        return found

    # -- names and constants -----------------------------------------------------------------------------------------

    def check_names(self, expr: ast.expr, scope: Scope) -> None:
        for node in ast.walk(expr):
            if isinstance(node, ast.expr) and type(node) in EXPRESSIONS:
                raise scope.method.error(node, *EXPRESSIONS[type(node)])
            if isinstance(node, ast.Call) and not self.interacts(node, scope):
                found = complaint(node, {*scope.names, *stored_anywhere(expr)}, scope.method.lookup, self.trainer,
                                  scope.interaction)
                if found:
                    raise scope.method.error(node, *found)
        for name, place in free_names(expr).items():
            self.check_name(name, place, scope)

    def check_name(self, name: str, place: ast.Name, scope: Scope) -> None:
        error = scope.method.error
        held = scope.names.get(name)
        if name == scope.interaction:
            raise error(place, f"`{name}` is used as a value.",
                        "It stands for the boundary between fragments, and only its calls have a meaning.",
                        f"Call one of its methods, or pass it to a method of the trainer: `self.helper({name}, ...)`.")
        if isinstance(held, Unbound):
            raise error(place, f"`{name}` may have no value here.", held.why,
                        f"Give `{name}` a value before, on every path.")
        if held is not None or (name == "self" and scope.method.bound):
            return
        if name in scope.method.local:
            raise error(place, f"`{name}` is used before it is made.",
                        f"Its first value is made on line {scope.method.local[name].lineno}, after this line has run.",
                        f"Give `{name}` a value before.")
        try:
            scope.method.lookup(name)
        except KeyError:
            near = difflib.get_close_matches(name, [*scope.names, *scope.method.globals], 1)
            raise error(place, f"`{name}` is used before it is made.",
                        "No line before this one gives it a value, and the module has no such name.",
                        f"Did you mean `{near[0]}`?" if near else f"Assign `{name}` first.") from None

    def fold(self, expr: ast.expr, scope: Scope, only_harmless: bool) -> Any:
        """The value of an expression of constants, or NOT_CONSTANT if it depends on what happens at run time.

        With `only_harmless`, calls are taken of arithmetic functions only: anything else may be costly or random.
        """
        names: dict[str, Any] = {"self": self.trainer} if scope.method.bound else {}
        for name in free_names(expr):
            held = scope.names.get(name)
            if isinstance(held, str):
                return NOT_CONSTANT
            if isinstance(held, Static):
                names[name] = held.value
        if only_harmless and not self.harmless(expr, scope):
            return NOT_CONSTANT
        code = compile(ast.Expression(ast.fix_missing_locations(copy.deepcopy(expr))), scope.method.file, "eval")
        try:
            # One namespace: a comprehension inside `eval` sees globals only.
            return eval(code, {**scope.method.globals, **names})
        except Exception as problem:
            raise self.bad_constant(expr, scope, problem) from problem

    def bad_constant(self, expr: ast.expr, scope: Scope, problem: Exception) -> Exception:
        return scope.method.error(
            expr, f"`{ast.unparse(expr)}` fails: {type(problem).__name__}: {str(problem).rstrip('.')}.",
            "It depends on constants only, so the compiler computes it before anything runs.",
            "Correct it, as Python would stop here too.")

    def truth(self, expr: ast.expr, scope: Scope) -> bool | None:
        """Whether a condition of constants holds; None if it is known at run time only."""
        if self.contains_interaction(expr, scope):
            return None
        self.check_names(expr, scope)
        found = self.fold(expr, scope, only_harmless=False)
        if found is NOT_CONSTANT:
            return None
        try:
            return bool(found)
        except Exception as problem:
            raise self.bad_constant(expr, scope, problem) from problem

    def harmless(self, expr: ast.expr, scope: Scope) -> bool:
        for node in ast.walk(expr):
            if isinstance(node, _LOOPING):
                return False
            if isinstance(node, ast.Call):
                if not self.harmless(node.func, scope):
                    return False
                function = self.fold(node.func, scope, only_harmless=True)
                known = any(function is each for each in _ARITHMETIC)
                if not known and getattr(function, "__module__", None) != "math":
                    return False
        return True


class _Hoist(ast.NodeTransformer):
    """Takes interaction calls out of an expression, in the order Python would call them, leaving names."""

    def __init__(self, lowering: Expressions, scope: Scope):
        self.lowering, self.scope = lowering, scope
        self.made: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        error = self.scope.method.error
        if isinstance(node, ast.expr) and type(node) in EXPRESSIONS:
            raise error(node, *EXPRESSIONS[type(node)])
        for part in _not_always_run(node):
            for inner in ast.walk(part):
                if self.lowering.interacts(inner, self.scope):
                    raise error(inner, *AROUND_INTERACTIONS[type(node)])  # type: ignore[index]
        if isinstance(node, ast.Call) and self.lowering.interacts(node, self.scope):
            assert isinstance(node.func, ast.Attribute)
            name = f"{node.func.attr}_"
            while name in self.scope.names:
                name += "_"
            self.scope.names[name] = self.lowering.binding(node, self.scope, node.func.attr)
            self.made.append(name)
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return self.generic_visit(node)


def _not_always_run(node: ast.AST) -> list[ast.AST]:
    """The parts of an expression that Python evaluates some other number of times than once."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.BoolOp(values=[_, *later]):
            return [*later]
        case ast.Compare(comparators=[_, *later]):
            return [*later]
    return [node] if isinstance(node, _LOOPING[:-1]) else []


class _Literals(ast.NodeTransformer):
    """Puts constants in the place of the names that stand for them."""

    def __init__(self, constants: dict[str, Any]):
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.constants:
            return node
        return ast.parse(repr(self.constants[node.id]), mode="eval").body


def bound(binding: Binding) -> Bound:
    assert not isinstance(binding, Unbound), "an unbound name was let through"
    return binding


def base_name(target: ast.expr) -> str:
    """What to call the value that a target is given."""
    return target.id if isinstance(target, ast.Name) else "t"


def is_literal(value: Any) -> bool:
    if isinstance(value, tuple):
        return type(value) is tuple and all(is_literal(item) for item in value)
    # A float that prints as `inf` or `nan` is no literal.
    return type(value) in (bool, int, str, type(None)) or (type(value) is float and value - value == 0)
