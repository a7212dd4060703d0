"""Interaction calls → ops: which component and method a call names, and whether its arguments fit."""

import ast
import difflib
from abc import abstractmethod
from typing import Any

from msrl.errors import LoweringError, Span
from msrl.frontend.builder import Bound, Scope
from msrl.frontend.expressions import Expressions
from msrl.frontend.source import DOCS
from msrl.ir.interactions import ANNOTATIONS, INTERACTIONS, Interaction


class NewCounter(Exception):
    """A method is called that has no counter yet. Counters start at the graph's head, before the loops that carry
    them, so lowering begins again with one more."""


class Calls(Expressions):
    def __init__(self, trainer: Any, buffers: tuple[str, ...], components: tuple[str, ...]):
        super().__init__(trainer)
        self.buffers = buffers
        self.components = components
        self.inserted: dict[str, tuple[tuple[str, ...], Span]] = {}  # buffer → (fields, span) of its first insert

    @abstractmethod
    def inline(self, call: ast.Call, scope: Scope, base: str) -> Bound | None: ...

    def interaction(self, call: ast.Call, scope: Scope, base: str = "t") -> Bound | None:
        assert isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        if call.func.value.id == "self":
            return self.inline(call, scope, base)
        entry = self.entry(call, scope)
        self.no_stars(call, scope)
        component, method, positional = self.target(entry, call, scope)
        self.check_arguments(entry, call, positional, scope)
        if entry.name == "replay_buffer_insert":
            self.same_fields(component, call, scope)
        args = tuple(self.value(argument, scope) for argument in positional)
        kwargs = tuple((keyword.arg or "", self.value(keyword.value, scope)) for keyword in call.keywords)
        counter = (f"#{component}.{method}",) if entry.keyed else ()
        if counter and counter[0] not in self.resources:
            raise NewCounter(counter[0])
        names = {"buffer": component, "component": component}
        reads = (*(resource.format(**names) for resource in entry.reads), *counter)
        writes = (*(resource.format(**names) for resource in entry.writes), *counter)
        return self.op(component, method, reads=reads, writes=writes, out=base if entry.value else None, args=args,
                       kwargs=kwargs, span=scope.method.span(call))

    def entry(self, call: ast.Call, scope: Scope) -> Interaction:
        assert isinstance(call.func, ast.Attribute)
        name, error = call.func.attr, scope.method.error
        if name in ANNOTATIONS:
            raise error(call, f"`{scope.interaction}.{name}()` is an annotation of a block.",
                        "By itself it says nothing.",
                        f"Write `with {scope.interaction}.{name}():` around the lines it holds for.")
        if name not in INTERACTIONS:
            near = difflib.get_close_matches(name, [*INTERACTIONS, *ANNOTATIONS], 1, 0.4)
            known = ", ".join([*INTERACTIONS, *ANNOTATIONS])
            raise error(call.func, f"There is no interaction `{name}`.", f"The interactions are {known}.",
                        f"Did you mean `{scope.interaction}.{near[0]}`?" if near else "Use one of these.")
        return INTERACTIONS[name]

    def no_stars(self, call: ast.Call, scope: Scope) -> None:
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                raise scope.method.error(
                    argument, f"`{ast.unparse(argument)}` hides how many values cross the boundary.",
                    "Each of them is an edge of the graph.", "Write the arguments one by one.")
        for keyword in call.keywords:
            if keyword.arg is None:
                raise scope.method.error(
                    keyword.value, f"`**{ast.unparse(keyword.value)}` hides which values cross the boundary.",
                    "Each of them is an edge of the graph.", "Write the fields one by one: `name=value`.")

    def check_arguments(self, entry: Interaction, call: ast.Call, positional: list[ast.expr], scope: Scope) -> None:
        least, most = entry.positional
        count = len(positional)
        if count < least or (most is not None and count > most) or (call.keywords and not entry.fields):
            raise self.wrong_arguments(entry, call, scope)
        if entry.fields and not positional and not call.keywords:
            raise scope.method.error(call, f"`{scope.interaction}.{entry.name}` is given nothing.",
                                     f"It is `{entry.signature}`.", "Name at least one field.")

    def wrong_arguments(self, entry: Interaction, call: ast.Call, scope: Scope) -> LoweringError:
        return scope.method.error(call, f"`{scope.interaction}.{entry.name}` is called with the wrong arguments.",
                                  f"It is `{entry.signature}`.", "Write it like that.")

    # -- components by name ------------------------------------------------------------------------------------------

    def target(self, entry: Interaction, call: ast.Call, scope: Scope) -> tuple[str, str, list[ast.expr]]:
        """The component and method that a call names, and the arguments that are left."""
        match entry.component:
            case "{buffer}":
                return self.buffer(entry, call, scope), entry.method, call.args[1:]
            case "{component}":
                if len(call.args) < 2:
                    raise self.wrong_arguments(entry, call, scope)
                return *self.own(call, scope), call.args[2:]
        return entry.component, entry.method, call.args

    def buffer(self, entry: Interaction, call: ast.Call, scope: Scope) -> str:
        if call.args:
            name = self.literal(call.args[0], scope, "The buffer")
            self.known(name, self.buffers, "buffer", call.args[0], scope)
            return name
        if len(self.buffers) != 1:
            have = f"The trainer has {', '.join(self.buffers)}." if self.buffers else "The trainer has none."
            raise scope.method.error(
                call, "Which buffer is meant is not said.", have,
                f'Name it: `{scope.interaction}.{entry.name}("{self.buffers[0]}"{", ..." if entry.fields else ""})`.'
                if self.buffers else "Return at least one from `buffers()`.")
        return self.buffers[0]

    def own(self, call: ast.Call, scope: Scope) -> tuple[str, str]:
        name = self.literal(call.args[0], scope, "The component")
        self.not_of_the_agent(name, call, scope)
        self.known(name, (*self.components, *self.buffers), "component", call.args[0], scope)
        method = self.literal(call.args[1], scope, "The method")
        error = scope.method.error
        if name in self.buffers and method in ("insert", "sample"):
            raise error(call.args[1], f"`{method}` of the buffer `{name}` is called by `call`.",
                        "It has an interaction of its own.",
                        f'Write `{scope.interaction}.replay_buffer_{method}("{name}"'
                        f'{", field=value, ..." if method == "insert" else ""})`.')
        if method == "init" or not method.isidentifier():
            raise error(call.args[1], f"`{method}` is not a method that a loop can call.",
                        "Any method of the component can be named but `init`, which makes its state before the loop.",
                        "Name another method.")
        return name, method

    def literal(self, expr: ast.expr, scope: Scope, what: str) -> str:
        self.check_names(expr, scope)
        found = self.fold(expr, scope, only_harmless=True)
        if not isinstance(found, str):
            raise scope.method.error(expr, f"{what} is not named by a constant string.",
                                     "Which components a loop calls has to be known before it runs.",
                                     "Write the name in quotes, or keep it in the configuration.")
        return found

    def known(self, name: str, names: tuple[str, ...], what: str, place: ast.AST, scope: Scope) -> None:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            have = f"The trainer has {', '.join(names)}." if names else "The trainer has none."
            raise scope.method.error(place, f"There is no {what} `{name}`.", have,
                                     f"Did you mean `{near[0]}`?" if near else f"Return it from `{what}s()`.")

    def not_of_the_agent(self, name: str, call: ast.Call, scope: Scope) -> None:
        """The environment, the actor and the learner have interactions of their own, for some of their methods."""
        own = {entry.method: entry for entry in INTERACTIONS.values() if entry.component == name}
        if not own or name in (*self.components, *self.buffers):
            return
        method = self.literal(call.args[1], scope, "The method")
        forms = " or ".join(f"`{entry.signature.replace('msrl', scope.interaction, 1)}`" for entry in own.values()
                            if method == entry.method or method not in own)
        more = "" if method in own else " Anything else belongs in a component of `components()`."
        raise scope.method.error(call.args[0], f"The {'environment' if name == 'env' else name} is called by `call`.",
                                 "A loop calls components of `components()` and buffers by it.",
                                 f"Write {forms}.{more}")

    def same_fields(self, buffer: str, call: ast.Call, scope: Scope) -> None:
        fields = tuple(sorted(keyword.arg or "" for keyword in call.keywords))
        first, span = self.inserted.setdefault(buffer, (fields, scope.method.span(call)))
        if first != fields:
            raise LoweringError(
                f"Two inserts into `{buffer}` have different fields.", span=span, also=scope.method.span(call),
                why=f"The first has {', '.join(first)}; the second has {', '.join(fields)}.",
                instead="Give both the same fields, or use two buffers.", docs=DOCS)
