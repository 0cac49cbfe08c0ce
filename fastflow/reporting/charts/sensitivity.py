"""Tornado figure of a sensitivity: what every figure, less or more of it, does to the result."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.core import units
from fastflow.reporting.charts.style import APART, head
from fastflow.reporting.colours import INK, QUIET
from fastflow.schema import find_result

_MOST = 20
SLIGHT = 0.01  # percent for 1% of a figure, to either side
_NOTABLE = 0.01  # share of the variance
_ROW = 0.24  # height of a row [in]
_BAR = 0.7  # of a row


def listed(figures: pd.DataFrame, most: int | None = None) -> pd.DataFrame:
    """Return the figures that matter: the first ones, and what takes part in more of the variance than 1%.

    figures: rows of a sensitivity, ranked; most: how many of the first ones, None: all that move the result
    by a hundredth of a percent for 1%.
    """
    size = figures[["left_elasticity", "right_elasticity"]].abs().max(axis=1)
    moves = size.ge(SLIGHT) & figures["reason"].eq("")
    first = moves if most is None else moves & moves.cumsum().le(most)
    if "sobol_total" in figures:
        first |= figures["sobol_total"].gt(_NOTABLE)
    return figures[first]


def draw(figures: pd.DataFrame, objective: str, value: float) -> Figure:
    """Draw the figures that matter most, a bar for less of each and one for more; both show on one side.

    figures: rows of a sensitivity, ranked; objective: a result column, whose value the point has.
    """
    rows = listed(figures, _MOST).iloc[::-1]
    indices = "sobol_total" in rows
    height = 1.35 + _ROW * max(len(rows), 1)
    figure = Figure(figsize=(9.0, height))
    about = (
        f"Change of {objective} ({_written(objective, value)}) per 1% of a figure, one at a time; "
        f"each is changed by {100.0 * figures.attrs['step']:g}% (sensitivity.step)"
    )
    head(figure, f"What {objective} hangs on", about)
    below, room = 0.45 / height, (height - 1.35) / height
    axes = figure.add_axes((0.31, below, 0.42 if indices else 0.66, room))
    at = np.arange(len(rows))
    less, more = -rows["left_elasticity"].fillna(0.0), rows["right_elasticity"].fillna(0.0)
    beside = less * more > 0.0  # the shorter one is thinner, before the other
    for change, thin, colour, label in (
        (less, beside & less.abs().lt(more.abs()), APART[0], "less of it"),
        (more, beside & more.abs().le(less.abs()), APART[1], "more of it"),
    ):
        axes.barh(at[~thin], change[~thin], color=colour, height=_BAR, label=label)
        axes.barh(at[thin], change[thin], color=colour, height=0.5 * _BAR, zorder=2)
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
        other = figure.add_axes((0.78, below, 0.2, room), sharey=axes)
        for name, colour, thick, up, label in (
            ("sobol_total", "#d9dfe6", _BAR, 0.25, "takes part in"),
            ("sobol_first", APART[4], 0.4, 0.0, "explains alone"),
        ):
            other.barh(at, rows[name], color=colour, height=thick, label=label)
            other.errorbar(
                rows[name], at + up, xerr=rows[f"{name}_error"], fmt="none", ecolor=INK, elinewidth=0.8
            )
        other.tick_params(labelleft=False)
        other.grid(axis="x")
        other.grid(visible=False, axis="y")
        other.set_xlabel("share of variance", color=QUIET)
        figure.legend(
            *other.get_legend_handles_labels(), ncols=2, loc="upper right",
            bbox_to_anchor=(0.99, 1.0 - 0.6 / height),
        )  # fmt: skip
    return figure


def _written(name: str, value: float) -> str:
    """Write the value of a result with its unit."""
    column = find_result(name)
    return units.show(value, "" if column is None else column.unit)
