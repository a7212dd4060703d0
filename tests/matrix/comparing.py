"""Runs one trainer in every way there is, and compares what is left behind.

Eager Python, the interpreter and strict inline execution must agree to the bit: weights, every other resource with the
contents of buffers, the number of calls of each method, and every report in order. Fast execution must agree too,
exactly where `tolerance` is 0; of its reports it keeps sums and counts.
"""

from collections import defaultdict
from typing import Any

import jax
import numpy as np

from msrl.backends.inline import Inline
from msrl.backends.workers import make_workers
from msrl.comparing import Outcome, Reports, copies, difference, resource_difference
from msrl.engines.witness import plain
from msrl.pipeline import Program, compile


def check(trainer: type, env: Any, *, tolerance: float = 0.0, fast: bool = True, **settings: Any) -> Outcome:
    """Asserts that all modes agree, and returns what they agree on."""
    program = compile(trainer, env, strict=True, **settings)
    eager = Outcome(*program.eager())
    for other in (Outcome(*program.interpret()), strict(program)):
        assert other.reports == eager.reports
        assert_same(eager.resources, other.resources)
    if fast:
        found, sums = run_fast(program)
        assert_same(stacked_like(found, eager.resources), without_metrics(found), tolerance)
        assert_close_sums(sum_up(eager.reports), sums, tolerance)
    return eager


def strict(program: Program) -> Outcome:
    """Runs as deployed, and asserts that all instances of a fragment hold the same."""
    first, *others = copies(program)
    for other in others:
        assert difference(first, other) is None
    return first


def run_fast(program: Program) -> tuple[dict[str, Any], dict[str, tuple[float, int]]]:
    """The resources, and the sum and count of each metric over all looks."""
    backend = Inline(make_workers(program.placed, program.ops, program.shapes, program.root, False, 1))
    sums: dict[str, list] = defaultdict(lambda: [0.0, 0])
    last: dict[str, Any] = {}
    for _, found in backend.run():
        last = dict(found)
        for total, count in last["$metrics"].values():
            for name, value in total.items():
                sums[name][0] += float(np.sum(value))
                sums[name][1] += int(np.sum(count))
    return last, {name: (total, count) for name, (total, count) in sums.items() if count}


def sum_up(reports: Reports) -> dict[str, tuple[float, int]]:
    names = dict.fromkeys(name for row in reports for name in row)
    return {name: (float(np.sum(column)), len(column))
            for name in names for column in [[row[name] for row in reports if name in row]]}


def assert_close_sums(wanted: dict[str, tuple[float, int]], found: dict[str, tuple[float, int]], tolerance: float):
    assert {name: count for name, (_, count) in found.items()} == {name: count for name, (_, count) in wanted.items()}
    for name, (total, _) in wanted.items():
        np.testing.assert_allclose(found[name][0], total, rtol=tolerance, atol=tolerance, err_msg=name)


def stacked_like(found: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """Resources in the form in which fast execution leaves them: the shards of what was compiled are stacked."""
    out = without_metrics(resources)
    for name, value in out.items():
        if isinstance(value, tuple) and not isinstance(found[name], tuple):
            whole = jax.tree.map(lambda *xs: np.stack([plain(x) for x in xs]), *value)
            out[name] = value[0] if len(value) == 1 else whole
    return out


def without_metrics(resources: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resources.items() if name != "$metrics"}


def assert_same(wanted: dict[str, Any], found: dict[str, Any], tolerance: float = 0.0) -> None:
    assert resource_difference(wanted, found, tolerance) is None
