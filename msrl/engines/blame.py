"""Errors of the user's code, told in terms of the loop's line and of the author's line that it led to."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from msrl.errors import LostError, MsrlError, RunError
from msrl.ir.graph import Call, Pure
from msrl.tracebacks import author_shapes, author_span


def title(node: Call | Pure) -> str:
    """An op by its component and method; an expression as the user wrote it."""
    if isinstance(node, Call):
        return f"`{node.component}.{node.method}`"
    written = node.span.text[node.span.column - 1:][:node.span.width] if node.span else ""
    return f"`{written or node.expr}`"


@contextmanager
def blame(node: Call | Pure, kind: type[MsrlError]) -> Iterator[None]:
    """What is raised inside comes out as `kind`, with the line of the loop that led there and the author's line that
    raised it; ours keep their own kind. In a run, a connection that broke is a loss: nobody's mistake, and gone perhaps
    when it is tried again."""
    try:
        yield
    except MsrlError as problem:
        if problem.span is not None:
            raise
        raise problem.retold(span=node.span, also=problem.also or author_span(problem)) from problem
    except (ConnectionError, TimeoutError) as problem:
        lost = issubclass(kind, RunError)
        raise (LostError if lost else kind)(
            f"{title(node)} {'lost its connection' if lost else 'fails'}: {type(problem).__name__}.", span=node.span,
            also=author_span(problem, built_in=True), why=str(problem).strip()) from problem
    except Exception as problem:
        words = re.sub(r"\b[A-Z]\w*Tracer\b", "array", str(problem).strip().split("\n\n")[0])
        said = [words, author_shapes(problem)]
        raise kind(f"{title(node)} fails: {type(problem).__name__}.", span=node.span,
                   also=author_span(problem, built_in=True), why="\n".join(filter(None, said))) from problem
