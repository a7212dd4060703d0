"""A graph as a Mermaid flowchart: ops are boxes, loops and branches are frames, data flows along the arrows.

Solid arrows are values, named after the user's variables; dotted ones are resources (weights, the state of an
environment). Mere selections (`step.obs`) and counters of random numbers are left out.
"""

import re
from collections.abc import Iterator

from msrl.ir.graph import Call, For, Graph, If, Node, Pure, While, base, is_resource, uses, walk

_SELECTION = re.compile(r"[\w.]+")
_UNNAMED = "t"  # what the front end calls values that have no variable


def draw(graph: Graph) -> str:
    ids = {id(node): f"n{number}" for number, node in enumerate(walk(graph.nodes), 1)}
    sources = _sources(graph)
    exprs = {node.out: node.expr for node in walk(graph.nodes) if isinstance(node, Pure)}
    lines = ["flowchart TD", *_frames(graph.nodes, ids, "  ")]
    for node in filter(_drawn, walk(graph.nodes)):
        arrows: dict[tuple[str, str], dict[str, None]] = {}  # (from, how) → labels; one arrow for all of them
        for name in uses(node):
            if name.startswith("#") or base(name) == "$metrics":
                continue
            how = "-.->" if is_resource(name) else "-->"
            for origin in _origins(name, sources, set()):
                arrows.setdefault((ids[id(origin)], how), {})[_label(name, exprs)] = None
        for (source, how), labels in arrows.items():
            label = ", ".join(filter(None, labels))
            lines.append(f"  {source} {how}{f'|{_quoted(label)}|' if label else ''} {ids[id(node)]}")
    return "\n".join(lines) + "\n"


def _label(name: str, exprs: dict[str, str]) -> str:
    """What the user calls a value: its variable, the expression where it has none, or nothing."""
    if is_resource(name):
        return base(name).removeprefix("$")
    if base(name) != _UNNAMED:
        return base(name)
    expr = exprs.get(name, "")
    return expr if _SELECTION.fullmatch(expr) else ""


def _drawn(node: Node) -> bool:
    match node:
        case Call():
            return (node.component, node.method) != ("metrics", "init")
        case Pure():
            return not _SELECTION.fullmatch(node.expr) and not is_resource(node.out)
    return False


def _frames(nodes: tuple[Node, ...], ids: dict[int, str], indent: str) -> Iterator[str]:
    for node in nodes:
        match node:
            case Call() if _drawn(node):
                yield f'{indent}{ids[id(node)]}["{node.component}.{node.method}"]'
            case Pure() if _drawn(node):
                yield f'{indent}{ids[id(node)]}(["{_quoted(node.expr)}"])'
            case For():
                title = f"for {base(node.index)} in {node.start}, {node.stop}, {node.step}"
                yield from _frame(ids[id(node)], title, node.body, ids, indent)
            case While():
                yield from _frame(ids[id(node)], f"while {base(node.condition)}", node.test + node.body, ids, indent)
            case If():
                yield from _frame(ids[id(node)], f"if {base(node.condition)}", node.then, ids, indent)
                if node.orelse:
                    yield from _frame(f"{ids[id(node)]}e", "else", node.orelse, ids, indent)


def _frame(name: str, title: str, nodes: tuple[Node, ...], ids: dict[int, str], indent: str) -> Iterator[str]:
    yield f'{indent}subgraph {name}["{_quoted(title)}"]'
    yield from _frames(nodes, ids, indent + "  ")
    yield f"{indent}end"


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")


def _sources(graph: Graph) -> dict[str, tuple[Node | str, ...]]:
    """For every name, the node that makes it, or the names it stands for."""
    found: dict[str, tuple[Node | str, ...]] = {}
    for node in walk(graph.nodes):
        match node:
            case Call():
                found.update({name: (node,) for name in (*((node.out,) if node.out else ()), *node.writes)})
            case Pure():
                found[node.out] = (node,) if _drawn(node) else tuple(name for _, name in node.inputs)
            case For() | While():
                for carry in node.carries:
                    found[carry.out] = (carry.next,)
                    if carry.phi and carry.init:
                        found[carry.phi] = (carry.init, carry.next)
            case If():
                found.update({merge.out: (merge.then, merge.orelse) for merge in node.merges})
    return found


def _origins(name: str, sources: dict[str, tuple[Node | str, ...]], seen: set[str]) -> Iterator[Node]:
    if name in seen:
        return
    seen.add(name)
    for source in sources.get(name, ()):
        if isinstance(source, str):
            yield from _origins(source, sources, seen)
        else:
            yield source
