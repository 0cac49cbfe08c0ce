"""Tornado figure of a sensitivity: what every figure, less or more of it, does to the result."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.charts.style import APART, head
from fastflow.figures.shapes import INK, QUIET

_MOST = 20
_ROW = 0.24  # height of a bar [in]


def draw(figures: pd.DataFrame, objective: str, value: float) -> Figure:
    """Draw the figures that matter most, a bar to each side: the change for 1% less and 1% more.

    figures: rows of a sensitivity, ranked; objective: a result column, whose value the point has.
    """
    rows = figures[figures["reason"].eq("") & ~figures["flat"]].head(_MOST).iloc[::-1]
    indices = "sobol_total" in rows
    height = 1.35 + _ROW * len(rows)
    figure = Figure(figsize=(9.0, height))
    about = f"Change of {objective} ({value:.4g}) for 1% less and 1% more of a figure, one at a time"
    head(figure, f"What {objective} hangs on", about)
    below, room = 0.45 / height, (height - 1.35) / height
    axes = figure.add_axes((0.31, below, 0.42 if indices else 0.66, room))
    at = np.arange(len(rows))
    for side, sign, colour, label in (
        ("left", -1.0, APART[0], "1% less"), ("right", 1.0, APART[1], "1% more"),
    ):  # fmt: skip
        axes.barh(at, sign * rows[f"{side}_elasticity"].fillna(0.0), color=colour, height=0.7, label=label)
    axes.set_yticks(at, list(rows["figure"]))
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("change [%]", color=QUIET)
    axes.margins(y=0.01)
    figure.legend(
        *axes.get_legend_handles_labels(),
        ncols=2,
        loc="upper left",
        bbox_to_anchor=(0.02, 1.0 - 0.6 / height),
    )
    if indices:
        other = figure.add_axes((0.78, below, 0.2, room))
        other.barh(at, rows["sobol_total"], color="#d9dfe6", height=0.7, label="takes part in")
        other.barh(at, rows["sobol_first"], color=APART[4], height=0.4, label="explains alone")
        other.set_yticks([])
        other.grid(axis="x")
        other.grid(visible=False, axis="y")
        other.set_xlabel("share of variance", color=QUIET)
        other.margins(y=0.01)
        figure.legend(
            *other.get_legend_handles_labels(), ncols=2, loc="upper right",
            bbox_to_anchor=(0.99, 1.0 - 0.6 / height),
        )  # fmt: skip
    return figure
