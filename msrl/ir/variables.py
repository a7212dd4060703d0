"""Which Python variable each name of a local program is written as.

Versions of one variable share its name wherever that says the same: `clash` follows what every variable holds, and
finds a name that would be read after another version has taken its place; `settle` tells such versions apart until
there is none. Component states and counters of random numbers are hidden, unless they move. Expressions that were
never given a name stand where they are used.
"""

import keyword
import re
from collections import Counter
from collections.abc import Iterable
from functools import reduce

from msrl.ir.graph import Call, For, Graph, If, Node, Pure, Recv, Send, Stretch, While, base, nexts, uses, walk
from msrl.ir.graph import definitions as made
from msrl.ir.placed import LocalProgram

_UNNAMED = ("t", "condition")  # what the front end calls values that have no variable
_VERBS = ("send", "hold", "flush", "receive", "compiled")  # what the functions call besides components
_SELECTION = re.compile(r"[\w.]+")


class Variables:
    def __init__(self, program: LocalProgram, graph: Graph):
        nodes = list(walk(program.nodes))
        moved = {node.value if isinstance(node, Send) else node.out for node in nodes if isinstance(node, (Send, Recv))}
        components = {name for name, _ in graph.components}
        self.hidden = {name for node in nodes for name in (*uses(node), *_defined(node))
                       if name.startswith("#") or (name.startswith("$") and base(name)[1:] in components)}
        self.hidden -= {name for name in self.hidden if base(name) in {base(each) for each in moved}}
        self.pures = {node.out: node for node in nodes if isinstance(node, Pure)}
        used = Counter(name for node in nodes for name in _used(node))
        self.inlined = {name for name, node in self.pures.items() if base(name) in _UNNAMED
                        and (used[name] == 1 or _SELECTION.fullmatch(node.expr))}
        self.apart: set[str] = set()
        self.makers = {name: node for node in walk(graph.nodes) for name in made(node)}
        self.stems = {name: self.stem(name) for node in walk(graph.nodes) for name in _defined(node)}
        self.taken = components | set(keyword.kwlist) | {"range", "instance", *_VERBS}
        while (found := clash(program.nodes, self)) is not None:
            self.resolve(found)

    def stem(self, name: str) -> str:
        """What to call it, versions aside: the user's variable, or what made it."""
        if base(name) == "t":
            match self.makers.get(name):
                case Call(component=component, method=method):
                    return f"{component}_{method}"
                case Pure(expr=expr) if _SELECTION.fullmatch(expr) and not expr[0].isdigit():
                    return expr.replace(".", "_")
        return base(name).lstrip("$#").replace(".", "_")

    def family(self, name: str) -> str:
        """The variable's name, versions aside."""
        stem = self.stems.get(name) or base(name)
        return f"{stem}_" if stem in self.taken else stem

    def variable(self, name: str) -> str:
        stem = self.family(name)
        return f"{stem}_{name.rpartition('.')[2]}" if stem in self.apart else stem

    def leaves(self, name: str) -> list[str]:
        """The names that are read where this one is written: itself, or what its expression is made of."""
        if name in self.hidden:
            return []
        if name in self.inlined:
            return [leaf for _, value in self.pures[name].inputs for leaf in self.leaves(value)]
        return [name]

    def resolve(self, found: tuple[str, str]) -> None:
        read, leaf = found
        if read in self.inlined:
            self.inlined.remove(read)
            return
        assert self.family(leaf) not in self.apart, f"{leaf} cannot be told apart"
        self.apart.add(self.family(leaf))


def _defined(node: Node) -> Iterable[str]:
    """All names that a node makes, at its head included."""
    yield from made(node)
    if isinstance(node, For):
        yield node.index
    if isinstance(node, (For, While)):
        yield from (carry.phi for carry in node.carries if carry.phi)


def _used(node: Node) -> Iterable[str]:
    """All names that a node reads, at the ends of its blocks included."""
    yield from uses(node)
    match node:
        case For() | While():
            yield from nexts(node)
            yield from (node.condition,) if isinstance(node, While) else ()
        case If():
            yield from (side for merge in node.merges for side in (merge.then, merge.orelse))


def clash(nodes: tuple[Node, ...], variables: Variables) -> tuple[str, str] | None:
    """(what is read, the name whose variable holds another then) of the first clash."""
    try:
        _Walk(variables).block(nodes)
    except _Clash as found:
        return found.read, found.leaf
    return None


class _Clash(Exception):
    def __init__(self, read: str, leaf: str):
        super().__init__()
        self.read, self.leaf = read, leaf


class _Walk:
    def __init__(self, variables: Variables):
        self.variables = variables
        self.holds: dict[str, str | None] = {}  # variable → the name whose value it has

    def read(self, *names: str) -> None:
        for name in names:
            for leaf in self.variables.leaves(name):
                if self.holds.get(self.variables.variable(leaf)) != leaf:
                    raise _Clash(name, leaf)

    def define(self, *names: str) -> None:
        for name in names:
            if name not in self.variables.hidden and name not in self.variables.inlined:
                self.holds[self.variables.variable(name)] = name

    def block(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            self.node(node)

    def node(self, node: Node) -> None:
        match node:
            case Pure():
                if node.out not in self.variables.inlined and node.out not in self.variables.hidden:
                    self.read(*uses(node))
                    self.define(node.out)
            case Call() | Send() | Recv():
                self.read(*uses(node))
                self.define(*made(node))
            case Stretch():
                self.block(node.nodes)
            case For() | While():
                self.loop(node)
            case If():
                self.read(node.condition)
                before, after = dict(self.holds), []
                for block, side in ((node.then, "then"), (node.orelse, "orelse")):
                    self.holds = dict(before)
                    self.block(block)
                    self.read(*(getattr(merge, side) for merge in node.merges))
                    self.define(*(merge.out for merge in node.merges))
                    after.append(self.holds)
                self.holds = _both(*after)

    def loop(self, node: For | While) -> None:
        phis = [carry.phi for carry in node.carries if carry.phi]
        self.read(*uses(node))
        self.define(*phis)
        ends = [self.test(node)]  # a loop may run no pass at all
        for _ in range(2):  # the second pass sees what the first has left
            if isinstance(node, For):
                self.define(node.index)
            self.block(node.body)
            self.read(*nexts(node))
            self.define(*phis)
            ends.append(self.test(node))
        late = [carry.next for carry in node.carries if not carry.phi]
        after, self.holds = self.holds, reduce(_both, ends)
        self.holds.update((variable, name) for variable, name in after.items() if name in late)
        self.read(*phis, *late)
        self.define(*(carry.out for carry in node.carries))

    def test(self, node: For | While) -> dict[str, str | None]:
        """What variables hold where the loop may end."""
        if isinstance(node, While):
            self.block(node.test)
            self.read(node.condition)
        return dict(self.holds)


def _both(one: dict[str, str | None], two: dict[str, str | None]) -> dict[str, str | None]:
    return {variable: name if two.get(variable) == name else None for variable, name in one.items()}


