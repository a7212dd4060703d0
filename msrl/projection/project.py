"""PlacedGraph → one LocalProgram per fragment: endpoint projection.

Every fragment keeps the shape of the loop and of its own part of it. Where a name is defined that others need, its home
sends it; at the same place of their programs, the others receive it. All programs thus do their sends and receives in
one order, the order of the loop, and cannot wait for one another in a circle.
"""

from collections.abc import Mapping
from dataclasses import replace

from msrl.ir.axes import constants
from msrl.ir.graph import (
    Call,
    For,
    If,
    Node,
    Pure,
    Recv,
    Send,
    While,
    calls,
    definitions,
    is_resource,
)
from msrl.ir.placed import (
    PARAMETERS,
    LocalProgram,
    Move,
    PlacedGraph,
    part_name,
    restrict,
    wanted_at_end,
    wanted_whole,
    whole_name,
)


def project(placed: PlacedGraph) -> dict[str, LocalProgram]:
    return {fragment.name: _Projection(placed, fragment.name).program() for fragment in placed.fragments}


class _Projection:
    def __init__(self, placed: PlacedGraph, fragment: str):
        self.placed, self.fragment = placed, fragment
        self.of = {c: f.name for f in placed.fragments for c in f.components}
        self.computed = {name for name, where in placed.computed if fragment in where}
        self.axes, by_env = placed.divided(fragment), dict(placed.axes)
        self.constants = constants(placed.graph)
        self.axis = placed.fragment(fragment).axis
        self.replicated = self.axis is not None
        self.sees_all: Mapping[str, tuple[int, ...]] = placed.agents.sees_all if self.axis == "agent" else {}
        self.divided = {"actor", "learner"} if self.axis == "agent" else {
            call.component for call in calls(placed.graph.nodes) if call.component != "learner"
            and any(name in by_env for name in definitions(call))}
        self.cut: list[tuple[str, str, int | None]] = []  # as in LocalProgram.parts
        self.sent: dict[str, list[Move]] = {}
        self.received: dict[str, Move] = {}
        self.gathered: dict[str, Move] = {}
        for move in placed.moves:
            if move.agrees:
                continue
            if move.source == move.target:
                if move.source == fragment and move.kind == "allgather":
                    self.gathered[move.value] = move
                continue
            if move.source == fragment:
                self.sent.setdefault(move.value, []).append(move)
            if move.target == fragment:
                self.received[move.value] = move

    def program(self) -> LocalProgram:
        results = tuple(name for name in self.placed.graph.results if name in self.computed)
        nodes = self.block(self.placed.graph.nodes)
        return LocalProgram(self.placed.fragment(self.fragment), nodes, results, tuple(self.cut))

    def block(self, nodes: tuple[Node, ...], whole: tuple[str, ...] = ()) -> tuple[Node, ...]:
        """`whole`: the names of which the block's reader wants the whole."""
        kept: list[Node] = []
        here: set[str] = set()
        for node in nodes:
            mine = self.mine(node)
            if mine is not None:
                if self.replicated:
                    share_out = self.shared_by_agent if self.axis == "agent" else self.shared_out
                    mine = share_out(self.made_whole(mine, kept, here), kept)
                kept.append(mine)
            for name in definitions(node):
                kept.extend(Send(move.id, name, move.span) for move in self.sent.get(name, ()))
                if name in self.received:
                    kept.append(Recv(name, self.received[name].id, node.span))
        self.gather(whole, kept, here)
        return tuple(kept)

    def gather(self, names: tuple[str, ...], before: list[Node], here: set[str]) -> dict[str, str]:
        """Lets every instance have the whole of these names, of which it has a part: part → whole."""
        for name in names:
            if name in self.gathered and name not in here:
                move = self.gathered[name]
                before += [Send(move.id, name, move.span), Recv(whole_name(name), move.id, move.span)]
                here.add(name)
        return {name: whole_name(name) for name in names if name in self.gathered}

    def made_whole(self, node: Node, before: list[Node], here: set[str]) -> Node:
        to = self.gather(wanted_whole(node, self.axes, self.divided, self.sees_all), before, here)
        ends = [{name: whole_name(name) for name in names if name in self.gathered}
                for names in wanted_at_end(node, self.axes)]
        match node:
            case Call():
                seen = self.sees_all.get(node.component)  # the same name may be seen whole here, and in part there
                return replace(node, args=tuple(to.get(name, name) if seen is None or at in seen else name
                                                for at, name in enumerate(node.args)),
                               kwargs=tuple((field, to.get(name, name)) for field, name in node.kwargs))
            case Pure():
                return replace(node, inputs=tuple((local, to.get(name, name)) for local, name in node.inputs))
            case For() | While():
                return replace(node, carries=tuple(
                    c if c.out in self.axes else replace(c, init=to.get(c.init or "", c.init),
                                                         next=ends[0].get(c.next, c.next)) for c in node.carries))
            case If():
                return replace(node, merges=tuple(
                    m if m.out in self.axes else replace(m, then=ends[0].get(m.then, m.then),
                                                         orelse=ends[1].get(m.orelse, m.orelse)) for m in node.merges))
        return node

    def shared_out(self, node: Node, before: list[Node]) -> Node:
        """A whole value that enters what is divided (a loop's name, an op per shard) is cut to the instance's part. An
        environment's actions and a record's fields have one row per environment; of other arguments, shapes say which
        leaves have rows, so they are cut by their name."""

        def part(name: str, dim: int | None = None) -> str:
            out = part_name(len(self.cut) + 1, name)
            self.cut.append((out, name, dim))
            expr = f"part_(whole, {(name if dim is None else dim)!r})"
            before.append(Pure(out, expr, (("whole", name),), "train", node.span))
            return out

        match node:
            case Call(component=component) if component in self.divided or component == "learner":
                dim = 0 if component == "env" or node.method == "insert" else None
                whole = {name: part(name, dim) for name in dict.fromkeys((*node.args, *(v for _, v in node.kwargs)))
                         if name not in self.axes and name not in self.constants}
                return replace(node, args=tuple(whole.get(name, name) for name in node.args),
                               kwargs=tuple((field, whole.get(name, name)) for field, name in node.kwargs))
            case For() | While():
                carries = tuple(replace(c, init=part(c.init, self.axes[c.phi]))
                                if c.phi and c.init and not is_resource(c.phi) and c.phi in self.axes
                                and c.init not in self.axes else c for c in node.carries)
                return replace(node, carries=carries)
        return node

    def shared_by_agent(self, node: Node, before: list[Node]) -> Node:
        """The same where agents are divided: of what it was sent whole, an instance takes what belongs to its agents,
        unless an actor or learner sees all. Shapes say where agents are in it, so it is cut by a name."""

        def part(name: str, like: str) -> str:
            out = part_name(len(self.cut) + 1, like)
            self.cut.append((out, name, self.axes.get(like, names.get(like, 0))))
            before.append(Pure(out, f"agents_part_(whole, {like!r})", (("whole", name),), "train", node.span))
            return out

        names = self.placed.agents.names
        match node:
            case Call(component=component) if component in self.divided:
                seen = self.sees_all.get(component, ())
                whole = {name: part(name, name) for name in dict.fromkeys(
                    name for at, name in enumerate(node.args) if at not in seen)
                    if name in names and name not in self.axes}
                return replace(node, args=tuple(whole.get(name, name) if at not in seen else name
                                                for at, name in enumerate(node.args)))
            case Pure(out=out) if out in self.axes:
                return replace(node, inputs=tuple(
                    (local, part(name, name) if name in names and name not in self.axes else name)
                    for local, name in node.inputs))
            case For() | While():
                return replace(node, carries=tuple(
                    replace(c, init=part(c.init, c.phi)) if c.phi and c.init and c.phi in self.axes
                    and c.init not in self.axes else c for c in node.carries))
        return node

    def mine(self, node: Node) -> Node | None:
        node, ends = restrict(node, self.computed), self.ends(node)
        match node:
            case Call():
                if (node.component, node.method, self.of.get(PARAMETERS)) == ("learner", "learn", self.fragment):
                    return Call(None, PARAMETERS, "serve", (), (), (), node.writes[:1], span=node.span)
                return node if self.of[node.component] == self.fragment else None
            case Pure():
                return node if node.out in self.computed else None
            case For():
                body = self.block(node.body, ends[0])
                return replace(node, body=body) if body or node.carries else None
            case While():
                body, test = self.block(node.body, ends[0]), self.block(node.test)
                return replace(node, body=body, test=test) if body or node.carries else None
            case If():
                then, orelse = self.block(node.then, ends[0]), self.block(node.orelse, ends[1])
                return replace(node, then=then, orelse=orelse) if then or orelse or node.merges else None
        return None

    def ends(self, node: Node) -> tuple[tuple[str, ...], ...]:
        return wanted_at_end(restrict(node, self.computed), self.axes) if self.replicated else ((), ())
