"""Graph in, graph out: drops what nobody needs.

A carry whose value never changes is replaced by its initial value; a pure expression, carry or merge that no op and no
result depends on is removed, and so is a loop or branch that is left empty. Ops stay: each has an effect.
"""

from dataclasses import replace
from typing import TypeVar

from msrl.ir.graph import (
    Call,
    Carry,
    Flush,
    For,
    Graph,
    If,
    Node,
    Pure,
    Recv,
    Send,
    Stretch,
    While,
    free,
    is_resource,
    nexts,
    uses,
    walk,
)

NodeT = TypeVar("NodeT", bound=Node)
Loop = TypeVar("Loop", bound=For | While)


def simplify(graph: Graph) -> Graph:
    nodes, rename = _unchanged(graph.nodes)
    results = tuple(rename.get(name, name) for name in graph.results)
    graph = replace(graph, nodes=_begun_inside(nodes), results=results)
    return replace(graph, nodes=_prune(graph.nodes, _needed(graph)))


def _unchanged(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], dict[str, str]]:
    """Removes carries with next = phi and merges with equal sides; also returns what to call the names they defined.

    Inner blocks come first: an outer carry is unchanged if the inner one is.
    """
    done: list[Node] = []
    rename: dict[str, str] = {}
    for node in nodes:
        node = substitute_inside(substitute(node, rename), rename)
        match node:
            case For() | While():
                node = _unchanged_carries(node, rename)
            case If():
                node = _unchanged_merges(node, rename)
        done.append(node)
    return tuple(done), rename


def _unchanged_carries(node: Loop, rename: dict[str, str]) -> Loop:
    body, inner = _unchanged(node.body)
    # The renamed names may be a carry's `next`, or be read by the test.
    node = replace(substitute_inside(replace(node, body=()), inner), body=body)
    still = {carry.phi: carry.init for carry in node.carries if carry.phi and carry.init and carry.phi == carry.next}
    rename.update({carry.out: carry.init for carry in node.carries if carry.phi in still and carry.init})
    node = replace(node, carries=tuple(carry for carry in node.carries if carry.phi not in still))
    return substitute_inside(node, still)


def _unchanged_merges(node: If, rename: dict[str, str]) -> If:
    then, in_then = _unchanged(node.then)
    orelse, in_orelse = _unchanged(node.orelse)
    merges = [replace(m, then=in_then.get(m.then, m.then), orelse=in_orelse.get(m.orelse, m.orelse))
              for m in node.merges]
    rename.update({m.out: m.then for m in merges if m.then == m.orelse})
    return replace(node, then=then, orelse=orelse, merges=tuple(m for m in merges if m.then != m.orelse))


