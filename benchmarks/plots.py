"""Plots of what was measured, each to one file. matplotlib is imported here and nowhere else in benchmarks."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from benchmarks.ratios import Row


def ratios_plot(rows: Sequence[Row], path: Path) -> None:
    """Each row's ratio with its quartiles, and its target as a mark."""
    figure, axes = plt.subplots(figsize=(6, 1.6 + 0.25 * len(rows)))
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
    axes.margins(y=0.01)
    figure.savefig(path, dpi=110, bbox_inches="tight")  # with all of the names, however long
    plt.close(figure)


def lines_plot(at: Sequence[float], columns: dict[str, Sequence[float]], path: Path, along: str, up: str) -> None:
    """Several lines over one axis, both axes logarithmic."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, column in columns.items():
        axes.plot(at, column, "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel=along, ylabel=up)
    axes.grid(which="both", alpha=0.2)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def panels_plot(at: Sequence[float], panels: dict[str, dict[str, list[float]]], path: Path, along: str,
                up: str) -> None:
    """A panel of lines for each case. The first place on the axis may be 0."""
    rows = -(-len(panels) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(11, 3.2 * rows), sharex=True, squeeze=False)
    for panel, (title, columns) in zip(axes.flat, panels.items(), strict=False):
        for name, column in columns.items():
            panel.plot(at, column, "o-", label=name)
        panel.set(xscale="symlog", yscale="log", title=title)
        panel.grid(which="both", alpha=0.2)
    for panel in axes.flat[len(panels):]:
        panel.axis("off")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="upper center", ncols=6)
    figure.supxlabel(along)
    figure.supylabel(up)
    figure.tight_layout(rect=(0, 0, 1, 0.94))  # the legend is above
    figure.savefig(path, dpi=110)
    plt.close(figure)
