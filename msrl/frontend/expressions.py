"""Expressions → values: interaction calls become ops, all else becomes pure expressions or compile-time constants."""

import ast
import copy
import difflib
from abc import abstractmethod
from typing import Any

from msrl.errors import LoweringError
from msrl.frontend.builder import Binding, Builder, Scope, Static, Unbound
from msrl.frontend.complaints import AROUND_INTERACTIONS, EXPRESSIONS
from msrl.frontend.source import DOCS, free_names
from msrl.ir.graph import Pure
from msrl.ir.interactions import ANNOTATIONS, INTERACTIONS, Interaction

_ARITHMETIC = (abs, bool, divmod, float, int, len, max, min, pow, round, sum)
_MISSING = object()


class NewCounter(Exception):
    """A method is called that has no counter yet. Counters start at the graph's head, before the loops that carry
    them, so lowering begins again with one more."""


class Expressions(Builder):
    """Lowers expressions. What needs statements (inlining a helper) is left to the subclass."""

    def __init__(self, trainer: Any, buffers: tuple[str, ...], components: tuple[str, ...]):
        super().__init__()
        self.trainer = trainer
        self.buffers = buffers
        self.components = components
        self.inserted: dict[str, tuple[tuple[str, ...], Any]] = {}  # buffer → (fields, span) of its first insert

    @abstractmethod
    def inline(self, call: ast.Call, scope: Scope) -> Binding | None: ...

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
        return owner.id == scope.interaction or (owner.id == "self" and passes)

    def binding(self, expr: ast.expr, scope: Scope, base: str = "t") -> Binding:
        """Lowers an expression: an SSA name, or a constant."""
        if isinstance(expr, ast.Call) and self.interacts(expr, scope):
            found = self.interaction(expr, scope, base)
            if found is None:
                raise scope.method.error(expr, f"`{ast.unparse(expr.func)}` gives no value.",
                                         "It is called for its effect alone.", "Call it on a line of its own.")
            return found
        hoist = _Hoist(self, scope)
        expr = hoist.visit(copy.deepcopy(expr))
        for name, place in free_names(expr).items():
            self.check_name(name, place, scope)
        if isinstance(expr, ast.Name) and expr.id in scope.names:
            return scope.names[expr.id]
        constant = self.fold(expr, scope, only_harmless=True)
        found: Binding = Static(constant) if _simple(constant) else self.pure(expr, scope, base)
        for name in hoist.made:
            del scope.names[name]
        return found

    def value(self, expr: ast.expr, scope: Scope, base: str = "t") -> str:
        """Lowers an expression to an SSA name; constants become pure expressions."""
        return self.named(self.binding(expr, scope, base), base, scope, expr)

    def named(self, binding: Binding, base: str, scope: Scope, place: ast.AST) -> str:
        match binding:
            case Static():
                return self.constant(base, binding.value, scope.method.name, scope.method.span(place))
            case Unbound():
                raise AssertionError("an unbound name was let through")
        return binding

    def pure(self, expr: ast.expr, scope: Scope, base: str) -> str:
        used = {name: scope.names.get(name) for name in free_names(expr)}
        statics = {name: bound.value for name, bound in used.items() if isinstance(bound, Static)}
        inputs = tuple((name, bound) for name, bound in used.items() if isinstance(bound, str))
        out = self.fresh(base)
        source = ast.unparse(_Literals(statics).visit(copy.deepcopy(expr)))
        self.emit(Pure(out, source, inputs, scope.method.name, scope.method.span(expr)))
        return out

    # -- names and constants -----------------------------------------------------------------------------------------

    def check_name(self, name: str, place: ast.Name, scope: Scope) -> None:
        error = scope.method.error
        bound = scope.names.get(name)
        if name == scope.interaction:
            raise error(place, f"`{name}` is used as a value.",
                        "It stands for the boundary between fragments, and only its calls have a meaning.",
                        f"Call one of its methods, or pass it to a method of the trainer: `self.helper({name}, ...)`.")
        if isinstance(bound, Unbound):
            raise error(place, f"`{name}` may have no value here.", bound.why,
                        f"Give `{name}` a value before, on every path.")
        if bound is not None or (name == "self" and scope.method.bound):
            return
        try:
            scope.method.lookup(name)
        except KeyError:
            near = difflib.get_close_matches(name, [*scope.names, *scope.method.globals], 1)
            raise error(place, f"`{name}` is used before it is made.",
                        "No line before this one gives it a value, and the module has no such name.",
                        f"Did you mean `{near[0]}`?" if near else f"Assign `{name}` first.") from None

    def fold(self, expr: ast.expr, scope: Scope, only_harmless: bool) -> Any:
        """The value of an expression of constants, or _MISSING if it depends on what happens at run time.

        With `only_harmless`, calls are taken of arithmetic functions only: anything else may be costly or random.
        """
        names: dict[str, Any] = {"self": self.trainer} if scope.method.bound else {}
        for name in free_names(expr):
            bound = scope.names.get(name)
            if isinstance(bound, str):
                return _MISSING
            if isinstance(bound, Static):
                names[name] = bound.value
        if only_harmless and not self.harmless(expr, scope):
            return _MISSING
        code = compile(ast.Expression(ast.fix_missing_locations(copy.deepcopy(expr))), scope.method.file, "eval")
        try:
            # One namespace: a comprehension inside `eval` sees globals only.
            return eval(code, {**scope.method.globals, **names})
        except Exception as problem:
            raise scope.method.error(expr, f"`{ast.unparse(expr)}` cannot be evaluated.",
                                     f"{type(problem).__name__}: {problem}.",
                                     "It depends on constants only, so the compiler computes it.") from problem

    def harmless(self, expr: ast.expr, scope: Scope) -> bool:
        for node in ast.walk(expr):
            if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Starred)):
                return False
            if isinstance(node, ast.Call):
                if not self.harmless(node.func, scope):
                    return False
                function = self.fold(node.func, scope, only_harmless=True)
                if function not in _ARITHMETIC and getattr(function, "__module__", None) != "math":
                    return False
        return True

    # -- interaction calls -------------------------------------------------------------------------------------------

    def interaction(self, call: ast.Call, scope: Scope, base: str = "t") -> Binding | None:
        """Lowers an interaction or helper call; None if it gives no value."""
        assert isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        if call.func.value.id == "self" and scope.interaction != "self":
            return self.inline(call, scope)
        name, error = call.func.attr, scope.method.error
        if name in ANNOTATIONS:
            raise error(call, f"`msrl.{name}()` is an annotation of a block.", "By itself it says nothing.",
                        f"Write `with {scope.interaction}.{name}():` around the lines it holds for.")
        if name not in INTERACTIONS:
            near = difflib.get_close_matches(name, [*INTERACTIONS, *ANNOTATIONS], 1, 0.4)
            known = ", ".join([*INTERACTIONS, *ANNOTATIONS])
            raise error(call.func, f"There is no interaction `{name}`.", f"The interactions are {known}.",
                        f"Did you mean `{scope.interaction}.{near[0]}`?" if near else "Use one of these.")
        entry = INTERACTIONS[name]
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                raise error(argument, f"`{ast.unparse(argument)}` hides how many values cross the boundary.",
                            "Each of them is an edge of the graph.", "Write the arguments one by one.")
        for keyword in call.keywords:
            if keyword.arg is None:
                raise error(keyword.value, f"`**{ast.unparse(keyword.value)}` hides which values cross the boundary.",
                            "Each of them is an edge of the graph.", "Write the fields one by one: `name=value`.")
        component, method, positional = self.target(entry, call, scope)
        least, most = entry.positional
        if len(positional) < least or (most is not None and len(positional) > most) or (
                call.keywords and not entry.fields):
            raise error(call, f"`{scope.interaction}.{name}` is called with the wrong arguments.",
                        f"It is `{entry.signature}`.", "Write it like that.")
        if entry.fields and not positional and not call.keywords:
            raise error(call, f"`{scope.interaction}.{name}` is given nothing.", f"It is `{entry.signature}`.",
                        "Name at least one field.")
        if method == "insert":
            self.same_fields(component, call, scope)
        args = tuple(self.value(argument, scope) for argument in positional)
        kwargs = tuple((keyword.arg or "", self.value(keyword.value, scope)) for keyword in call.keywords)
        owned = {"{buffer}": component, "{component}": component}
        counter = (f"#{component}.{method}",) if entry.keyed else ()
        if counter and counter[0] not in self.resources:
            raise NewCounter(counter[0])
        reads = tuple(_fill(resource, owned) for resource in entry.reads) + counter
        writes = tuple(_fill(resource, owned) for resource in entry.writes) + counter
        return self.op(component, method, reads=reads, writes=writes, out=base if entry.value else None, args=args,
                       kwargs=kwargs, span=scope.method.span(call))

    def target(self, entry: Interaction, call: ast.Call, scope: Scope) -> tuple[str, str, list[ast.expr]]:
        """The component and method that a call names, and the arguments that are left."""
        error = scope.method.error
        if entry.component == "{buffer}":
            if call.args:
                name = self.literal(call.args[0], scope, "The buffer")
            elif len(self.buffers) == 1:
                name = self.buffers[0]
            else:
                have = f"The trainer has {', '.join(self.buffers)}." if self.buffers else "The trainer has none."
                raise error(call, "Which buffer is meant is not said.", have,
                            f'Name it first: `{scope.interaction}.{entry.name}("{self.buffers[0]}", ...)`.'
                            if self.buffers else "Return at least one from `buffers()`.")
            self.known(name, self.buffers, "buffer", call.args[0] if call.args else call, scope)
            return name, entry.method, call.args[1:]
        if entry.component == "{component}":
            if len(call.args) < 2:
                raise error(call, f"`{scope.interaction}.call` is called with the wrong arguments.",
                            f"It is `{entry.signature}`.", "Write it like that.")
            name = self.literal(call.args[0], scope, "The component")
            self.known(name, (*self.components, *self.buffers), "component", call.args[0], scope)
            method = self.literal(call.args[1], scope, "The method")
            return name, method, call.args[2:]
        return entry.component, entry.method, call.args

    def literal(self, expr: ast.expr, scope: Scope, what: str) -> str:
        found = self.fold(expr, scope, only_harmless=True)
        if not isinstance(found, str):
            raise scope.method.error(expr, f"{what} is not named by a constant string.",
                                     "Which components a loop calls has to be known before it runs.",
                                     'Write the name in quotes, or keep it in the configuration.')
        return found

    def known(self, name: str, names: tuple[str, ...], what: str, place: ast.AST, scope: Scope) -> None:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            have = f"The trainer has {', '.join(names)}." if names else "The trainer has none."
            raise scope.method.error(place, f"There is no {what} `{name}`.", have,
                                     f"Did you mean `{near[0]}`?" if near else f"Return it from `{what}s()`.")

    def same_fields(self, buffer: str, call: ast.Call, scope: Scope) -> None:
        fields = tuple(sorted(keyword.arg or "" for keyword in call.keywords))
        first, span = self.inserted.setdefault(buffer, (fields, scope.method.span(call)))
        if first != fields:
            raise LoweringError(
                f"Two inserts into `{buffer}` have different fields.", span=span, also=scope.method.span(call),
                why=f"The first has {', '.join(first)}; the second has {', '.join(fields)}.",
                instead="Give both the same fields, or use two buffers.", docs=DOCS)


