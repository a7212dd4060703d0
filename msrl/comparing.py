"""What a run leaves behind, and whether two runs left the same.

`copies` runs a program as it is deployed: one `Outcome` for each instance of what is replicated, with the states of
shards put together again. `difference` names the first thing in which two outcomes differ, to the bit unless a
tolerance is given. `distance` says how far apart two trees of numbers are.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from msrl.backends.worker import Worker
from msrl.engines.reference import Reference
from msrl.engines.witness import plain
from msrl.pipeline import Program

Reports = list[dict[str, float]]


@dataclass(frozen=True)
class Outcome:
    resources: Mapping[str, Any]  # weights, states of environments and learners, buffers, counters
    reports: Reports


def copies(program: Program) -> list[Outcome]:
    """Runs as deployed, in strict mode. What all instances of a fragment hold alike is in one outcome for each, so that
    none goes unseen."""
    for _ in program.backend.run():
        pass
    return left(program)


def left(program: Program) -> list[Outcome]:
    """The same of a program that has been run."""
    fragments: dict[str, list[Worker]] = {}
    for worker in program.workers:
        fragments.setdefault(worker.program.fragment.name, []).append(worker)
    count = max(map(len, fragments.values()))
    return [_copy(program, [mine[min(number, len(mine) - 1)] for mine in fragments.values()], fragments)
            for number in range(count)]


def _copy(program: Program, chosen: list[Worker], fragments: Mapping[str, list[Worker]]) -> Outcome:
    found: dict[str, Any] = {}
    reports: Reports = []
    for worker in chosen:
        everyone = fragments[worker.program.fragment.name]
        for name, value in worker.resources.items():
            spread = name.startswith("$") and program.world.over(name[1:]) and value is not None and len(everyone) > 1
            found[name] = tuple(state for each in everyone for state in each.resources[name]) if spread else value
        if "metrics" in worker.program.fragment.components:
            assert isinstance(worker.engine, Reference)
            reports = worker.engine.reports
    return Outcome(found, reports)


def difference(wanted: Outcome, found: Outcome) -> str | None:
    """The first thing that differs by a bit, in words."""
    unlike = resource_difference(wanted.resources, found.resources)
    return unlike or report_difference(wanted.reports, found.reports)


def call_difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The first method that was called more or less often."""
    for name in dict.fromkeys((*wanted, *found)):
        if name.startswith("#"):  # a counter that nobody has touched may be missing
            one, two = (int(np.max(np.asarray(each.get(name, 0)))) for each in (wanted, found))
            if one != two:
                return f"{name[1:]} was called {two} times, not {one}"
    return None


def far_apart(wanted: Reports, found: Mapping[str, float], tolerance: float = 0.01) -> str | None:
    """The first metric whose mean over all reports is another by more than rounding explains."""
    for name in dict.fromkeys(name for row in wanted for name in row):
        rows = np.array([row[name] for row in wanted if name in row])
        if name not in found:
            return f"there is no metric {name}"
        if np.isfinite(rows).all() and not abs(rows.mean() - found[name]) <= tolerance * np.abs(rows).max() + 1e-6:
            return f"metric {name} is {found[name]:.4g} in the mean, not {rows.mean():.4g}"
    return None


def digests(outcome: Outcome) -> dict[str, str]:
    """Everything that a run has left, by a hash of each part: what another process can write down."""
    found = {}
    for name, value in outcome.resources.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            array = plain(leaf)
            array = np.int64(array) if name.startswith("#") else array
            text = f"{array.dtype} {array.shape}".encode() + array.tobytes()
            found[f"{name[1:]}{jax.tree_util.keystr(path)}"] = hashlib.sha256(text).hexdigest()
    for number, row in enumerate(outcome.reports, 1):
        found.update({f"metric {name} of report {number}": float(value).hex() for name, value in row.items()})
    return found


def resource_difference(wanted: Mapping[str, Any], found: Mapping[str, Any], tolerance: float = 0.0) -> str | None:
    """Of floats, with a tolerance, what is near (relative or absolute) counts as equal."""
    for name in dict.fromkeys((*wanted, *found)):
        if name.startswith("#"):
            unlike = call_difference({name: wanted.get(name, 0)}, {name: found.get(name, 0)})
            if unlike:
                return unlike
            continue
        if name not in wanted or name not in found:
            return f"{name[1:]} is {'not there' if name in wanted else 'there'}"
        one, one_tree = jax.tree_util.tree_flatten_with_path(wanted[name])
        two, two_tree = jax.tree.flatten(found[name])
        if one_tree != two_tree:
            return f"{name[1:]} has other parts"
        for (path, a), b in zip(one, two, strict=True):
            if not equal(plain(a), plain(b), tolerance):
                return f"{name[1:]}{jax.tree_util.keystr(path)}"
    return None


def report_difference(wanted: Reports, found: Reports) -> str | None:
    for number, (one, two) in enumerate(zip(wanted, found, strict=False), 1):
        for name in dict.fromkeys((*one, *two)):
            if name not in one or name not in two or not equal(np.asarray(one[name]), np.asarray(two[name])):
                return f"metric {name} of report {number}"
    return f"{len(found)} reports, not {len(wanted)}" if len(wanted) != len(found) else None


def equal(a: np.ndarray, b: np.ndarray, tolerance: float = 0.0) -> bool:
    if a.shape != b.shape:
        return False
    if tolerance and np.issubdtype(a.dtype, np.floating):
        return bool(np.allclose(b, a, rtol=tolerance, atol=tolerance))
    return a.tobytes() == b.tobytes() if a.dtype == b.dtype else np.array_equal(a, b)


def distance(one: Any, two: Any) -> tuple[float, float]:
    """The largest difference of two numbers; and the largest in proportion to the largest number of its array."""
    absolute = relative = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        a, b = plain(a).astype(np.float64), plain(b).astype(np.float64)
        if not a.size:
            continue
        apart = np.abs(a - b).max()
        absolute = np.maximum(absolute, apart)  # which keeps what is not a number
        relative = np.maximum(relative, apart / np.abs(a).max() if apart else 0.0)
    return float(absolute), float(relative)
