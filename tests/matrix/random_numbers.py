"""Random loops over numbers, as source: whole numbers `n`, `m`, floats `x`, `y` and a boolean `f`, which keep their
types.

Products of floats are by powers of two only, and there is no division by other numbers: fused, `x * y + z` is rounded
once, and `x / 3` multiplies, in fast mode as everywhere in XLA. All else must agree to the bit.
"""

from typing import Any

from hypothesis import strategies as st

HELPERS = '''
    def mix(self, msrl, k, z):
        for _ in range(2):
            z += k // 2 + 0.1
        if k % 3 == 1:
            z -= 0.7
        return z - k
'''


class Writer:
    """Writes statements; `draw` is Hypothesis's. `indices` are the loops' own, around the statement."""

    def __init__(self, draw: Any):
        self.draw, self.lines, self.whiles, self.room = draw, [], 0, 14

    def some(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def whole(self, indices: tuple[str, ...], depth: int = 2) -> str:
        atom = self.some("n", "m", "n", "m", str(self.draw(st.integers(-3, 9))), *indices)
        if not depth:
            return atom
        a, b = self.whole(indices, depth - 1), self.whole(indices, 0)
        return self.some(
            atom, f"({a} + {b})", f"({a} - {b})", f"{a} * {b} % 1009", f"({a} // {self.some('2', '3', '-5')})",
            f"({a} % {self.some('4', '7', '-3')})", f"(n % 9) ** {self.some('2', '3')}", f"abs({a})", f"-({a})",
            f"({a} if {self.truth(indices)} else {b})", f"jnp.maximum({a}, {b})", f"({a} + f)",
            f"jnp.array([3, 1, 2])[{a} % 3]", f"({a} * 500_000_007)")

    def real(self, indices: tuple[str, ...], depth: int = 2) -> str:
        atom = self.some("x", "y", "x", "y", "0.1", "2.7", "1e-3", "-0.3")
        if not depth:
            return atom
        a, b, whole = self.real(indices, depth - 1), self.real(indices, 0), self.whole(indices, 0)
        of_index = [f"({i} * 0.1)" for i in indices] + [f"max(0.05, 1 - {i} / 7)" for i in indices]
        return self.some(
            atom, f"({a} + {b})", f"({a} - {b})", f"({a} * 0.5)", f"({a} / 4)", f"({a} + {whole})", f"({a} % 1.5)",
            f"({a} // 0.7)", f"abs({a})", f"({a} if {self.truth(indices)} else {b})", f"(1 if f else {a})",
            f"jnp.minimum({a}, {b})", f"({whole} / 8)", *of_index)

    def truth(self, indices: tuple[str, ...]) -> str:
        kind = self.some("f", "whole", "real", "chain", "and", "not")
        a, b = self.whole(indices, 0), self.whole(indices, 0)
        x, y = self.real(indices, 0), self.real(indices, 0)
        return {"f": "f", "whole": f"{a} < {b}", "real": f"{x} >= {y}", "chain": f"({a} <= {b} < 5)",
                "and": f"({a} > 1 and {x} < 1.0 or f)", "not": f"(not {a} == {b})"}[kind]

    def block(self, indices: tuple[str, ...], depth: int, indent: str) -> None:
        for _ in range(self.draw(st.integers(1, 4))):
            if self.room > 0:
                self.room -= 1
                self.statement(indices, depth, indent)
        self.lines.append(f"{indent}pass")

    def statement(self, indices: tuple[str, ...], depth: int, indent: str) -> None:
        n, x, whole, real = self.some("n", "m"), self.some("x", "y"), self.whole(indices), self.real(indices)
        # `+ 0 * s` and the like: what is computed at run time gives them their type.
        simple = [f"{n} = {whole} + 0 * s", f"{n} += {whole}", f"{x} = {real} + 0.0 * s", f"{x} += {real}",
                  f"{x} -= {real}", f"f = ({self.truth(indices)}) == (s >= 0)", "n, m = m, n", "x, y = y, x + 0.1",
                  f"{x} = 0.1", f"{n} = 3", "f = not f", f"{x} = self.mix(msrl, {whole}, {real}) + 0.0 * s",
                  f"{x} += self.mix(msrl, {self.some('2', *indices, 'n')}, {self.some('0.3', 'y')})",
                  "obs = msrl.env_step(obs[:, 0] % 3).obs"]
        kind = self.some(*simple, *(["for", "count", "while", "if", "static", "of_index"] if depth else []))
        inner, index = indent + "    ", f"i{len(indices)}"
        match kind:
            case "for":
                self.lines.append(f"{indent}for {index} in range({self.some('3', '1, 4', '5, 0, -2')}):")
                self.block((*indices, index), depth - 1, inner)
            case "count":
                self.lines.append(f"{indent}for {index} in range({self.some(f'{n} % 4', f'{n} % 3, 4')}):")
                self.block((*indices, index), depth - 1, inner)
            case "while":
                self.whiles += 1
                going = f"w{self.whiles}"
                self.lines += [f"{indent}{going} = 0.0", f"{indent}while {going} < 0.5 and {self.truth(indices)}:",
                               f"{inner}{going} += 0.1"]
                self.block(indices, depth - 1, inner)
            case "static" | "if" | "of_index":
                of_index = f"{indices[-1]} % 2 == 0" if indices else "self.flag"
                condition = {"static": "self.flag", "if": self.truth(indices), "of_index": of_index}[kind]
                self.lines.append(f"{indent}if {condition}:")
                self.block(indices, depth - 1, inner)
                if self.draw(st.booleans()):
                    self.lines.append(f"{indent}else:")
                    self.block(indices, depth - 1, inner)
            case _:
                self.lines.append(f"{indent}{kind}")


@st.composite
def numbers(draw: Any) -> str:
    writer = Writer(draw)
    writer.block((), 3, " " * 8)
    return "\n".join([
        "import jax.numpy as jnp", "from tests.matrix.toys import Whole", "", "", "class T(Whole):",
        f"    flag = {draw(st.booleans())}", "", "    def train(self, msrl):",
        "        obs = msrl.env_reset()", "        s = obs.sum()", "        n, m, x, y, f = 1, 7, 0.0, 0.25, False",
        *writer.lines, "        msrl.report(n=n, m=m, x=x, y=y, f=f)", HELPERS])