class _Hoist(ast.NodeTransformer):
    """Takes interaction calls out of an expression, in the order Python would call them, leaving names."""

    def __init__(self, lowering: Expressions, scope: Scope):
        self.lowering, self.scope = lowering, scope
        self.made: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        error = self.scope.method.error
        if type(node) in EXPRESSIONS:
            raise error(node, *EXPRESSIONS[type(node)])  # type: ignore[index]
        if type(node) in AROUND_INTERACTIONS:
            for inner in ast.walk(node):
                if self.lowering.interacts(inner, self.scope):
                    raise error(inner, *AROUND_INTERACTIONS[type(node)])  # type: ignore[index]
        if self.lowering.interacts(node, self.scope):
            assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            name = f"{node.func.attr}_"
            while name in self.scope.names:
                name += "_"
            self.scope.names[name] = self.lowering.binding(node, self.scope, node.func.attr)
            self.made.append(name)
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return self.generic_visit(node)


class _Literals(ast.NodeTransformer):
    """Puts constants in the place of the names that stand for them."""

    def __init__(self, constants: dict[str, Any]):
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.constants:
            return node
        return ast.parse(repr(self.constants[node.id]), mode="eval").body


def _simple(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_simple(item) for item in value)
    # A float that prints as `inf` or `nan` is no literal.
    return type(value) in (bool, int, str, type(None)) or (type(value) is float and value - value == 0)


def _fill(resource: str, owned: dict[str, str]) -> str:
    for placeholder, name in owned.items():
        resource = resource.replace(placeholder, name)
    return resource
