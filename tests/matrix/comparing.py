"""Runs one trainer in every way there is, and compares what is left behind.

Eager Python, the interpreter and strict inline execution must agree to the bit: weights, every other resource with the
contents of buffers, the number of calls of each method, and every report in order. Fast execution must agree too,
exactly where `tolerance` is 0; of its reports it keeps sums and counts.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.backends.inline import Inline
from msrl.backends.workers import make_workers
from msrl.pipeline import Program, compile

Reports = list[dict[str, float]]


@dataclass
class Outcome:
    resources: dict[str, Any]
    reports: Reports


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
    """Runs as deployed. States of shards that are spread over instances are put together again."""
    for _ in program.backend.run():
        pass
    found: dict[str, Any] = {}
    for worker in program.workers:
        for name, value in worker.resources.items():
            spread = worker.program.fragment.axis and isinstance(value, tuple) and name in found
            found[name] = (*found[name], *value) if spread else value
    return Outcome(found, program.lead.engine.reports)


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


def plain(leaf: Any) -> np.ndarray:
    """A leaf as an array. Of what lives on the host, random generators show their state, and handles nothing."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, np.random.Generator):
        leaf = leaf.bit_generator.state["state"]["state"] % 2**62
    return np.asarray(leaf) if isinstance(leaf, (bool, int, float, np.ndarray, np.generic, jax.Array)) else np.zeros(0)


def assert_same(wanted: dict[str, Any], found: dict[str, Any], tolerance: float = 0.0) -> None:
    for name in wanted.keys() | found.keys():
        if name.startswith("#"):
            assert int(wanted.get(name, 0)) == int(found.get(name, 0)), name
            continue
        one, one_tree = jax.tree.flatten(wanted[name])
        two, two_tree = jax.tree.flatten(found[name])
        assert one_tree == two_tree, name
        for a, b in zip(map(plain, one), map(plain, two), strict=True):
            assert a.shape == b.shape, name
            if tolerance and np.issubdtype(a.dtype, np.floating):
                np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=name)
            else:
                assert a.tobytes() == b.tobytes() if a.dtype == b.dtype else np.array_equal(a, b), name