def _begun_inside(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Cuts a carry off from what was before the loop, where the loop surely runs and never reads it: `step = None` in
    front of a loop that makes `step` is then no value that changes its form."""
    done: list[Node] = []
    for node in nodes:
        match node:
            case For():
                node = replace(node, body=_begun_inside(node.body))
                read = free(node.body, nexts(node))
                node = replace(node, carries=tuple(
                    replace(carry, phi=None, init=None)
                    if node.trips and carry.phi and not is_resource(carry.phi) and carry.phi not in read else carry
                    for carry in node.carries))
            case While():
                node = replace(node, body=_begun_inside(node.body))
            case If():
                node = replace(node, then=_begun_inside(node.then), orelse=_begun_inside(node.orelse))
        done.append(node)
    return tuple(done)


def substitute(node: Node, names: dict[str, str]) -> Node:
    """The node with the names it itself reads replaced; its blocks are left alone."""

    def new(name: str) -> str:
        return names.get(name, name)

    match node:
        case Call():
            return replace(node, args=tuple(map(new, node.args)), reads=tuple(map(new, node.reads)),
                           kwargs=tuple((field, new(value)) for field, value in node.kwargs))
        case Pure():
            return replace(node, inputs=tuple((name, new(value)) for name, value in node.inputs))
        case For():
            start, stop, step = (new(b) if isinstance(b, str) else b for b in (node.start, node.stop, node.step))
            return replace(node, start=start, stop=stop, step=step, carries=_inits(node.carries, names))
        case While():
            return replace(node, carries=_inits(node.carries, names))
        case If():
            return replace(node, condition=new(node.condition))
        case Send():
            return replace(node, value=new(node.value))
        case Recv() | Flush() | Stretch():
            return node


def _inits(carries: tuple[Carry, ...], names: dict[str, str]) -> tuple[Carry, ...]:
    return tuple(replace(carry, init=names.get(carry.init, carry.init) if carry.init else None) for carry in carries)


def substitute_inside(node: NodeT, names: dict[str, str]) -> NodeT:
    """The node with names replaced in its blocks, at every depth."""

    def new(name: str) -> str:
        return names.get(name, name)

    def block(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(substitute_inside(substitute(inner, names), names) for inner in nodes)

    match node:
        case For():
            return replace(node, carries=_nexts(node.carries, names), body=block(node.body))
        case While():
            return replace(node, carries=_nexts(node.carries, names), body=block(node.body), test=block(node.test),
                           condition=new(node.condition))
        case If():
            merges = tuple(replace(merge, then=new(merge.then), orelse=new(merge.orelse)) for merge in node.merges)
            return replace(node, then=block(node.then), orelse=block(node.orelse), merges=merges)
    return node


def _nexts(carries: tuple[Carry, ...], names: dict[str, str]) -> tuple[Carry, ...]:
    return tuple(replace(carry, next=names.get(carry.next, carry.next)) for carry in carries)


def _needed(graph: Graph) -> set[str]:
    """Marks from ops and results backwards until nothing is added."""
    needed = set(graph.results)
    while True:
        before = len(needed)
        _mark(graph.nodes, needed)
        if len(needed) == before:
            return needed


def _mark(nodes: tuple[Node, ...], needed: set[str]) -> None:
    for node in reversed(nodes):
        match node:
            case Call():
                needed.update(uses(node))
            case Pure():
                if node.out in needed:
                    needed.update(uses(node))
            case For() | While():
                for carry in node.carries:
                    if carry.out in needed or carry.phi in needed:
                        needed.update(name for name in (carry.out, carry.phi, carry.init, carry.next) if name)
                if isinstance(node, For) and (_acts(node) or _live(node.carries, needed)):
                    needed.update(bound for bound in (node.start, node.stop, node.step) if isinstance(bound, str))
                if isinstance(node, While):
                    needed.add(node.condition)
                    _mark(node.test, needed)
                _mark(node.body, needed)
            case If():
                live = [merge for merge in node.merges if merge.out in needed]
                for merge in live:
                    needed.update((merge.then, merge.orelse))
                if live or _acts(node):
                    needed.add(node.condition)
                _mark(node.then, needed)
                _mark(node.orelse, needed)


def _acts(node: Node) -> bool:
    """Would something be missed without the node, whatever becomes of its values? A `while` may run for ever."""
    return any(isinstance(inner, (Call, While)) for inner in walk((node,)))


def _prune(nodes: tuple[Node, ...], needed: set[str]) -> tuple[Node, ...]:
    kept: list[Node] = []
    for node in nodes:
        match node:
            case Pure() if node.out not in needed:
                continue
            case Call() if node.out and node.out not in needed:
                node = replace(node, out=None)
            case For():
                node = replace(node, carries=_live(node.carries, needed), body=_prune(node.body, needed))
                if not node.body and not node.carries:
                    continue
            case While():
                node = replace(node, carries=_live(node.carries, needed), test=_prune(node.test, needed),
                               body=_prune(node.body, needed))
            case If():
                node = replace(node, then=_prune(node.then, needed), orelse=_prune(node.orelse, needed),
                               merges=tuple(m for m in node.merges if m.out in needed))
                if not node.then and not node.orelse and not node.merges:
                    continue
        kept.append(node)
    return tuple(kept)


def _live(carries: tuple[Carry, ...], needed: set[str]) -> tuple[Carry, ...]:
    return tuple(carry for carry in carries if carry.out in needed or carry.phi in needed)
