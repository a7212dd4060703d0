"""The Python state that an author's components can see and change: attributes, globals, closures, random generators.

In: components. Out: an `AuthorState`, of which `take` makes a snapshot: by path (`self.n`, `POOL`, `random`), something
that is equal as long as nothing has changed. Nothing is copied that is large, and nothing of a library is looked into.
"""

import enum
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from msrl.engines.author import is_authors
from msrl.frontend.source import closure

Snapshot = dict[str, Any]

PYTHONS, NUMPYS = "Python's random numbers", "NumPy's random numbers"
DEPTH, ENTRIES, BYTES = 5, 1000, 2 ** 20  # what lies deeper, or is larger, is known by its identity
_PLAIN = (bool, int, float, complex, str, bytes, enum.Enum, np.generic, np.dtype, range, type(None))
_WHOLE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, jax.Array)
_CLOCKS = {"time", "datetime", "random", "secrets", "uuid"}  # modules


@dataclass(frozen=True)
class Traced:
    """A value of a program that was being traced."""

    number: int


@dataclass(frozen=True)
class Generator:
    """The state of a generator of random numbers."""

    state: Any


class AuthorState:
    def __init__(self, components: Iterable[Any]):
        self.roots: dict[str, Callable[[], Any]] = {
            PYTHONS: lambda: random._inst, NUMPYS: lambda: np.random.mtrand._rand}  # type: ignore[attr-defined]
        self.suspect = False  # does code name a module of clocks or random numbers?
        self._seen: set[Any] = set()
        self._objects: list[tuple[Any, dict[str, Any]]] = []  # with their attributes at first
        for component in components:
            self._add_object(component)

    def take(self) -> Snapshot:
        return {path: found for root, read in self.roots.items() for path, found in _walk(root, read(), DEPTH, set())}

    def read(self, path: str) -> Any:
        """A part of a snapshot: what has this path now, and all below the same root."""
        root = next(root for root in self.roots if path == root or path.startswith((f"{root}.", f"{root}[")))
        return dict(_walk(root, self.roots[root](), DEPTH, set())).get(path)

    def reset(self) -> None:
        """Gives objects the attributes that they had at first."""
        for value, attributes in self._objects:
            if hasattr(value, "__dict__"):
                vars(value).clear()
                vars(value).update(attributes)

    # -- what there is to see ----------------------------------------------------------------------------------------

    def _add_object(self, value: Any) -> None:
        """An object of the author's: its attributes, and what the methods of its class see. One of ours may hold some,
        as wrappers of environments do."""
        owners = [cls for cls in type(value).__mro__ if _of_author(cls)]
        if id(value) in self._seen or not (owners or type(value).__module__.startswith("msrl.")):
            return
        self._seen.add(id(value))
        for inner in _attributes(value).values():
            self._add_object(inner)
        if not owners:
            return
        name = "self" if "self" not in self.roots else f"{type(value).__name__}.self"
        self.roots[_free(self.roots, name)] = lambda: value
        self._objects.append((value, dict(getattr(value, "__dict__", {}))))
        for cls in owners:
            self._add_class(cls)

    def _add_class(self, cls: type) -> None:
        if cls in self._seen:
            return
        self._seen.add(cls)
        for name, member in vars(cls).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType):
                self._add_function(function)
            elif not name.startswith("__") and _is_data(member):
                self.roots[_free(self.roots, f"{cls.__name__}.{name}")] = lambda name=name: vars(cls).get(name)

    def _add_function(self, function: FunctionType) -> None:
        if function in self._seen or not is_authors(function.__code__.co_filename):
            return
        self._seen.add(function)
        around = closure(function)
        for name in _names(function.__code__):
            if name in around:
                self._add_name(name, around[name], lambda name=name: closure(function).get(name), function)
            elif name in function.__globals__:
                self._add_name(name, function.__globals__[name], lambda name=name: function.__globals__.get(name),
                               function)
            self.suspect |= name in _CLOCKS

    def _add_name(self, name: str, value: Any, read: Callable[[], Any], user: FunctionType) -> None:
        match value:
            case FunctionType():
                self._add_function(value)
            case type():
                if _of_author(value):
                    self._add_class(value)
            case ModuleType(__name__=module):
                self.suspect |= module in _CLOCKS
                if is_authors(getattr(value, "__file__", None) or "<none>") and value not in self._seen:
                    self._seen.add(value)
                    for inner in _names(user.__code__):
                        if inner in vars(value):
                            self._add_name(f"{name}.{inner}", vars(value)[inner],
                                           lambda inner=inner: vars(value).get(inner), user)
            case _ if getattr(value, "__module__", None) in _CLOCKS:
                self.suspect = True
            case _ if _is_data(value) and (user.__module__, name) not in self._seen:
                self._seen.add((user.__module__, name))
                self.roots[_free(self.roots, name)] = read


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The paths that have changed, the shortest first; what lies within a changed one is left out."""
    paths = sorted((path for path in before.keys() | after.keys() if before.get(path, _NONE) != after.get(path, _NONE)),
                   key=lambda path: (len(path), path))
    return [path for at, path in enumerate(paths) if not any(path.startswith((f"{one}.", f"{one}["))
                                                             for one in paths[:at])]


_NONE = object()


def _free(taken: dict[str, Any], name: str) -> str:
    return next(each for number in itertools.count(1) if (each := name if number == 1 else f"{name}#{number}")
                not in taken)


@cache
def _of_author(cls: type) -> bool:
    files = [member.__code__.co_filename for member in vars(cls).values() if isinstance(member, FunctionType)]
    own = [file for file in files if not file.startswith("<")]  # others are made by decorators
    module = sys.modules.get(cls.__module__)
    return any(map(is_authors, own)) if own else is_authors(getattr(module, "__file__", None) or "<none>")


def _is_data(value: Any) -> bool:
    return _of_author(type(value)) or not (
        callable(value) or isinstance(value, (ModuleType, property, classmethod, staticmethod)))


def _names(code: CodeType) -> Iterator[str]:
    """The globals, attributes, imports and outer names that code reads, also in functions inside it."""
    yield from code.co_names
    yield from code.co_freevars
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **getattr(value, "__dict__", {})}


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return tuple(name for name in ((slots,) if isinstance(slots, str) else slots) if not name.startswith("__"))


def _walk(path: str, value: Any, depth: int, inside: set[int]) -> Iterator[tuple[str, Any]]:
    match value:
        case jax.core.Tracer():
            yield path, Traced(id(value))
        case float() if value != value:
            yield path, "nan"
        case _ if isinstance(value, _PLAIN):
            yield path, (type(value), value)
        case np.ndarray() if value.nbytes <= BYTES and not value.dtype.hasobject:
            yield path, (value.shape, value.dtype, value.tobytes())
        case np.random.Generator():
            yield path, Generator(repr(value.bit_generator.state))
        case np.random.RandomState():
            yield path, Generator(repr(value.get_state()))
        case np.random.BitGenerator():
            yield path, Generator(repr(value.state))
        case random.Random():
            yield path, Generator(value.getstate())
        case itertools.count():
            yield path, repr(value)
        case _ if isinstance(value, _WHOLE) or id(value) in inside or not depth:
            yield path, id(value)
        case dict():
            yield path, (type(value), len(value))
            for key, entry in itertools.islice(value.items(), ENTRIES):
                yield from _walk(f"{path}[{key!r}]", entry, depth - 1, {*inside, id(value)})
        case list() | tuple() | deque():
            yield path, (type(value), len(value))
            for at, entry in enumerate(itertools.islice(value, ENTRIES)):
                yield from _walk(f"{path}[{at}]", entry, depth - 1, {*inside, id(value)})
        case set() | frozenset():
            yield path, (type(value), frozenset(map(id, itertools.islice(value, ENTRIES))) if len(value) > ENTRIES
                         else frozenset(value))
        case _ if _of_author(type(value)):
            for name, entry in _attributes(value).items():
                yield from _walk(f"{path}.{name}", entry, depth - 1, {*inside, id(value)})
        case _:
            yield path, id(value)
