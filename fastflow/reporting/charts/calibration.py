"""Figure of a calibration: what it changed, and what that does to the errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import APART, head
from fastflow.reporting.colours import INK

_WIDTH, _BAR = 9.0, 0.34


def draw(scalars: pd.DataFrame, errors: pd.DataFrame) -> Figure:
    """Draw every scalar as a multiple of what it was, with its standard error, and the errors beside.

    scalars, errors: the frames of a calibration.
    """
    height = 1.9 + 0.3 * max(len(scalars), 4)
    figure = Figure(figsize=(_WIDTH, height))
    held = errors.iloc[-1]
    title = f"Mean relative error {held['before']:.1%} before, {held['after']:.1%} after"
    about = f"on {held['rows']:,} rows that were held back; {errors.iloc[0]['rows']:,} were fitted"
    head(figure, title, about)
    grid = figure.add_gridspec(
        1, 2, left=0.2, right=0.98, bottom=0.5 / height, top=1.0 - 0.95 / height, wspace=0.2,
        width_ratios=[1.6, 1.0],
    )  # fmt: skip
    left, right = (figure.add_subplot(grid[0, place]) for place in range(2))
    before = scalars["before"].to_numpy(np.float64)
    ratio, spread = (scalars[name].to_numpy(np.float64) / before for name in ("after", "standard_error"))
    at = np.arange(len(scalars))
    left.axvline(1.0, color=INK, linewidth=0.8)
    left.errorbar(ratio, at, xerr=np.nan_to_num(spread), fmt="o", color=APART[0], markersize=5.0, capsize=2.5)
    left.set_yticks(at, list(scalars["scalar"]))
    left.set_ylim(len(scalars) - 0.5, -0.5)
    left.grid(axis="x")
    left.grid(visible=False, axis="y")
    left.set_title("Scalars, after over before")
    at = np.arange(len(errors))
    for place, (name, colour) in enumerate((("before", APART[7]), ("after", APART[0]))):
        bars = right.bar(at + (place - 0.5) * _BAR, errors[name], width=_BAR, color=colour, label=name)
        right.bar_label(bars, fmt="{:.1%}", fontsize=7.5, padding=1.0)
    right.set_xticks(at, list(errors["rows_of"]))
    right.yaxis.set_major_formatter("{x:.0%}")
    right.margins(y=0.3)
    right.set_title("Mean relative error")
    right.legend(loc="upper center", ncols=2)
    return figure
