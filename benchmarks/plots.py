"""Plots of what was measured, each to one file. matplotlib is imported here and nowhere else in benchmarks."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from benchmarks.ratios import Row


def ratios_plot(rows: Sequence[Row], path: Path) -> None:
    """Each row's ratio with its quartiles, and its target as a mark."""
    figure, axes = plt.subplots(figsize=(9, 0.6 + 0.38 * len(rows)))
    for at, row in enumerate(reversed(rows)):
        colour = "tab:grey" if row.met is None else "tab:green" if row.met else "tab:red"
        axes.plot([row.low, row.high], [at, at], color=colour, linewidth=3, alpha=0.5)
        axes.plot(row.ratio, at, "o", color=colour)
        if row.target is not None:
            axes.plot(row.target, at, ">" if row.at_least else "<", color="black", markersize=6)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [f"{row.workload} / {row.against}" for row in reversed(rows)], fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.5)
    axes.set_xlabel("ours divided by theirs: median and quartiles; black: target (> at least, < at most)")
    axes.grid(axis="x", which="both", alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
