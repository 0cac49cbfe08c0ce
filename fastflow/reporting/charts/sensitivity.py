"""Tornado figure of a sensitivity: the effect of less and more of every parameter on the result."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.core import units
from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import INK, QUIET
from fastflow.schema import find_result

_MAX_PARAMETERS = 20
MIN_EFFECT = 0.01  # percent for 1% of a parameter, to either side
_MIN_VARIANCE_SHARE = 0.01  # share of the variance
_ROW = 0.24  # height of a row [in]
_BAR = 0.7  # of a row


def important_parameters(parameters: pd.DataFrame, limit: int | None = None) -> pd.DataFrame:
    """Return the important parameters: the first of the ranking, and those with more than 1% of the variance.

    parameters: rows of a sensitivity, ranked; limit: number of the first, None: all that change the result
    by a hundredth of a percent for 1%.
    """
    effect = parameters[["elasticity_minus", "elasticity_plus"]].abs().max(axis=1)
    has_effect = effect.ge(MIN_EFFECT) & parameters["reason"].eq("")
    is_important = has_effect if limit is None else has_effect & has_effect.cumsum().le(limit)
    if "sobol_total" in parameters:
        is_important |= parameters["sobol_total"].gt(_MIN_VARIANCE_SHARE)
    return parameters[is_important]


def draw(parameters: pd.DataFrame, objective: str, value: float) -> Figure:
    """Draw the most important parameters, a bar for less of each and a bar for more.

    parameters: rows of a sensitivity, ranked; objective: a result column; value: of the point.
    """
    rows = important_parameters(parameters, _MAX_PARAMETERS).iloc[::-1]
    indices = "sobol_total" in rows
    height = 1.35 + _ROW * max(len(rows), 1)
    figure = Figure(figsize=(9.0, height))
    about = (
        f"Change of {objective} ({_format_value(objective, value)}) per 1% of a parameter, one at a time; "
        f"each is changed by {100.0 * parameters.attrs['step']:g}% (sensitivity.step)"
    )
    draw_heading(figure, f"What {objective} hangs on", about)
    below, room = 0.45 / height, (height - 1.35) / height
    axes = figure.add_axes((0.31, below, 0.42 if indices else 0.66, room))
    positions = np.arange(len(rows))
    less, more = -rows["elasticity_minus"].fillna(0.0), rows["elasticity_plus"].fillna(0.0)
    same_side = less * more > 0.0  # the shorter bar is thinner, in front of the other
    for change, is_thin, colour, label in (
        (less, same_side & less.abs().lt(more.abs()), QUALITATIVE[0], "less of it"),
        (more, same_side & more.abs().le(less.abs()), QUALITATIVE[1], "more of it"),
    ):
        axes.barh(positions[~is_thin], change[~is_thin], color=colour, height=_BAR, label=label)
        axes.barh(positions[is_thin], change[is_thin], color=colour, height=0.5 * _BAR, zorder=2)
    axes.set_yticks(positions, list(rows["parameter"]))
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
        variance_axes = figure.add_axes((0.78, below, 0.2, room), sharey=axes)
        for name, colour, thick, up, label in (
            ("sobol_total", "#d9dfe6", _BAR, 0.25, "takes part in"),
            ("sobol_first", QUALITATIVE[4], 0.4, 0.0, "explains alone"),
        ):
            variance_axes.barh(positions, rows[name], color=colour, height=thick, label=label)
            variance_axes.errorbar(
                rows[name], positions + up, xerr=rows[f"{name}_error"], fmt="none", ecolor=INK, elinewidth=0.8
            )
        variance_axes.tick_params(labelleft=False)
        variance_axes.grid(axis="x")
        variance_axes.grid(visible=False, axis="y")
        variance_axes.set_xlabel("share of variance", color=QUIET)
        figure.legend(
            *variance_axes.get_legend_handles_labels(), ncols=2, loc="upper right",
            bbox_to_anchor=(0.99, 1.0 - 0.6 / height),
        )  # fmt: skip
    return figure


def _format_value(name: str, value: float) -> str:
    """Write the value of a result with its unit."""
    column = find_result(name)
    return units.show(value, "" if column is None else column.unit)
