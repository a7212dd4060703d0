"""The text form of a graph: `show` prints it, `parse` reads it back, and `parse(show(g)) == g`. `show_local` and
`parse_local` do the same for a local program, which is sent to workers in this form.

One line per node, blocks in braces; golden tests compare it. Spans are printed as `@file:line` and are not part of a
graph's equality. A local program's are printed whole, `@"file":line:column+width "text"`, because the worker that meets
an error in the user's line may not have the file.

    act.1 | #actor.act.3 = actor.act(obs.2) | $weights.1 #actor.act.2
    obs.4 = pure "step.obs" step=step.1 in train
    for i.1 in 0, 36, 1 {
      carry obs.2 = obs.1 next obs.4 out obs.5
"""

import json
import re
from collections.abc import Iterator
from typing import Literal

from msrl.errors import Span, VerifyError
from msrl.ir.graph import Call, Carry, Flush, For, Graph, If, Merge, Node, Pure, Recv, Send, Stretch, While
from msrl.ir.placed import Fragment, LocalProgram

Spans = Literal["none", "line", "whole"]


def show(graph: Graph, spans: bool = True) -> str:
    lines = [f"graph {graph.name} {{"]
    lines += [f"  component {name}: {kind}" for name, kind in graph.components]
    return _close(lines, graph.nodes, graph.results, "line" if spans else "none")


def show_local(program: LocalProgram) -> str:
    fragment = program.fragment
    head = " ".join([f"local {fragment.name}", *([f"over {fragment.axis}"] if fragment.axis else []),
                     *(["batched"] if program.batched else [])])
    lines = [f"{head} {{"]
    lines += [f"  component {name}" for name in fragment.components]
    return _close(lines, program.nodes, program.results, "whole")


def _close(lines: list[str], nodes: tuple[Node, ...], results: tuple[str, ...], spans: Spans) -> str:
    lines += _block(nodes, "  ", spans)
    lines += [f"  {' '.join(('results', *results))}", "}"] if results else ["}"]
    return "\n".join(lines) + "\n"


def _span(span: Span | None, spans: Spans) -> str:
    if span is None or spans == "none":
        return ""
    if spans == "line":
        return f" @{span.file}:{span.line}"
    return f" @{json.dumps(span.file)}:{span.line}:{span.column}+{span.width} {json.dumps(span.text)}"


def _block(nodes: tuple[Node, ...], indent: str, spans: Spans) -> Iterator[str]:
    inner = indent + "  "
    for node in nodes:
        at = _span(node.span, spans)
        match node:
            case Call():
                yield f"{indent}{_call(node)}{at}"
            case Pure():
                inputs = "".join(f" {name}={value}" for name, value in node.inputs)
                yield f"{indent}{node.out} = pure {json.dumps(node.expr)}{inputs} in {node.scope}{at}"
            case Send():
                yield f"{indent}{'hold' if node.held else 'send'} {node.value} by {node.move}{at}"
            case Recv():
                yield f"{indent}{node.out} = recv {node.move}{at}"
            case Flush():
                yield f"{indent}flush {node.target}{at}"
            case Stretch():
                yield f"{indent}{' '.join(('stretch', *node.outputs))} {{{at}"
                yield from _block(node.nodes, inner, spans)
                yield f"{indent}}}"
            case For():
                yield f"{indent}for {node.index} in {node.start}, {node.stop}, {node.step} {{{at}"
                yield from _carries(node.carries, inner)
                yield from _block(node.body, inner, spans)
                yield f"{indent}}}"
            case While():
                yield f"{indent}while {node.condition} {{{at}"
                yield from _carries(node.carries, inner)
                yield f"{inner}test {{"
                yield from _block(node.test, inner + "  ", spans)
                yield f"{inner}}}"
                yield from _block(node.body, inner, spans)
                yield f"{indent}}}"
            case If():
                yield f"{indent}if {node.condition} {{{at}"
                yield from _block(node.then, inner, spans)
                yield f"{indent}}} else {{"
                yield from _block(node.orelse, inner, spans)
                yield from (f"{inner}merge {m.out} = {m.then} or {m.orelse}" for m in node.merges)
                yield f"{indent}}}"


