"""Figure of a calibration: the changes of scalars, and the errors before and after."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import INK

_WIDTH, _BAR = 9.0, 0.34


def draw(scalars: pd.DataFrame, errors: pd.DataFrame) -> Figure:
    """Draw every scalar relative to its value before, with its standard error, and the errors.

    scalars, errors: the frames of a calibration.
    """
    height = 1.9 + 0.3 * max(len(scalars), 4)
    figure = Figure(figsize=(_WIDTH, height))
    held_out = errors.iloc[-1]
    title = f"Mean relative error {held_out['before']:.1%} before, {held_out['after']:.1%} after"
    about = f"on {held_out['rows']:,} rows that were held back; {errors.iloc[0]['rows']:,} were fitted"
    draw_heading(figure, title, about)
    grid = figure.add_gridspec(
        1, 2, left=0.2, right=0.98, bottom=0.5 / height, top=1.0 - 0.95 / height, wspace=0.2,
        width_ratios=[1.6, 1.0],
    )  # fmt: skip
    left, right = (figure.add_subplot(grid[0, index]) for index in range(2))
    before = scalars["before"].to_numpy(np.float64)
    ratio, relative_error = (
        scalars[name].to_numpy(np.float64) / before for name in ("after", "standard_error")
    )
    positions = np.arange(len(scalars))
    left.axvline(1.0, color=INK, linewidth=0.8)
    left.errorbar(
        ratio,
        positions,
        xerr=np.nan_to_num(relative_error),
        fmt="o",
        color=QUALITATIVE[0],
        markersize=5.0,
        capsize=2.5,
    )
    left.set_yticks(positions, list(scalars["scalar"]))
    left.set_ylim(len(scalars) - 0.5, -0.5)
    left.grid(axis="x")
    left.grid(visible=False, axis="y")
    left.set_title("Scalars, after over before")
    positions = np.arange(len(errors))
    for index, (name, colour) in enumerate((("before", QUALITATIVE[7]), ("after", QUALITATIVE[0]))):
        bars = right.bar(positions + (index - 0.5) * _BAR, errors[name], width=_BAR, color=colour, label=name)
        right.bar_label(bars, fmt="{:.1%}", fontsize=7.5, padding=1.0)
    right.set_xticks(positions, list(errors["rows_of"]))
    right.yaxis.set_major_formatter("{x:.0%}")
    right.margins(y=0.3)
    right.set_title("Mean relative error")
    right.legend(loc="upper center", ncols=2)
    return figure
