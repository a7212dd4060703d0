"""Which values are divided among shards, and on which dimension: a graph goes in, {name: dimension} comes out.

A name is *sharded* if it has one part per shard of the environments, or of the agents, concatenated on that dimension;
all others are *whole*. Values mean the same either way: this says only what a fragment with some of the shards can
compute by itself. Ops declare what they make: a step has environments on dimension 0 and agents on 1, a rollout has
time before both. An expression stays sharded if it is elementwise, and its other inputs are constants; any other
(`step.reward.mean()`) is about the whole value. A loop's name is sharded if what a pass hands on is.
"""

import ast
from collections.abc import Container, Iterator, Mapping
from functools import cache

from msrl.ir.graph import Call, For, Graph, If, Node, Pure, While

# Exact for each element whatever its neighbours: the same bits for a part as for the whole.
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert, ast.USub, ast.UAdd)
_FUNCTIONS = {"where", "maximum", "minimum", "clip", "abs", "logical_and", "logical_or", "logical_not", "astype"}
_STRUCTURE = (ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.Dict, ast.BinOp, ast.UnaryOp,
              ast.Compare, ast.cmpop, ast.keyword)


def find_axes(graph: Graph, buffers: Mapping[str, str], whole: Container[str] = ()) -> dict[str, int]:
    """By environment. `buffers`: those that have one store per `shard`, and those that have one per `learner`. `whole`:
    names that are known not to be divided."""
    return _fixed(_Finder(graph, buffers, whole))


def find_agent_axes(graph: Graph, buffers: Mapping[str, str]) -> dict[str, int]:
    """By agent, if there are several. Parts of a value (`step.done`) may have no agents; shapes will tell."""
    return _fixed(_AgentFinder(graph, buffers))


def _fixed(finder: "_Finder") -> dict[str, int]:
    while True:
        before = dict(finder.found)
        finder.block(finder.graph.nodes)
        if finder.found == before:
            return {name: dim for name, dim in finder.found.items() if dim is not None}


def constants(graph: Graph) -> frozenset[str]:
    """The names that are the same numbers everywhere: loop indices, literals, and what is made of them alone."""
    finder = _Finder(graph, {})
    finder.block(graph.nodes)
    return frozenset(finder.constant)


class _Finder:
    """Names not in `found` are not known yet: loops are gone through until nothing changes."""

    def __init__(self, graph: Graph, buffers: Mapping[str, str], whole: Container[str] = ()):
        self.graph, self.buffers, self.whole = graph, buffers, whole
        self.found: dict[str, int | None] = {}
        self.constant: set[str] = set()  # the same on every shard and no array: indices, literals, what is made of them

    def block(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case Call():
                    self.call(node)
                case Pure():
                    self.found[node.out] = self.pure(node)
                case For():
                    self.constant.add(node.index)
                    self.found[node.index] = None
                    self.loop(node, node.body)
                case While():
                    self.loop(node, (*node.test, *node.body))
                case If():
                    self.block(node.then)
                    self.block(node.orelse)
                    for merge in node.merges:
                        sides = self.found.get(merge.then), self.found.get(merge.orelse)
                        same = sides[0] == sides[1] and merge.out not in self.whole
                        self.found[merge.out] = sides[0] if same else None

    def call(self, node: Call) -> None:
        dim: int | None = None
        if node.component in ("env", "actor"):
            dim = 0
        elif node.component in self.buffers:
            # Rollouts have time first; what several learners sample stands one after the other, as do their answers.
            dim = 1 if self.buffers[node.component] == "shard" and node.method == "sample" else 0
        if node.out:
            self.found[node.out] = dim
        # States are per shard with their component; their "dimension" is the shard itself.
        sharded = node.component == "env" or node.component in self.buffers
        self.found.update({name: 0 if sharded and name.startswith("$") else None for name in node.writes})

    def pure(self, node: Pure) -> int | None:
        values = [value for _, value in node.inputs]
        if all(value in self.constant for value in values):
            if values or _literal(node.expr):
                self.constant.add(node.out)
            return None
        dims = {self.found[value] for value in values if value not in self.constant and value in self.found}
        divided = len(dims) == 1 and node.out not in self.whole and self.elementwise(node.expr)
        return dims.pop() if divided else None

    def elementwise(self, expr: str) -> bool:
        return elementwise(expr)

    def loop(self, node: For | While, body: tuple[Node, ...]) -> None:
        for carry in node.carries:
            if carry.phi:
                ends = [self.found[name] for name in (carry.next, carry.init) if name in self.found]
                # What is handed on decides: an initial whole value can be divided.
                self.found[carry.phi] = ends[0] if ends and carry.phi not in self.whole else None
        self.block(body)
        for carry in node.carries:
            self.found[carry.out] = self.found.get(carry.next) if carry.out not in self.whole else None


class _AgentFinder(_Finder):
    def call(self, node: Call) -> None:
        dim: int | None = None
        if node.component in ("env", "actor"):
            dim = 1
        elif self.graph.kind(node.component) == "buffer" and node.method == "sample":
            dim = 2 if self.buffers.get(node.component) == "shard" else 1
        if node.out:
            self.found[node.out] = dim
        self.found.update(dict.fromkeys(node.writes))  # which agents' a learner's state is, its place says

    def elementwise(self, expr: str) -> bool:
        # An index that leaves environments alone may still choose among agents.
        return elementwise(expr) and all(
            isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
            for node in ast.walk(ast.parse(expr, mode="eval")) if isinstance(node, ast.Subscript))


def _literal(expr: str) -> bool:
    try:
        return isinstance(ast.literal_eval(expr), (bool, int, float))
    except ValueError:
        return False


@cache
def elementwise(expr: str) -> bool:
    """Does the expression treat each row of its inputs alone, and give the same bits for some rows as for all?"""
    return all(_allowed(node) for node in ast.walk(ast.parse(expr, mode="eval")))


def owners(expr: str) -> Iterator[str]:
    """Whose the functions are that an elementwise expression calls: `jnp` of `jnp.where(...)`."""
    for node in ast.walk(ast.parse(expr, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value)


def ellipsis_indices(expr: str) -> Iterator[tuple[str, int]]:
    """What is indexed from its end, like `x[..., 0]`, and how many of its dimensions that is about."""
    for node in ast.walk(ast.parse(expr, mode="eval")):
        match node:
            case ast.Subscript(value=value, slice=ast.Tuple(elts=[ast.Constant(value=first), *rest])) if first is ...:
                yield ast.unparse(value), sum(not (isinstance(each, ast.Constant) and each.value is None)
                                              for each in rest)


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name not in ("T", "mT", "at", "size", "shape", "ndim")
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _FUNCTIONS
        case ast.Subscript(slice=index):
            first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
            full = isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None
            return full or (isinstance(first, ast.Constant) and (first.value is ... or isinstance(first.value, str)))
        case ast.Slice():
            return True
        case ast.operator() | ast.unaryop():
            return isinstance(node, _OPERATORS)
    return isinstance(node, _STRUCTURE)