def _call(node: Call) -> str:
    left = [node.out] if node.out else []
    left += ["|", *node.writes] if node.writes else []
    args = ", ".join([*node.args, *(f"{field}={value}" for field, value in node.kwargs)])
    right = f"{node.component}.{node.method}({args})"
    reads = f" | {' '.join(node.reads)}" if node.reads else ""
    partition = f" [{' '.join(node.partition)}]" if node.partition else ""
    return f"{' '.join(left)}{' = ' if left else ''}{right}{reads}{partition}"


def _carries(carries: tuple[Carry, ...], indent: str) -> Iterator[str]:
    for c in carries:
        yield f"{indent}carry {c.phi or '-'} = {c.init or '-'} next {c.next} out {c.out}"


_STRING = r'"(?:[^"\\]|\\.)*"'
_SPAN = re.compile(rf" @({_STRING}):(\d+):(\d+)\+(\d+) ({_STRING})$")  # a quote inside a string is never bare
_PURE = re.compile(rf"(\S+) = pure ({_STRING})((?: \w+=\S+)*) in (\w+)$")
_CALL = re.compile(r"(?:(.*?) ?= )?([\w]+)\.(\w+)\((.*?)\)(?: \| ([^\[]*?))?(?: \[(.*)\])?$")
_SEND = re.compile(r"(send|hold) (\S+) by (\S+)")
_FLUSH = re.compile(r"flush (\S+)")
_STRETCH = re.compile(r"stretch((?: \S+)*) \{")
_RECV = re.compile(r"(\S+) = recv (\S+)")
_FOR = re.compile(r"for (\S+) in (\S+), (\S+), (\S+) \{$")
_CARRY = re.compile(r"carry (\S+) = (\S+) next (\S+) out (\S+)$")
_MERGE = re.compile(r"merge (\S+) = (\S+) or (\S+)$")


