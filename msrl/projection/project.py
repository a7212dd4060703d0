"""PlacedGraph → one LocalProgram per fragment: endpoint projection.

Every fragment keeps the shape of the loop and of its own part of it. Where a name is defined that others need, its home
sends it; at the same place of their programs, the others receive it. All programs thus do their sends and receives in
one order, the order of the loop, and cannot wait for one another in a circle.
"""

from dataclasses import replace

from msrl.ir.axes import constants
from msrl.ir.graph import (
    Call,
    Carry,
    For,
    If,
    Merge,
    Node,
    Pure,
    Recv,
    Send,
    While,
    base,
    calls,
    definitions,
    is_resource,
)
from msrl.ir.placed import LocalProgram, Move, PlacedGraph


def project(placed: PlacedGraph) -> dict[str, LocalProgram]:
    return {fragment.name: _Projection(placed, fragment.name).program() for fragment in placed.fragments}


class _Projection:
    def __init__(self, placed: PlacedGraph, fragment: str):
        self.placed, self.fragment = placed, fragment
        self.of = {c: f.name for f in placed.fragments for c in f.components}
        self.computed = {name for name, where in placed.computed if fragment in where}
        self.axes = dict(placed.axes)
        self.constants = constants(placed.graph)
        self.replicated = placed.fragment(fragment).axis is not None
        self.divided = {call.component for call in calls(placed.graph.nodes)
                        if any(name in self.axes for name in definitions(call))}
        self.cut: list[str] = []
        self.sent: dict[str, list[Move]] = {}
        self.received: dict[str, Move] = {}
        for move in placed.moves:
            if move.source == fragment:
                self.sent.setdefault(move.value, []).append(move)
            if move.target == fragment:
                self.received[move.value] = move

    def program(self) -> LocalProgram:
        results = tuple(name for name in self.placed.graph.results if name in self.computed)
        return LocalProgram(self.placed.fragment(self.fragment), self.block(self.placed.graph.nodes), results)

    def block(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        kept: list[Node] = []
        for node in nodes:
            mine = self.mine(node)
            if mine is not None:
                if self.replicated:
                    mine = self.shared_out(mine, kept)
                kept.append(mine)
            for name in definitions(node):
                kept.extend(Send(move.id, name, move.span) for move in self.sent.get(name, ()))
                if name in self.received:
                    kept.append(Recv(name, self.received[name].id, node.span))
        return tuple(kept)

    def shared_out(self, node: Node, before: list[Node]) -> Node:
        """A whole value that enters what is divided (a loop's name, an op per shard) is cut to the instance's part."""

        def part(name: str, dim: int) -> str:
            out = f"{base(name)}_{dim}_part.{len(self.cut) + 1}"
            self.cut.append(out)
            before.append(Pure(out, f"part_(whole, {dim})", (("whole", name),), "train", node.span))
            return out

        match node:
            case Call(component=component) if component in self.divided:
                whole = {name: part(name, 0) for name in dict.fromkeys((*node.args, *(v for _, v in node.kwargs)))
                         if name not in self.axes and name not in self.constants}
                return replace(node, args=tuple(whole.get(name, name) for name in node.args),
                               kwargs=tuple((field, whole.get(name, name)) for field, name in node.kwargs))
            case For() | While():
                carries = tuple(replace(c, init=part(c.init, self.axes[c.phi]))
                                if c.phi and c.init and not is_resource(c.phi) and c.phi in self.axes
                                and c.init not in self.axes else c for c in node.carries)
                return replace(node, carries=carries)
        return node

    def mine(self, node: Node) -> Node | None:
        match node:
            case Call():
                return node if self.of[node.component] == self.fragment else None
            case Pure():
                return node if node.out in self.computed else None
            case For():
                body, carries = self.block(node.body), self.carries(node.carries)
                return replace(node, body=body, carries=carries) if body or carries else None
            case While():
                body, test, carries = self.block(node.body), self.block(node.test), self.carries(node.carries)
                return replace(node, body=body, test=test, carries=carries) if body or carries else None
            case If():
                then, orelse = self.block(node.then), self.block(node.orelse)
                merges: tuple[Merge, ...] = tuple(m for m in node.merges if m.out in self.computed)
                if not then and not orelse and not merges:
                    return None
                return replace(node, then=then, orelse=orelse, merges=merges)
        return None

    def carries(self, carries: tuple[Carry, ...]) -> tuple[Carry, ...]:
        return tuple(c for c in carries if c.phi in self.computed or c.out in self.computed)
