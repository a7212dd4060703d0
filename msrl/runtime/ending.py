"""Generators that end with the interpreter at the latest, while all that they end with is still there.

A script may end amid a run. What its generators do to end well needs modules that the interpreter has taken apart by
the time it gets to them.
"""

import atexit
import functools
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_GOING: "weakref.WeakSet[Generator[Any]]" = weakref.WeakSet()


def closed_at_exit(function: Callable[P, Generator[T]]) -> Callable[P, Generator[T]]:
    """The same generator function. What it makes is closed before the interpreter ends."""
    @functools.wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        made = function(*args, **kwargs)
        _GOING.add(made)
        return made

    return begin


@atexit.register
def _close_all() -> None:
    for each in list(_GOING):
        with suppress(ValueError):  # a daemon thread is at work in it, and ends with the interpreter
            each.close()
