"""What a node is called where time is told by node, and which lines of the loop it came from.

In: a node of a local program. Out: words. A stretch or loop is called by the ops in it, each named once.
"""

from pathlib import PurePath

from msrl.errors import Span
from msrl.ir.graph import Call, Node, Pure, calls


def title(node: Node) -> str:
    match node:
        case Call():
            return f"{node.component}.{node.method}"
        case Pure():
            return node.span.text[node.span.column - 1:][:node.span.width] if node.span else node.expr
    inside = dict.fromkeys(title(call) for call in calls((node,)))
    return " + ".join(inside) or "expressions"


def lines(node: Node) -> dict[str, str]:
    """The line of each op in it; of an op or an expression, its own."""
    if isinstance(node, (Call, Pure)):
        return {title(node): place(node.span)} if node.span else {}
    return {title(call): place(call.span) for call in calls((node,)) if call.span}


def place(span: Span) -> str:
    return f"{PurePath(span.file).name}:{span.line}"
