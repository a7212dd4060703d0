"""Several seeds through one program give what each gives by itself."""

import jax
import pytest

from msrl.pipeline import compile
from tests.matrix.comparing import assert_close_sums, assert_same, run_fast, without_metrics
from tests.matrix.loops import LOOPS
from tests.matrix.toys import Corridor


@pytest.mark.parametrize("name", ["Plain", "While", "Downwards", "Schedules", "Deep"])
def test_seeds_equal_single_runs(name):
    many, sums = run_fast(compile(LOOPS[name], Corridor(), seeds=2, seed=5))
    totals: dict[str, tuple[float, int]] = {}
    for number in range(2):
        alone, own = run_fast(compile(LOOPS[name], Corridor(), seed=5 + number))
        mine = jax.tree.map(lambda x, number=number: x[number], without_metrics(many))
        assert_same(without_metrics(alone), mine)
        totals = {key: (total + totals.get(key, (0, 0))[0], count + totals.get(key, (0, 0))[1])
                  for key, (total, count) in own.items()}
    assert_close_sums(totals, sums, 0.0)
