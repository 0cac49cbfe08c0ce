"""Figure of a back-test: the gain of each generation, real and predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import INK, QUIET

_WIDTH = 0.2
_VARIANTS = {
    "real": ("real chips", INK),
    "foundry": ("their budgets, scaling=foundry", QUALITATIVE[0]),
    "paper": ("their budgets, scaling=paper", QUALITATIVE[3]),
    "foresight": ("foresight", QUALITATIVE[1]),
}


def draw(gains: pd.DataFrame, known: Sequence[str]) -> Figure:
    """Draw the gains of every generation, a panel for each and a group of bars for each workload.

    gains: rows with `workload`, `before`, `after` and a gain for each variant; known: chips
    that foresight extrapolates from.
    """
    pairs = list(dict.fromkeys(zip(gains["before"], gains["after"], strict=True)))
    figure = Figure(figsize=(9.6, 1.3 + 1.75 * ((len(pairs) + 1) // 2)))
    about = f"Foresight: from {', '.join(known)}, and the next die, power, memory and links."
    draw_heading(
        figure, "What a generation of chips gains", f"Time before over time after, by workload. {about}"
    )
    rows = (len(pairs) + 1) // 2
    grid = figure.add_gridspec(
        rows, min(2, len(pairs)), left=0.05, right=0.99, top=1.0 - 1.15 / figure.get_size_inches()[1],
        bottom=0.32 / figure.get_size_inches()[1], hspace=0.5, wspace=0.1,
    )  # fmt: skip
    for number, (before, after) in enumerate(pairs):
        axes = figure.add_subplot(grid[divmod(number, 2)])
        pair_gains = gains[(gains["before"] == before) & (gains["after"] == after)]
        for index, (variant, (label, colour)) in enumerate(_VARIANTS.items()):
            at = np.arange(len(pair_gains)) + (index - 1.5) * _WIDTH
            height = pair_gains[f"{variant}_gain"].to_numpy(np.float64)
            axes.bar(at, height, width=_WIDTH * 0.92, color=colour, label=label)
            for x, y in zip(at, height, strict=True):
                if y == y:
                    axes.text(x, y, f"{y:.2f}", ha="center", va="bottom", size=5.5, color=QUIET)
        axes.set_title(f"{before} to {after}")
        axes.margins(y=0.15)
        axes.set_xticks(range(len(pair_gains)), [str(name) for name in pair_gains["workload"]])
        axes.axhline(1.0, color=QUIET, linewidth=0.6)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        ncols=len(labels),
        loc="upper left",
        bbox_to_anchor=(0.02, 1.0 - 0.58 / figure.get_size_inches()[1]),
    )
    return figure
