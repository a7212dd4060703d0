"""Values that remember how they were made, so that two ways to run a loop can be compared without running its ops."""

import operator
import zlib
from typing import Any


class Symbol:
    """Whatever is done to it gives another symbol; as a truth or a number, it is a random but constant one."""

    def __init__(self, made: str):
        object.__setattr__(self, "made", made)

    def __repr__(self) -> str:
        return self.made

    def __hash__(self) -> int:
        return zlib.crc32(self.made.encode())

    def __getattr__(self, name: str) -> "Symbol":
        return Symbol(f"{self.made}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> "Symbol":
        return Symbol(f"{self.made}{args}{kwargs}")

    def __getitem__(self, index: Any) -> "Symbol":
        return Symbol(f"{self.made}[{index!r}]")

    def __iter__(self):
        return iter((self, self))

    def __bool__(self) -> bool:
        return hash(self) % 3 == 0

    def __index__(self) -> int:
        return hash(self) % 4

    __int__ = __index__

    def __float__(self) -> float:
        return float(hash(self) % 4)

    def __round__(self, digits: int = 0) -> "Symbol":
        return Symbol(f"round({self.made})")

    def __abs__(self) -> "Symbol":
        return Symbol(f"abs({self.made})")

    def __neg__(self) -> "Symbol":
        return Symbol(f"-{self.made}")

    def __invert__(self) -> "Symbol":
        return Symbol(f"~{self.made}")


def _binary(name: str):
    return lambda self, other: Symbol(f"({self!r} {name} {other!r})")


def _swapped(name: str):
    return lambda self, other: Symbol(f"({other!r} {name} {self!r})")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "divmod"):
    assert _name == "divmod" or hasattr(operator, _name)
    setattr(Symbol, f"__{_name.strip('_')}__", _binary(_name))
    setattr(Symbol, f"__r{_name.strip('_')}__", _swapped(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Symbol, f"__{_name}__", _binary(_name))
