"""Random well-formed graphs, and a machine of whole numbers that runs them.

The strategy writes a graph node by node and keeps track of what is in scope, as lowering does: so every graph it makes
satisfies `verify`. Values are whole numbers, and every `while` ends.
"""

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from msrl.errors import Span
from msrl.ir.graph import Call, Carry, For, Graph, If, Merge, Node, Pure, While
from msrl.ir.interp import Host

COMPONENTS = (("env", "env"), ("learner", "learner"), ("results", "own"))
BASES = ("obs", "act", "merge", "results", "x_1", "carry", "größe")
PLAIN = ("a + b", "a * 3 - b", "a if a > b else b", "(a, b)[0]", 'len("a @ b") + a', 'a + len("} else {")', "-a")


@dataclass
class _Writer:
    draw: Any
    versions: dict[str, int] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    newest: dict[str, str] = field(default_factory=dict)
    room: int = 24  # nodes that may still be written

    def fresh(self, base: str) -> str:
        self.versions[base] = self.versions.get(base, 0) + 1
        return f"{base}.{self.versions[base]}"

    def some(self) -> str:
        return self.draw(st.sampled_from(self.values))

    def base(self) -> str:
        return self.draw(st.sampled_from(BASES))

    def span(self) -> Span | None:
        return self.draw(st.sampled_from((None, Span("algo/ppo.py", 12, 1, 1, ""))))

    def define(self, base: str) -> str:
        self.values.append(self.fresh(base))
        return self.values[-1]

    # -- nodes -------------------------------------------------------------------------------------------------------

    def block(self, depth: int) -> list[Node]:
        nodes: list[Node] = []
        for _ in range(self.draw(st.integers(0, 4))):
            kinds = ["pure", "call"] + (["for", "while", "if"] if depth else [])
            if self.room > 0:
                self.room -= 1
                nodes += getattr(self, self.draw(st.sampled_from(kinds)))(depth)
        return nodes

    def pure(self, depth: int) -> list[Node]:
        if not self.values or self.draw(st.booleans()):
            number = str(self.draw(st.integers(-3, 9)))
            return [Pure(self.define(self.base()), number, (), "train", self.span())]
        inputs = (("a", self.some()), ("b", self.some()))
        expr = self.draw(st.sampled_from(PLAIN))
        return [Pure(self.define(self.base()), expr, inputs, "train", self.span())]

    def call(self, depth: int) -> list[Node]:
        component, _ = self.draw(st.sampled_from(COMPONENTS))
        touched = self.draw(st.lists(st.sampled_from(sorted(self.newest)), unique=True, max_size=2))
        reads = tuple(self.newest[name] for name in touched)
        args = tuple(self.draw(st.lists(st.sampled_from(self.values), max_size=2))) if self.values else ()
        kwargs = tuple((name, self.some()) for name in self.draw(
            st.lists(st.sampled_from(("obs", "reward")), unique=True))) if self.values else ()
        for name in touched:
            self.newest[name] = self.fresh(name)
        writes = tuple(self.newest[name] for name in touched)
        out = self.define(self.base()) if self.draw(st.booleans()) else None
        partition = self.draw(st.sampled_from(((), ("together.1",), ("together.1", "apart.2"))))
        return [Call(out, component, self.draw(st.sampled_from(("step", "learn"))), args, kwargs, reads, writes,
                     partition, self.span())]

    def constant(self, value: int) -> Pure:
        return Pure(self.define("n"), str(value), (), "train")

    def carried(self) -> tuple[dict[str, tuple[str, str]], list[str]]:
        """Opens a loop: the phis of all resources and of some values, and what was in scope outside."""
        outside = list(self.values)
        phis = {}
        chosen = self.draw(st.lists(st.sampled_from(outside), unique=True, max_size=2)) if outside else []
        for init in chosen:
            phi = self.define("v")
            phis[phi] = (phi, init)
        for name, init in self.newest.items():
            phis[name] = (self.fresh(name), init)
            self.newest[name] = phis[name][0]
        return phis, outside

    def close(self, phis: dict[str, tuple[str, str]], outside: list[str]) -> tuple[Carry, ...]:
        carries = []
        for name, (phi, init) in phis.items():
            if name in self.newest:
                out = self.fresh(name)
                carries.append(Carry(phi, init, self.newest[name], out))
                self.newest[name] = out
            else:
                following = self.some()
                out = self.fresh("v")
                carries.append(Carry(phi, init, following, out))
                outside.append(out)
        return tuple(carries)

    def for_(self, depth: int) -> list[Node]:
        before: list[Node] = []
        start, step = self.draw(st.integers(-2, 2)), self.draw(st.sampled_from((1, 2, -1)))
        stop: int | str = start + step * self.draw(st.integers(1, 3))
        sure = self.draw(st.booleans())
        if not sure:
            before.append(self.constant(self.draw(st.integers(-2, 3))))
            stop = self.values[-1]
        phis, outside = self.carried()
        index = self.define("i")
        body = self.block(depth - 1)
        made = [name for name in self.values if name not in outside and name not in phis]
        fresh = [self.draw(st.sampled_from(made))] if sure and made and self.draw(st.booleans()) else []
        carries = self.close(phis, outside)
        firsts = tuple(Carry(None, None, name, self.fresh("v")) for name in fresh)
        self.values = [*outside, *(carry.out for carry in firsts)]
        return [*before, For(index, start, stop, step, (*carries, *firsts), tuple(body), self.span())]

    def while_(self, depth: int) -> list[Node]:
        first = self.constant(0)
        phis, outside = self.carried()
        phi, out = self.fresh("n"), self.fresh("n")
        self.values.append(phi)
        going = self.define("going")
        test = Pure(going, f"n < {self.draw(st.integers(0, 3))}", (("n", phi),), "train")
        body = self.block(depth - 1)
        grown = Pure(self.define("n"), "n + 1", (("n", phi),), "train")
        carries = self.close(phis, outside)
        self.values = [*outside, out]
        return [first, While((Carry(phi, first.out, grown.out, out), *carries), (test,), going, (*body, grown),
                             self.span())]

    def if_(self, depth: int) -> list[Node]:
        before = [] if self.values else [self.constant(1)]
        condition = self.some()
        outside, newest = list(self.values), dict(self.newest)
        sides, ends, picks = [], [], []
        for _ in range(2):
            self.values, self.newest = list(outside), dict(newest)
            sides.append(tuple(self.block(depth - 1)))
            picks.append(self.some())
            ends.append(self.newest)
        self.values, self.newest = outside, dict(newest)
        merges = [Merge(self.define("m"), *picks)] if self.draw(st.booleans()) else []
        for name in newest:
            if ends[0][name] != ends[1][name]:
                self.newest[name] = self.fresh(name)
                merges.append(Merge(self.newest[name], ends[0][name], ends[1][name]))
        return [*before, If(condition, *sides, tuple(merges), self.span())]


for _kind in ("for", "while", "if"):
    setattr(_Writer, _kind, getattr(_Writer, f"{_kind}_"))


@st.composite
def graphs(draw: Any) -> Graph:
    writer = _Writer(draw)
    nodes: list[Node] = []
    for name in ("$env", "$results", "#env.step"):
        writer.newest[name] = writer.fresh(name)
        nodes.append(Pure(writer.newest[name], "0", (), "train"))
    nodes += writer.block(3)
    return Graph("Random", COMPONENTS, tuple(nodes), tuple(writer.newest.values()))


class Numbers(Host):
    """Ops mix what they are given into new numbers, and are written down in the order in which they run."""

    def __init__(self) -> None:
        self.ran: list[tuple] = []

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        seen = (node.component, node.method, args, tuple(kwargs.items()), reads)
        self.ran.append(seen)
        return _mix(seen, 0), tuple(_mix(seen, at) for at in range(1, len(node.writes) + 1))

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        return eval(node.expr, dict(inputs)) % 1009


def _mix(seen: tuple, salt: int) -> int:
    return crc32(repr((seen, salt)).encode()) % 997
