"""A trainer's methods as syntax trees that know where in the user's file they stand."""

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msrl.errors import LoweringError, Span
from msrl.tracebacks import shown_path

DOCS = "docs/loop-language.md"

# Decorators that leave a function as it is. Any other would have to be inlined along with the method.
_PLAIN = ("staticmethod", "override", "final", "abstractmethod")


@dataclass(frozen=True)
class Method:
    """One method, parsed. `signature` is without `self`; `local` maps the names it assigns to where each is first."""

    name: str
    tree: ast.FunctionDef  # its line numbers are those of the file
    file: str
    lines: tuple[str, ...]  # of the whole method, as in the file
    first_line: int
    globals: dict[str, Any]
    signature: inspect.Signature
    bound: bool  # takes self
    local: dict[str, ast.Name]

    def span(self, node: ast.AST) -> Span:
        """Where a node stands; of a loop or branch, its head; of what takes several lines, the first."""
        line, column = getattr(node, "lineno", self.first_line), getattr(node, "col_offset", 0)
        text = self.lines[line - self.first_line].rstrip()
        last = _head(node)
        ends_here = getattr(last, "end_lineno", line) == line
        start = _characters(text, column)
        stop = _characters(text, getattr(last, "end_col_offset", column + 1)) if ends_here else len(text)
        shown = text.lstrip()
        return Span(self.file, line, start - (len(text) - len(shown)) + 1, stop - start, shown)

    def error(self, node: ast.AST, what: str, why: str = "", instead: str = "", **more: Any) -> LoweringError:
        return LoweringError(what, span=self.span(node), why=why, instead=instead, docs=DOCS, **more)

    def lookup(self, name: str) -> Any:
        """What a name that is not local stands for; KeyError if nothing."""
        return self.globals[name] if name in self.globals else vars(builtins)[name]


def _head(node: ast.AST) -> ast.AST:
    """The last expression of a compound statement's first line; any other node is its own head."""
    match node:
        case ast.For(iter=head) | ast.While(test=head) | ast.If(test=head):
            return head
        case ast.With(items=[*_, ast.withitem(context_expr=head)]):
            return head
    return node


def _characters(text: str, column: int) -> int:
    """`ast` counts columns in bytes."""
    return len(text.encode()[:column].decode(errors="ignore"))


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
    file = shown_path(inspect.getsourcefile(function) or "<unknown>")
    tree = _parse(lines, first)
    signature = inspect.signature(function)
    receiver = next(iter(signature.parameters), None)
    if tree is None or isinstance(raw, classmethod) or (bound and receiver != "self"):
        here = Span(file, first, 1, len(lines[0].strip()), lines[0].strip())
        raise LoweringError(f"{owner.__name__}.{name} is not a plain method.", span=here, docs=DOCS,
                            why="The compiler reads the statements of a `def` whose first parameter is `self`.",
                            instead=f"Write `def {name}(self, msrl, ...):`.")
    method = Method(
        name=name, tree=tree, file=file, lines=tuple(lines), first_line=first, bound=bound,
        globals={**function.__globals__, **closure(function)}, local=stored_names(tree.body),
        signature=signature.replace(parameters=list(signature.parameters.values())[1 if bound else 0:]),
    )
    for decorator in tree.decorator_list:
        if ast.unparse(decorator).rpartition(".")[2] not in _PLAIN:
            raise method.error(decorator, f"`{name}` is decorated with `{ast.unparse(decorator)}`.",
                               "The compiler reads the method's statements, and would leave the decorator out.",
                               "Remove the decorator.")
    return method


def _parse(lines: Sequence[str], first: int) -> ast.FunctionDef | None:
    """The `def` of a method, or None if the lines hold something else."""
    # Parsed under an `if`, as the lines are indented; taking the indent off would trip over strings and comments that
    # stand further left.
    head = "if True:\n" if lines[0][:1].isspace() else ""
    try:
        tree: ast.stmt = ast.parse(head + "".join(lines)).body[0]
    except SyntaxError:
        return None
    tree = tree.body[0] if head and isinstance(tree, ast.If) else tree
    ast.increment_lineno(tree, first - (2 if head else 1))
    return tree if isinstance(tree, ast.FunctionDef) else None


def closure(function: Callable) -> dict[str, Any]:
    """The names that a function sees of the functions around it, as far as they have a value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


_OWN_NAMES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def stored_names(nodes: Sequence[ast.AST]) -> dict[str, ast.Name]:
    """The local names that statements assign, in order, each with its first place."""
    found: dict[str, ast.Name] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, node)
        if not isinstance(node, _OWN_NAMES):
            for child in ast.iter_child_nodes(node):
                visit(child)

    for node in nodes:
        visit(node)
    return found


def stored_anywhere(expr: ast.AST) -> Iterator[str]:
    """The names that lambdas and comprehensions inside an expression make for themselves."""
    for node in ast.walk(expr):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


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
                made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                for part in made:
                    visit(part, bound)
                return
        for child in ast.iter_child_nodes(node):
            visit(child, bound)

    visit(expr, frozenset())
    return found
