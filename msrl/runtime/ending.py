"""Generators that end with the interpreter at the latest, while all that they end with is still there.

A script may end amid a run. What its generators do to end well needs modules that the interpreter has taken apart by
the time it gets to them.
"""

import atexit
import functools
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import closing
from threading import Event
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE = 5.0  # seconds, for what other threads are at
_ending = Event()
_GOING: "weakref.WeakSet[Generator[Any]]" = weakref.WeakSet()


def closed_at_exit(function: Callable[P, Generator[T]]) -> Callable[P, Generator[T]]:
    """The same generator function. What it makes is closed before the interpreter ends."""
    @functools.wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        made = _until_the_end(function(*args, **kwargs))
        _GOING.add(made)
        return made

    return begin


def _until_the_end(made: Generator[T]) -> Generator[T]:
    with closing(made):
        for each in made:
            yield each
            if _ending.is_set():
                return


def process_ends() -> bool:
    """Is the interpreter about to end? Then whoever is at work leaves it at the next opportunity."""
    return _ending.is_set()


@atexit.register
def _close_all() -> None:
    _ending.set()
    end = time.perf_counter() + PATIENCE
    for each in list(_GOING):
        while not _closed(each) and time.perf_counter() < end:
            time.sleep(0.01)


def _closed(generator: Generator[Any]) -> bool:
    """False while a thread is at work in it. One that comes back from C++ once the interpreter is taken apart would
    take the process with it, so it is let finish what it is at."""
    try:
        generator.close()
    except ValueError:
        return False
    return True