class _Reader:
    def __init__(self, text: str):
        numbered = enumerate(text.splitlines(), 1)
        self.lines = [(number, line.strip()) for number, line in numbered if line.strip()]
        self.at = 0
        self.number = 0  # of the line read last
        self.span: Span | None = None

    def line(self) -> str:
        """The line under the cursor, without its span, which is kept aside."""
        if self.at >= len(self.lines):
            raise VerifyError("The text of a graph ends too early.", why="A block is never closed.")
        self.number, line = self.lines[self.at]
        if whole := _SPAN.search(line):
            named, *numbers, quoted = whole.groups()
            row, column, width = map(int, numbers)
            self.span = Span(json.loads(named), row, column, width, json.loads(quoted))
            return line[:whole.start()]
        text, at, place = line.rpartition(" @")
        file, colon, number = place.rpartition(":")
        if at and colon and number.isdigit() and '"' not in place:
            self.span = Span(file, int(number), 1, 1, "")
            return text
        self.span = None
        return line

    def bad(self, line: str) -> VerifyError:
        return VerifyError(f"Line {self.number} of the text of a graph cannot be read: {line}", docs="docs/ir.md")

    def match(self, pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
        found = pattern.fullmatch(line)
        if not found:
            raise self.bad(line)
        return found.groups()

    def carries(self) -> tuple[Carry, ...]:
        found = []
        while (line := self.line()).startswith("carry "):
            phi, init, following, out = self.match(_CARRY, line)
            found.append(Carry(None if phi == "-" else phi, None if init == "-" else init, following, out))
            self.at += 1
        return tuple(found)

    def components(self, form: re.Pattern[str]) -> list[tuple[str, ...]]:
        """The lines after the head that name components."""
        self.at += 1
        found = []
        while (line := self.line()).startswith("component "):
            found.append(self.match(form, line))
            self.at += 1
        return found

    def rest(self) -> tuple[tuple[Node, ...], tuple[str, ...]]:
        """(nodes, results) up to the end of the text."""
        nodes = self.block("results ", "}")
        results: tuple[str, ...] = ()
        if (line := self.line()).startswith("results "):
            results = tuple(line.split()[1:])
            self.at += 1
        self.match(re.compile("}"), self.line())
        self.at += 1
        if self.at < len(self.lines):
            raise self.bad(self.line())
        return nodes, results

    def block(self, *ends: str) -> tuple[Node, ...]:
        """Nodes up to a line that starts with one of `ends`, which is left under the cursor."""
        nodes: list[Node] = []
        while not (line := self.line()).startswith(ends):
            nodes.append(self.node(line))
        return tuple(nodes)

    def node(self, line: str) -> Node:
        span = self.span
        if line.startswith("for "):
            index, *bounds = self.match(_FOR, line)
            start, stop, step = (int(b) if re.fullmatch(r"-?\d+", b) else b for b in bounds)
            self.at += 1
            carries, body = self.carries(), self.block("}")
            self.at += 1
            return For(index, start, stop, step, carries, body, span)
        if line.startswith("while "):
            condition = line.removeprefix("while ").removesuffix(" {")
            self.at += 1
            carries = self.carries()
            self.at += 1  # test {
            test = self.block("}")
            self.at += 1
            body = self.block("}")
            self.at += 1
            return While(carries, test, condition, body, span)
        if line.startswith("if "):
            condition = line.removeprefix("if ").removesuffix(" {")
            self.at += 1
            then = self.block("} else {")
            self.at += 1
            orelse = self.block("merge ", "}")
            merges = []
            while (line := self.line()).startswith("merge "):
                merges.append(Merge(*self.match(_MERGE, line)))
                self.at += 1
            self.at += 1
            return If(condition, then, orelse, tuple(merges), span)
        self.at += 1
        if found := _STRETCH.fullmatch(line):
            nodes = self.block("}")
            self.at += 1
            return Stretch(tuple(found[1].split()), nodes, span)
        if found := _SEND.fullmatch(line):
            return Send(found[3], found[2], span, held=found[1] == "hold")
        if found := _FLUSH.fullmatch(line):
            return Flush(found[1], span)
        if found := _RECV.fullmatch(line):
            return Recv(found[1], found[2], span)
        if found := _PURE.fullmatch(line):
            out, expr, inputs, scope = found.groups()
            return Pure(out, json.loads(expr), tuple(map(_pair, inputs.split())), scope, span)
        left, component, method, inside, reads, partition = self.match(_CALL, line)
        out, _, writes = (left or "").partition("|")
        items = [item for item in inside.split(", ") if item]
        kwargs = tuple(_pair(item) for item in items if "=" in item)
        return Call(out.strip() or None, component, method, tuple(i for i in items if "=" not in i), kwargs,
                    tuple((reads or "").split()), tuple(writes.split()), tuple((partition or "").split()), span)


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value


def parse(text: str) -> Graph:
    reader = _Reader(text)
    name, = reader.match(re.compile(r"graph (\S+) \{"), reader.line())
    components = [(part, kind) for part, kind in reader.components(re.compile(r"component (\S+): (\S+)"))]
    nodes, results = reader.rest()
    return Graph(name, tuple(components), nodes, results)


def parse_local(text: str) -> LocalProgram:
    reader = _Reader(text)
    name, axis, batched = reader.match(re.compile(r"local (\S+)(?: over (\S+))?( batched)? \{"), reader.line())
    components = [part for part, in reader.components(re.compile(r"component (\S+)"))]
    nodes, results = reader.rest()
    return LocalProgram(Fragment(name, tuple(components), axis), nodes, results,  # type: ignore[arg-type]
                        batched=bool(batched))
