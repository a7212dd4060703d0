"""Pure expressions: operators that compile on computed numbers, and tables of what depends on indices alone."""

import jax
import numpy as np
import pytest

from msrl.engines.logic import LOGIC, with_logic
from msrl.engines.scopes import Scopes
from msrl.engines.tables import Table, fill, find_tabular, typical
from msrl.errors import Span, TypeCheckError
from msrl.ir.graph import For, Pure

EXPRESSIONS = ("not a", "a and b", "a or b", "a and b and 3", "a or 0 or b", "a if b else 7", "a < b < 5", "0 < a != b",
               "not (a < 2 or b) and a", "(1 if a else 2) if b else (3 if a else 4)", "[x for x in (1, 2) if a or x]")


def compiled(expr: str, **given):
    return eval(compile(with_logic(expr), "<test>", "eval"), {**LOGIC, **given})


@pytest.mark.parametrize("expr", EXPRESSIONS[:-1])
def test_operators_do_on_traced_numbers_what_python_does(expr):
    traced = jax.jit(lambda a, b: compiled(expr, a=a, b=b))
    for a in range(3):
        for b in range(3):
            assert int(traced(a, b)) == int(eval(expr, {"a": a, "b": b})), (a, b)


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_operators_do_on_numbers_at_hand_what_python_does(expr):
    for a in range(3):
        for b in range(3):
            found, wanted = compiled(expr, a=a, b=b), eval(expr, {"a": a, "b": b})
            assert (found, type(found)) == (wanted, type(wanted))


def test_what_python_does_not_evaluate_is_not_evaluated():
    assert compiled("0 and 1 / 0") == 0
    assert compiled("1 or 1 / 0") == 1
    assert compiled("2 if 1 else 1 / 0") == 2
    assert compiled("3 < 2 < 1 / 0") is False


def table_of(expr: str, loop: For):
    span = Span("algo.py", 3, 8, len(expr), f"rate = {expr}")
    node = Pure("rate.1", expr, (("i", loop.index),), "train", span)
    tabular = find_tabular((For(loop.index, loop.start, loop.stop, loop.step, (), (node,)),))
    scopes = Scopes(Owner(), {})
    first = typical("rate.1", tabular, scopes)
    return first, lambda: fill(Table("rate.1", (loop,)), tabular, scopes, {}, {})


class Owner:
    def train(self, msrl):
        """Expressions see the globals of its module."""


@pytest.mark.parametrize(("expr", "wanted"), [
    ("max(0.1, 1 - i / 4)", np.array([1, 0.5, 0.1], "float32")),
    ("max(0, 1 - i / 4)", np.array([1, 0.5, 0], "float32")),
    ("i // 2", np.array([0, 1, 2], "int32")),
    ("i > 2", np.array([False, False, True])),
    ("1 if i == 0 else 0.5", np.array([1, 0.5, 0.5], "float32")),
    ("np.float64(i) / 2", np.array([0, 1, 2], "float32")),
    ("np.arange(2) + i", np.array([[0, 1], [2, 3], [4, 5]], "int32")),
])
def test_table(expr, wanted):
    first, entries = table_of(expr, For("i.1", 0, 6, 2, (), ()))
    found = entries()
    assert found.dtype == wanted.dtype == np.asarray(first).dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("expr", ["1 if i != 2 else 0.5", "'warm' if i else 'cold'", "np.zeros(i)", "(1,) * i"])
def test_values_that_fit_no_table(expr):
    _, entries = table_of(expr, For("i.1", 0, 6, 1, (), ()) if "!=" not in expr else For("i.1", 0, 9, 1, (), ()))
    with pytest.raises(TypeCheckError) as caught:
        entries()
    assert str(caught.value) == (
        f"`{expr}` does not give numbers of one type and shape on every pass.\n"
        "\n"
        "  algo.py:3\n"
        f"    3 | rate = {expr}\n"
        f"               {'^' * len(expr)}\n"
        "\n"
        "It depends on loop indices only, and the compiler keeps its values in a table.\n"
        "Let it give the same kind of number each time: `1.0` in place of `1`, if others are floats.\n"
        "See docs/loop-language.md.")
