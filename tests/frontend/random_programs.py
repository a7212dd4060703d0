"""Random trainers of whole numbers: their source, what Python does with it, and a machine for their graphs.

A component `m` mixes what it is given into its state; reports are appended to a tuple. Both are written once, as
functions of a state, for Python (`Played`) and for graphs (`Mixing`): two runs that agree have made the same calls with
the same numbers in the same order.
"""

import inspect
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from msrl.ir.graph import Call, Pure
from msrl.ir.interp import EXPRESSION_NAMES, Host

NAMES = ("a", "b", "c", "d")
HELPERS = '''
    def mix(self, api, x, k=3):
        y = api.call("m", "draw", x)
        for i in range(k % 3):
            y += self.twice(api, y + i)
        return y % 97

    def twice(self, msrl, x):
        if x % 2:
            msrl.report(odd=x)
            z = x + 1
        else:
            z = 2 * x
        return z % 89

    @staticmethod
    def both(msrl, x, *, y=2):
        n, x = x, y
        while n > 0:
            n, x = n // 2 - 1, x + msrl.call("m", "draw", n)
        return x, (n, y)

    def plain(self, x):
        return max(x, 5) - min(x, 2)
'''


class Writer:
    """Writes statements; `draw` is Hypothesis's."""

    def __init__(self, draw: Any):
        self.draw, self.lines, self.loops, self.room = draw, [], 0, 18

    def some(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def expr(self, names: tuple[str, ...], depth: int = 2) -> str:
        atom = self.some(*names, str(self.draw(st.integers(0, 9))))
        if not depth:
            return atom
        x, y = self.expr(names, depth - 1), self.expr(names, 0)
        return self.some(
            atom, f"({x} + {y})", f"({x} * 3 - {y}) % 101", f"({atom} if {x} > 4 else {y})", f"int({x} < {y} < 50)",
            f"sum([q * {y} for q in range(3)])", f"(lambda q: q - {y})({x})", f"self.plain({x})", f"int(not {x})",
            f"({x} and {y})", f"[{x}, {y}][{atom} % 2]", f"(msrl.call('m', 'draw', {x}) + {y}) % 31")

    def block(self, names: tuple[str, ...], depth: int, indent: str) -> None:
        for _ in range(self.draw(st.integers(1, 4))):
            if self.room > 0:
                self.room -= 1
                self.statement(names, depth, indent)
        self.lines.append(f"{indent}pass")

    def statement(self, names: tuple[str, ...], depth: int, indent: str) -> None:
        x, y, z = (self.some(*NAMES) for _ in range(3))
        e, f = self.expr(names), self.expr(names)
        simple = [
            f"{x} = {e}", f"{x} += {e}", f"{x} = {y} = {e}", f"{x}, {y} = {y}, {e}", f"{x}: int = {e}",
            f"({x}, {y}), {z} = msrl.call('m', 'parts', {e})", f"msrl.report(x={e}, y={f})",
            f"msrl.report({{'z': {e}}})", f"{x} = self.mix(msrl, {e})", f"{x} = 1 + self.mix(k={e}, api=msrl, x={f})",
            f"{x}, ({y}, {z}) = self.both(msrl, {e} % 7, y={f})", f"self.twice(msrl, {e})",
        ]
        compound = ["for", "count", "while", "if", "static", "with"] if depth else []
        kind = self.some(*simple, *compound)
        inner = indent + "    "
        match kind:
            case "for":
                index = self.some("i", "j")
                bounds = self.some("3", "1, 4", "5, 0, -2", "2, 2", f"{x} % 4", f"{x} % 3, 5", f"4, {x} % 3, -1")
                self.lines.append(f"{indent}for {index} in range({bounds}):")
                self.block((*names, index), depth - 1, inner)
            case "count":  # an index that is read after the loop, and changed in it
                self.lines.append(f"{indent}for {x} in range(2):")
                self.block(names, depth - 1, inner)
            case "while":
                self.loops += 1
                count = f"n{self.loops}"
                self.lines += [f"{indent}{count} = 0", f"{indent}while {count} < 3 and {e} != 7:".replace("msrl.", "")]
                if "call(" in self.lines[-1]:
                    self.lines[-1] = f"{indent}while {count} < 3:"
                self.lines.append(f"{inner}{count} += 1")
                self.block((*names, count), depth - 1, inner)
            case "if":
                self.lines.append(f"{indent}if {e}:")
                self.block(names, depth - 1, inner)
                if self.draw(st.booleans()):
                    self.lines.append(f"{indent}elif {f} > 3:")
                    self.block(names, depth - 1, inner)
                if self.draw(st.booleans()):
                    self.lines.append(f"{indent}else:")
                    self.block(names, depth - 1, inner)
            case "static":
                self.lines.append(f"{indent}if self.flag:")
                self.block(names, depth - 1, inner)
            case "with":
                self.lines.append(f"{indent}with msrl.{self.some('together', 'apart')}():")
                self.block(names, depth - 1, inner)
            case _:
                self.lines.append(f"{indent}{kind}")


@st.composite
def programs(draw: Any) -> str:
    writer = Writer(draw)
    writer.lines += [f"        {name} = {at + 1}" for at, name in enumerate(NAMES)]
    writer.block(NAMES, 3, " " * 8)
    body = "\n".join([*writer.lines, "        msrl.report(a=a, b=b, c=c, d=d)"])
    return f"class T:\n    flag = {draw(st.booleans())}\n\n    def train(self, msrl):\n{body}\n{HELPERS}"


def answer(method: str, state: int, args: tuple) -> tuple[Any, int]:
    """(what the component returns, its state)."""
    state = crc32(repr((method, state, args)).encode()) % 9973
    return (state % 11, state) if method == "draw" else (((state % 5, args[0]), state % 7), state)


class Played:
    """The interaction API as plain Python has it."""

    def __init__(self) -> None:
        self.m, self.metrics = 0, ()

    def call(self, component: str, method: str, *args: Any) -> Any:
        out, self.m = answer(method, self.m, args)
        return out

    def report(self, *metrics: Any, **named: Any) -> None:
        self.metrics += ((metrics, tuple(named.items())),)

    @contextmanager
    def together(self):
        yield

    apart = together


class Mixing(Host):
    """The same for graphs."""

    def __init__(self, trainer: Any):
        self.trainer = trainer

    def call(self, node: Call, args: tuple, kwargs: dict[str, Any], reads: tuple) -> tuple[Any, tuple]:
        match node.component, node.method:
            case "m", "init":
                return None, (0,)
            case "m", method:
                out, state = answer(method, reads[0], args)
                return out, (state, reads[1] + 1)
            case "metrics", "report":
                return None, ((*reads[0], (args, tuple(kwargs.items()))),)
        return None, tuple(() for _ in node.writes)

    def pure(self, node: Pure, inputs: dict[str, Any]) -> Any:
        known = inspect.getattr_static(type(self.trainer), node.scope)
        space = getattr(known, "__func__", known).__globals__
        return eval(node.expr, {**space, **EXPRESSION_NAMES, "self": self.trainer, **inputs})
