"""A trainer's methods as syntax trees that know where in the user's file they stand."""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msrl.errors import LoweringError, Span

DOCS = "docs/loop-language.md"


@dataclass(frozen=True)
class Method:
    """One method, parsed. `parameters` are its names after `self`; `defaults` the values of those that have one."""

    name: str
    tree: ast.FunctionDef
    file: str
    lines: tuple[str, ...]  # of the whole method, as in the file
    first_line: int
    indent: int  # columns that parsing took off
    globals: dict[str, Any]
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    bound: bool  # takes self

    def span(self, node: ast.AST) -> Span:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1].rstrip("\n")
        end = getattr(node, "end_col_offset", column + 1) if getattr(node, "end_lineno", line) == line else None
        start = column + self.indent
        stop = end + self.indent if end is not None else len(text)
        shown = text.lstrip()
        cut = len(text) - len(shown)
        return Span(self.file, self.first_line + line - 1, start - cut + 1, stop - start, shown)

    def error(self, node: ast.AST, what: str, why: str = "", instead: str = "", **more: Any) -> LoweringError:
        return LoweringError(what, span=self.span(node), why=why, instead=instead, docs=DOCS, **more)

    def lookup(self, name: str) -> Any:
        """What a name that is not local stands for; KeyError if nothing."""
        return self.globals[name] if name in self.globals else vars(builtins)[name]


def read_method(owner: type, name: str) -> Method:
    """Finds and parses a method of a trainer's class, inherited ones included."""
    raw = inspect.getattr_static(owner, name)
    bound = not isinstance(raw, staticmethod)
    function: Callable = inspect.unwrap(getattr(raw, "__func__", raw))
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise LoweringError(
            f"The source of {owner.__name__}.{name} cannot be found.",
            why="The compiler reads the loop's source, and this one was typed at a prompt or made by exec.",
            instead="Put the trainer in a file and import it.", docs=DOCS,
        ) from None
    text = textwrap.dedent("".join(lines))
    tree = ast.parse(text).body[0]
    file = _shown(inspect.getsourcefile(function) or "<unknown>")
    indent = len(lines[0]) - len(lines[0].lstrip())
    if not isinstance(tree, ast.FunctionDef):
        here = Span(file, first, 1, len(lines[0].strip()), lines[0].strip())
        raise LoweringError(f"{owner.__name__}.{name} is not a plain method.", span=here, docs=DOCS,
                            why="The compiler reads the statements of a `def`, and this is something else.",
                            instead=f"Write `def {name}(self, msrl):`.")
    closure = {cell: held.cell_contents for cell, held in zip(function.__code__.co_freevars, function.__closure__ or ())}
    parameters = [p for p in inspect.signature(function).parameters.values()]
    own = parameters[1:] if bound else parameters
    return Method(
        name=name, tree=tree, file=file, lines=tuple(lines), first_line=first, indent=indent,
        globals={**function.__globals__, **closure}, parameters=tuple(p.name for p in own),
        defaults={p.name: p.default for p in own if p.default is not p.empty}, bound=bound,
    )


def _shown(file: str) -> str:
    """The path as the user would type it from here."""
    path, here = Path(file).resolve(), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def stored_names(nodes: list[ast.stmt]) -> dict[str, None]:
    """The local names that statements assign, in order."""
    found: dict[str, None] = {}
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found[inner.id] = None
    return found


def free_names(expr: ast.AST) -> dict[str, ast.Name]:
    """The names an expression reads from outside itself, each with its first place."""
    found: dict[str, ast.Name] = {}

    def visit(node: ast.AST, bound: frozenset[str]) -> None:
        match node:
            case ast.Name(id=name):
                if name not in bound:
                    found.setdefault(name, node)
                return
            case ast.Lambda():
                arguments = node.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                every += [a for a in (arguments.vararg, arguments.kwarg) if a]
                for default in [*arguments.defaults, *arguments.kw_defaults]:
                    if default:
                        visit(default, bound)
                visit(node.body, bound | {a.arg for a in every})
                return
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in node.generators:
                    visit(generator.iter, bound)
                    bound = bound | {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
                    for condition in generator.ifs:
                        visit(condition, bound)
                for child in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                    visit(child, bound)
                return
        for child in ast.iter_child_nodes(node):
            visit(child, bound)

    visit(expr, frozenset())
    return found
