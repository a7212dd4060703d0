"""Which code is the author's, as opposed to ours, JAX's and Python's, and a line of it as a `Span`."""

import linecache
import sysconfig
from functools import cache
from pathlib import Path

from msrl.errors import Span

_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(str(Path(_PATHS[kind]).resolve()) for kind in ("stdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).resolve().parents[1])


@cache
def is_authors(file: str) -> bool:
    """Is the file neither ours nor a library's?"""
    return not file.startswith("<") and not str(Path(file).resolve()).startswith((*_LIBRARIES, _OURS))


@cache
def is_pythons(file: str) -> bool:
    """Is it of the standard library?"""
    path = str(Path(file).resolve())
    return path.startswith(_LIBRARIES[0]) and not path.startswith(_LIBRARIES[1:])


def find_line(file: str, line: int) -> Span:
    text = linecache.getline(file, line).strip()
    path, here = Path(file).resolve(), Path.cwd()
    shown = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
    return Span(shown, line, 1, len(text), text)
