"""Every workload in a process of its own, one after another, and one report of them all.

python -m benchmarks.all [--quick] [--only ppo dqn ...] [--report] [--docs]

Writes benchmarks/results/performance.json, .md and .png. A workload that fails is named at the end, and the others are
measured all the same; a peer that is not installed is left out, and the report says so. `--report` measures nothing,
and makes the report anew of what is there. `--docs` puts the report into docs/performance.md, with its plots.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.plots import ratios_plot
from benchmarks.ratios import Row
from benchmarks.report import RESULTS, table

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
WORKLOADS = ("ppo", "cheetah", "original", "dqn", "sac", "agents", "hops", "ray_hop", "passes", "solve", "crossover",
             "memory", "shaky")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds and short turns: does all of it run?")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--docs", action="store_true", help="put what was found into docs/performance.md")
    options = parser.parse_args()
    failed = [] if options.report else [name for name in options.only if not measured(name, options.quick)]
    found = [json.loads(path.read_text()) for name in WORKLOADS if (path := RESULTS / f"{name}.json").exists()]
    text = markdown(found)
    (RESULTS / "performance.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "performance.md").write_text(text)
    ratios_plot(rows(found), RESULTS / "performance.png")
    print(f"\n{text}")
    if options.docs:
        publish(text, DOCS)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def measured(name: str, quick: bool) -> bool:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", f"benchmarks.bench_{name}", *(["--quick"] if quick else [])])
    well = done.returncode == 0
    print(f"{name}: {'done' if well else 'FAILED'} after {time.perf_counter() - began:.0f} s", flush=True)
    return well


def rows(found: list[dict[str, Any]]) -> list[Row]:
    return [Row(**row) for each in found for row in each["rows"]]


def markdown(found: list[dict[str, Any]]) -> str:
    """The table, what limits each workload, and how it was measured."""
    limits = "".join(f"- {sentence}\n" for each in found for sentence in each["limits"])
    left_out = "".join(f"- left out: {sentence}\n" for each in found for sentence in each["left_out"])
    how = "".join(f"| {each['name']} | {each['rounds']} | {each['seconds']:g} s | {each['took']:.0f} s | "
                  f"{each['others']:.0%} |\n".replace("%", " %") for each in found)
    return (f"{table(rows(found))}\n{limits}{left_out}\n| measured | rounds | a turn | in all | others used of the "
            f"machine |\n|---|---|---|---|---|\n{how}")


def publish(text: str, docs: Path) -> None:
    """Puts the report between the page's marks, and the plots beside it."""
    page = docs / "performance.md"
    before, mark, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert mark and end, f"{page} has no {BEGIN} and {END}"
    (docs / "plots").mkdir(exist_ok=True)
    plots = sorted(RESULTS.glob("*.png"))
    for plot in plots:
        shutil.copy(plot, docs / "plots" / plot.name)
    shown = "".join(f"\n![{plot.stem}](plots/{plot.name})\n" for plot in plots)
    page.write_text(f"{before}{BEGIN}\n\n{text}{shown}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
