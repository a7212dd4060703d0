"""The learning curve as a picture: rows of metrics in, the bytes of a PNG out."""

import io
from typing import Any

from msrl.runtime.preload import late

SERIES = (("episode_return", "episodes while training", "-"), ("eval_return_mean", "evaluation", "o"))


def draw(rows: list[dict[str, Any]], title: str) -> bytes:
    """Return against environment steps; one line per seed where seeds were trained one after another."""
    figure = late("matplotlib.figure").Figure(figsize=(7, 4.3), layout="constrained")
    axes = figure.add_subplot()
    seeds = list(dict.fromkeys(row.get("seed") for row in rows))
    for seed in seeds:
        for name, label, style in SERIES:
            points = [(row["env_steps"], row[name]) for row in rows
                      if row.get("seed") == seed and row.get(name) is not None]
            if points:
                suffix = f", seed {seed}" if len(seeds) > 1 else ""
                axes.plot(*zip(*points, strict=True), style, label=label + suffix, markersize=4)
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    picture = io.BytesIO()
    late("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).print_png(picture)
    return picture.getvalue()
