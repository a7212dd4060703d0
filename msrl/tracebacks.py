"""Where in the author's files an exception came from: an exception goes in, a span comes out.

The author's frames are those outside Python's library, installed packages and this one. Of several, the innermost
counts: the others only led there. Where a loop runs what comes with MSRL, that stands for the author's (`built_in`).
"""

import ast
import inspect
import linecache
import os
import site
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msrl.errors import Span

_HERE = str(Path(__file__).parent) + os.sep
_LEAVES = tuple(f"{_HERE}{leaf}{os.sep}" for leaf in ("algorithms", "buffers", "envs", "rl"))
_INSTALLED = tuple({str(Path(place)) + os.sep for place in (
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), site.getusersitepackages())})


def author_span(problem: BaseException, built_in: bool = False) -> Span | None:
    """The author's line that the exception came from; if there is none, and only if asked for, that of an algorithm,
    environment or buffer of this package."""
    found = _innermost(problem, built_in)
    return None if found is None else _span(*found)


def raised_by_author(problem: BaseException) -> bool:
    """Is it of a file of the author's, or of a library that the author called, and not of this package?"""
    ours = [_file(each).startswith((_HERE, *_INSTALLED)) for each in _frames(problem.__traceback__)]
    within = [_file(each).startswith(_HERE) for each in _frames(problem.__traceback__)]
    return False in ours and True not in within[len(ours) - ours[::-1].index(False):]


def author_shapes(problem: BaseException) -> str:
    """A sentence about the arrays that the author's line names; empty if it names none."""
    found = _innermost(problem, built_in=True)
    if found is None:
        return ""
    frame, position = found[0].tb_frame, found[1]
    shown = [f"`{name}` is {value.dtype}{list(value.shape)}" for name, value in _named(frame, position)
             if hasattr(value, "shape") and hasattr(value, "dtype")]
    return f"Here {', '.join(dict.fromkeys(shown))}." if shown else ""


def function_span(function: Callable[..., Any]) -> Span | None:
    """The line on which a function begins, if its source can be found."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
    except (OSError, TypeError):
        return None
    if file is None:
        return None
    heads = [number for number, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
    at = heads[0] if heads else 0  # decorators stand before it
    text = lines[at].strip()
    return Span(shown_path(file), first + at, 1, len(text), text)


def shown_path(file: str) -> str:
    """The path as the user would type it from here."""
    path, here = Path(file).resolve(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


Position = tuple[int, int | None, int | None, int | None]  # line, last line, column, last column, in bytes


def _innermost(problem: BaseException, built_in: bool) -> tuple[types.TracebackType, Position] | None:
    frames = list(_frames(problem.__traceback__))
    found = [each for each in frames if not _file(each).startswith((_HERE, *_INSTALLED))]
    if not found and built_in:
        found = [each for each in frames if _file(each).startswith(_LEAVES)]
    return (found[-1], _position(found[-1])) if found else None


def _frames(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        if not _file(traceback).startswith("<"):  # made by exec, or a part of Python itself
            yield traceback
        traceback = traceback.tb_next


def _file(traceback: types.TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename


def _position(traceback: types.TracebackType) -> Position:
    positions = list(traceback.tb_frame.f_code.co_positions())
    line, last, start, stop = positions[traceback.tb_lasti // 2]
    return (line or traceback.tb_lineno), last, start, stop


def _span(traceback: types.TracebackType, position: Position) -> Span | None:
    line, last, start, stop = position
    linecache.checkcache(_file(traceback))
    text = linecache.getline(_file(traceback), line).rstrip()
    shown = text.lstrip()
    if not shown:
        return None
    indent = len(text) - len(shown)
    first = len(text.encode()[:start].decode(errors="ignore")) if start is not None else indent
    after = len(text.encode()[:stop].decode(errors="ignore")) if stop is not None and last == line else len(text)
    return Span(shown_path(_file(traceback)), line, first - indent + 1, max(1, after - first), shown)


def _named(frame: types.FrameType, position: Position) -> Iterator[tuple[str, Any]]:
    """The names, and attributes of names, in the expression at hand, with their values."""
    line, last, start, stop = position
    if start is None or stop is None or last is None:
        return
    code = [linecache.getline(frame.f_code.co_filename, at).encode() for at in range(line, last + 1)]
    code[-1] = code[-1][:stop]
    code[0] = code[0][start:]
    try:
        tree = ast.parse(b"(" + b"".join(code) + b")", mode="eval")
    except SyntaxError:
        return
    for node in _chains(tree):
        value = _value(node, frame)
        if value is not None:
            yield ast.unparse(node), value


def _chains(node: ast.AST) -> Iterator[ast.expr]:
    """Names, and attributes of attributes of names, each as long as it is written."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) or (isinstance(child, ast.Attribute) and _root(child) is not None):
            yield child
        else:
            yield from _chains(child)


def _root(node: ast.expr) -> ast.Name | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _value(node: ast.expr, frame: types.FrameType) -> Any:
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id)
    assert isinstance(node, ast.Attribute)
    try:
        return getattr(_value(node.value, frame), node.attr, None)
    except Exception:  # a property of the author's
        return None
