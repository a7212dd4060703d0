"""A local program as readable Python: what one instance of a fragment does, with sends and receives as calls.

In: the LocalProgram that runs, and the placed graph it comes from. Out: the source of one function. Components are
written as objects that keep their state, and the counters of their random numbers, to themselves. Running the
functions of all fragments together makes the calls of the loop, in its order.
"""

import ast
from collections.abc import Iterator

from msrl.ir.graph import Call, Flush, For, If, Node, Pure, Recv, Send, Stretch, While
from msrl.ir.placed import LocalProgram, PlacedGraph
from msrl.ir.variables import Variables


def show(program: LocalProgram, placed: PlacedGraph, instances: int = 1) -> str:
    return _Writer(program, placed).source(instances)


class _Writer:
    def __init__(self, program: LocalProgram, placed: PlacedGraph):
        self.program, self.moves = program, {move.id: move for move in placed.moves}
        self.variables = Variables(program, placed.graph)

    def source(self, instances: int) -> str:
        fragment = self.program.fragment
        parts = "agents" if fragment.axis == "agent" else "environments"
        notes = [f"one of {instances}, each with its part of the {parts}"] if instances > 1 else []
        notes += ["its shards run as one batch"] if self.program.batched and fragment.axis else []
        which = f"  # {'; '.join(notes)}" if notes else ""
        lines = [f"def {fragment.name.replace('-', '_')}_fragment():{which}",
                 f'    """{", ".join(fragment.components)}"""']
        return "\n".join([*lines, *self.indented(self.program.nodes)]) + "\n"

    def indented(self, nodes: tuple[Node, ...], *more: str) -> Iterator[str]:
        """A block, with lines to write at its end."""
        lines = [*(line for node in nodes for line in self.node(node)), *more]
        yield from (f"    {line}" for line in lines or ["pass"])

    def node(self, node: Node) -> Iterator[str]:
        hidden, inlined = self.variables.hidden, self.variables.inlined
        match node:
            case Pure() if node.out not in hidden and node.out not in inlined:
                yield f"{self.variables.variable(node.out)} = {self.expression(node)}"
            case Call():
                yield self.call(node)
            case Send():
                move = self.moves[node.move]
                verb = "hold" if node.held else "send"
                yield f'{verb}({self.read(node.value)}, to="{move.target}", by="{move.kind}")'
            case Flush():
                yield f'flush(to="{node.target}")'
            case Stretch():
                if lines := [line for inner in node.nodes for line in self.node(inner)]:
                    yield "with compiled:"
                    yield from (f"    {line}" for line in lines)
            case Recv():
                move, variable = self.moves[node.move], self.variables.variable(node.out)
                yield f'{variable} = receive("{variable}", source="{move.source}", by="{move.kind}")'
            case For() | While():
                yield from self.loop(node)
            case If():
                then = self.copies((merge.out, merge.then) for merge in node.merges)
                orelse = self.copies((merge.out, merge.orelse) for merge in node.merges)
                yield f"if {self.read(node.condition)}:"
                yield from self.indented(node.then, *then)
                if node.orelse or orelse:
                    yield "else:"
                    yield from self.indented(node.orelse, *orelse)

    def call(self, node: Call) -> str:
        hidden = self.variables.hidden
        left = [self.variables.variable(name) for name in (*((node.out,) if node.out else ()), *node.writes)
                if name not in hidden]
        given = [self.read(name) for name in (*(r for r in node.reads if r not in hidden), *node.args)]
        given += [f"{field}={self.read(value)}" for field, value in node.kwargs]
        done = f"{node.component}.{node.method}({', '.join(given)})"
        return f"{', '.join(left)} = {done}" if left else done

    def loop(self, node: For | While) -> Iterator[str]:
        yield from self.copies((c.phi, c.init) for c in node.carries if c.phi and c.init)
        again = self.copies((c.phi, c.next) for c in node.carries if c.phi)
        if isinstance(node, For):
            start, stop, step = (self.read(b) if isinstance(b, str) else str(b)
                                 for b in (node.start, node.stop, node.step))
            bounds = [stop] if (start, step) == ("0", "1") else [start, stop] if step == "1" else [start, stop, step]
            yield f"for {self.variables.variable(node.index)} in range({', '.join(bounds)}):"
            yield from self.indented(node.body, *again)
        elif not any(line for inner in node.test for line in self.node(inner)):
            yield f"while {self.read(node.condition)}:"
            yield from self.indented(node.body, *again)
        else:
            yield "while True:"
            yield from self.indented(node.test, f"if not {self.read(node.condition)}:", "    break")
            yield from self.indented(node.body, *again)
        yield from self.copies((c.out, c.phi or c.next) for c in node.carries)

    def copies(self, pairs: Iterator[tuple[str, str]]) -> list[str]:
        """One assignment for all, since what one name is given may be another's old value."""
        kept = [(self.variables.variable(to), self.read(value)) for to, value in pairs
                if to not in self.variables.hidden]
        kept = [pair for pair in kept if pair[0] != pair[1]]
        return [f"{', '.join(to for to, _ in kept)} = {', '.join(value for _, value in kept)}"] if kept else []

    def read(self, name: str) -> str:
        return self.expression(self.variables.pures[name]) if name in self.variables.inlined else \
            self.variables.variable(name)

    def expression(self, node: Pure) -> str:
        """The user's expression, with what its names stand for here."""
        given = {inner: self.read(value) for inner, value in node.inputs}
        if all(inner == value for inner, value in given.items()):
            return node.expr
        tree = _Put({inner: ast.parse(value, mode="eval").body for inner, value in given.items()})
        return ast.unparse(tree.visit(ast.parse(node.expr, mode="eval")))


class _Put(ast.NodeTransformer):
    def __init__(self, given: dict[str, ast.expr]):
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node)


