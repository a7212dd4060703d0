"""What a benchmark leaves behind: rows of ratios, what limits them, and in what company they were taken.

In: the rows of one workload. Out: `results/<name>.json`, a table on the screen; and of all workloads together one JSON
file, one of Markdown, and a plot (benchmarks/all.py). Every file says what it was measured with and how busy others
kept the machine, as a ratio of two programs that share cores with a third is worth less than one of two that do not.
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.ratios import Effort, Row

RESULTS = Path(__file__).parent / "results"
QUICK = Effort(rounds=3, seconds=0.5)
Measure = Callable[[Effort, "Report"], None]


@dataclasses.dataclass
class Report:
    """Of one workload: filled by the one who measures."""

    name: str
    rows: list[Row] = dataclasses.field(default_factory=list)
    limits: list[str] = dataclasses.field(default_factory=list)  # sentences, from profiles
    left_out: list[str] = dataclasses.field(default_factory=list)  # sentences
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)  # whatever a plot is drawn from

    def add(self, *rows: Row) -> None:
        for row in rows:
            self.rows.append(row)
            print(f"  {line(row)}", flush=True)

    def limit(self, sentence: str) -> None:
        self.limits.append(sentence)
        print(f"  {sentence}", flush=True)

    def leave_out(self, sentence: str) -> None:
        self.left_out.append(sentence)
        print(f"  left out: {sentence}", flush=True)


class Company:
    """How much of the machine others used, from here on."""

    def __init__(self) -> None:
        self.began, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def share(self) -> float:
        cores = (time.perf_counter() - self.began) * (os.cpu_count() or 1)
        share = (_busy() - self.busy - (_own() - self.own)) / cores
        return min(1.0, max(0.0, share))  # the system counts in hundredths of a second


def _busy() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own() -> float:
    """Of this process, those it started, and those of them that have ended."""
    mine = psutil.Process()
    total = sum(mine.cpu_times()[:4])
    for child in mine.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def line(row: Row) -> str:
    return (f"{row.workload}: {row.ratio:.2f} ({row.low:.2f} to {row.high:.2f}) of {row.against}; ours {row.ours}, "
            f"theirs {row.theirs}{aim(row)}")


def aim(row: Row) -> str:
    if row.target is None:
        return ""
    return f"; target {'at least' if row.at_least else 'at most'} {row.target:.3g}, {'met' if row.met else 'MISSED'}"


def table(rows: Iterable[Row]) -> str:
    """In Markdown."""
    head = "| workload | against | ours | theirs | ratio (quartiles) | target | |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {row.workload} | {row.against} | {row.ours} | {row.theirs} | {row.ratio:.2f} ({row.low:.2f} to "
        f"{row.high:.2f}) | {_target(row)} | {'' if row.met is None else 'met' if row.met else '**missed**'} |\n"
        for row in rows)


def _target(row: Row) -> str:
    return "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:.3g}"


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("jax", "jaxlib", "flax", "optax")}}


def command(name: str, measure: Measure, description: str | None, effort: Effort = Effort()) -> None:  # noqa: B008
    """`python -m benchmarks.bench_<name>`: measures, prints, and writes what was found to a file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help=f"turns of each contestant ({effort.rounds})")
    parser.add_argument("--seconds", type=float, help=f"that a turn takes, about ({effort.seconds})")
    parser.add_argument("--quick", action="store_true", help="few rounds and short turns: does it run at all?")
    options = parser.parse_args()
    usual = QUICK if options.quick else effort
    wanted = Effort(options.rounds or usual.rounds, options.seconds or usual.seconds)
    report, company, began = Report(name), Company(), time.perf_counter()
    print(f"{name}: {wanted.rounds} rounds of about {wanted.seconds:g} s", flush=True)
    measure(wanted, report)
    others = company.share()
    print(f"  others used {others:.0%} of the machine meanwhile", flush=True)
    RESULTS.mkdir(exist_ok=True)
    told = {**dataclasses.asdict(report), **dataclasses.asdict(wanted), "others": round(others, 3),
            "cores": os.cpu_count(), "took": round(time.perf_counter() - began, 1), "versions": versions()}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
