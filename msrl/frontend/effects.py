"""Calls that the loop language refuses because they do more than give a value.

In: a call in an expression of the loop. Out: a `Complaint`, or None. A compiled loop evaluates an expression once,
while it is traced, or leaves it out if nobody reads its value; so a call with an effect, and one that gives another
value each time, would mean something else there than in Python.
"""

import ast
import builtins
import inspect
from typing import Any

from msrl.frontend.complaints import Complaint

_BUILTINS = ("print", "breakpoint", "input", "open", "next", "setattr", "delattr", "exec")
_EFFECTS = ("_io", "jax._src.callback", "jax._src.debugging", "logging", "os", "pdb", "posix", "shutil", "subprocess",
            "sys", "warnings")
_CHANGING = ("datetime", "numpy.random", "random", "secrets", "time", "uuid")
_PURE_OF_THESE = ("pure_callback", "timedelta", "fspath")
_IN_PLACE = {
    "append": "`{owner} = [*{owner}, value]`", "extend": "`{owner} = [*{owner}, *values]`",
    "insert": "`{owner} = [value, *{owner}]`", "remove": "a list without it", "clear": "an empty one",
    "update": "`{owner} = {{**{owner}, **others}}`", "setdefault": "`{owner} = {{\"name\": value, **{owner}}}`",
    "pop": "one without the item", "popitem": "a dict without the item", "add": "`{owner} = {owner} | {{value}}`",
    "discard": "a set without it",
}
_CONTAINERS = (list, dict, set, bytearray)
_LIBRARIES = ("builtins", "chex", "collections", "dataclasses", "flax", "functools", "itertools", "jax", "jaxlib",
              "math", "msrl", "numpy", "operator", "optax", "rlax")

_TRACED = "A compiled loop evaluates an expression once, while it is traced, or never, if nobody reads its value."
RUN_EAGERLY = ("To print, or to stop in the debugger, run the loop as plain Python: `msrl train ... --eager`, or "
               "`msrl.eager(...)`.")


def is_effect(call: ast.Call, names: Any, lookup: Any, trainer: Any) -> bool:
    """Does it print, log, stop in the debugger, write a file? `names` are local, `lookup` finds the others."""
    found = _resolve(call.func, names, lookup, trainer)
    # Looked up now: Ray, notebooks and test runners put their own in the place of some.
    known = any(found is getattr(builtins, name) for name in _BUILTINS)
    return known or (_home(found, _EFFECTS) and _name(found) not in _PURE_OF_THESE)


def complaint(call: ast.Call, names: Any, lookup: Any, trainer: Any, interaction: str) -> Complaint | None:
    """What is wrong with a call; None if it may be pure."""
    text = ast.unparse(call)
    if is_effect(call, names, lookup, trainer):
        return Complaint(f"`{text}` is called for its effect.", _TRACED,
                         f"Hand numbers to `{interaction}.report(...)`; what else has an effect belongs in a "
                         f"component. {RUN_EAGERLY}")
    found = _resolve(call.func, names, lookup, trainer)
    seeded = bool(call.args or call.keywords) and (inspect.isclass(found) or _name(found) == "default_rng")
    if _home(found, _CHANGING) and not seeded and _name(found) not in _PURE_OF_THESE:
        return Complaint(f"`{text}` gives another value each time.", _TRACED,
                         "Draw random numbers, and read clocks, in a component: its methods are given a random key.")
    if isinstance(call.func, ast.Attribute) and call.func.attr in _IN_PLACE and not _functional(call.func.value):
        held = _resolve(call.func.value, names, lookup, trainer)
        local = isinstance(call.func.value, ast.Name) and call.func.value.id in names
        if local or isinstance(held, _CONTAINERS):
            owner = ast.unparse(call.func.value)
            form = _IN_PLACE[call.func.attr].format(owner=owner)
            return Complaint(f"`{text}` changes `{owner}` in place.",
                             "Values are immutable: fragments that hold one share no memory.",
                             f"Make a new value: {form}. To collect values over passes, use a buffer, or the state of "
                             "a component.")
    return None


def calls_unknown(expr: str, names: Any, lookup: Any, trainer: Any) -> ast.Call | None:
    """The first call, in an expression, of a function of the user's own, of which nobody knows whether it is pure."""
    for node in ast.walk(ast.parse(expr, mode="eval")):
        if isinstance(node, ast.Call):
            found = _resolve(node.func, names, lookup, trainer)
            if callable(found) and not inspect.isclass(found) and not _home(found, _LIBRARIES):
                return node
    return None


def _resolve(expr: ast.expr, names: Any, lookup: Any, trainer: Any) -> Any:
    """What a name, or an attribute of one, stands for; None if that is known at run time only."""
    match expr:
        case ast.Name(id="self"):
            return trainer
        case ast.Name(id=name) if name not in names:
            try:
                return lookup(name)
            except KeyError:
                return None
        case ast.Attribute(value=owner, attr=name):
            held = _resolve(owner, names, lookup, trainer)
            try:
                return None if held is None else getattr(held, name, None)
            except Exception:  # a property of the user's
                return None
    return None


def _functional(owner: ast.expr) -> bool:
    """`x.at[i]`: its methods give new arrays."""
    return isinstance(owner, ast.Subscript) and isinstance(owner.value, ast.Attribute) and owner.value.attr == "at"


def _home(found: Any, modules: tuple[str, ...]) -> bool:
    """Is it a function, or a method of an object, of one of these modules?"""
    if found is None:
        return False
    homes = [getattr(found, "__module__", None)]
    owner = getattr(found, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        homes.append((owner if inspect.isclass(owner) else type(owner)).__module__)
    if inspect.ismodule(owner):
        homes.append(owner.__name__)
    return any(isinstance(home, str) and (home == module or home.startswith(f"{module}."))
               for home in homes for module in modules)


def _name(found: Any) -> str:
    return getattr(found, "__name__", "")
