"""Figure of a validation: predicted against measured times, like the paper's Figures 6 to 8."""

from __future__ import annotations

from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.tables import Floats
from fastflow.reporting.charts.style import LIMITERS, draw_heading
from fastflow.reporting.colours import INK, QUIET

_COLOURS = LIMITERS | {
    "launch": "#f2c14e",
    "network": "#b5179e",
    "latency": "#b5a7d6",
    "pipeline": "#3a0ca3",
    "host": "#8d99ae",
}
"""Colours of limiters; that of launches is stronger than in bars."""
_LIBRARIES = (
    "#26547c",
    "#ef476f",
    "#06a77d",
    "#ff9f1c",
    "#7b2cbf",
    "#8d99ae",
    "#a44a3f",
    "#118ab2",
    "#5c677d",
)
"""Colours of training libraries, in the order of their names."""
_BAND = 0.2
_MAX_VECTOR_DOTS = 1000  # dots; more are rasterized, since vector dots would take megabytes


def draw(rows: pd.DataFrame, about: str) -> Figure:
    """Draw predicted over measured times, a dot a row in the colour of its limiter.

    Dots of training runs have the colour of the training library. rows: with `measured_s`,
    `predicted_s` [s] and `bound_by`, or `library`; about: the subtitle after the number of rows.
    """
    rows = rows[rows["predicted_s"].notna()]
    measured, predicted = (rows[name].to_numpy(np.float64) for name in ("measured_s", "predicted_s"))
    figure = Figure(figsize=(5.8, 5.9))
    error = float(np.mean(np.abs(predicted - measured) / measured))
    varies = min(np.ptp(measured), np.ptp(predicted)) > 0.0
    correlation = np.corrcoef(np.log(measured), np.log(predicted))[0, 1] if varies else np.nan
    correlation_note = f", correlation of logs {correlation:.4f}" if correlation == correlation else ""
    draw_heading(figure, f"Mean relative error {error:.1%}{correlation_note}", f"{measured.size:,} {about}")
    axes = figure.add_axes((0.115, 0.085, 0.86, 0.78))
    all_times = np.concatenate([measured, predicted])
    low, high = all_times.min() / 1.5, all_times.max() * 1.5
    _draw_band(axes, low, high)
    group_column, title = ("library", "trained by") if "library" in rows else ("bound_by", "bound by")
    group = rows[group_column].astype(str).to_numpy()
    colours = (
        _COLOURS
        if group_column == "bound_by"
        else dict(zip(sorted({*group}), cycle(_LIBRARIES), strict=False))
    )
    for name in [*colours, *sorted(set(group) - colours.keys())]:
        dots = group == name
        if dots.any():
            axes.plot(
                measured[dots], predicted[dots], "o", color=colours.get(name, QUIET), markeredgewidth=0.0,
                markersize=2.2 if measured.size > _MAX_VECTOR_DOTS else 4.0, alpha=0.75,
                rasterized=measured.size > _MAX_VECTOR_DOTS, label=f"{name} ({dots.sum():,})", zorder=2,
            )  # fmt: skip
    handles, names = axes.get_legend_handles_labels()
    legend = axes.legend(
        [*handles[1:], handles[0]], [*names[1:], names[0]],
        title=title, loc=_legend_corner(measured, predicted),
        markerscale=2.0 if measured.size > _MAX_VECTOR_DOTS else 1.2, alignment="left",
    )  # fmt: skip
    legend.get_title().set_color(QUIET)
    return figure


def _legend_corner(measured: Floats, predicted: Floats) -> Literal["upper left", "lower right"]:
    """Return the corner off the diagonal that has fewer dots."""
    middle = np.sqrt(
        np.concatenate([measured, predicted]).min() * np.concatenate([measured, predicted]).max()
    )
    above = np.sum((measured < middle) & (predicted > middle))
    return "lower right" if above > np.sum((measured > middle) & (predicted < middle)) else "upper left"


def _draw_band(axes: Axes, low: float, high: float) -> None:
    """Draw the axes, the line of no error, and the band of 20% around it."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.grid(visible=True, which="major", axis="both")
    ends = np.array([low, high])
    axes.fill_between(
        ends, ends * (1.0 - _BAND), ends * (1.0 + _BAND), color="#e6ebf0", linewidth=0.0, zorder=1,
        label=f"within {_BAND:.0%}",
    )  # fmt: skip
    axes.plot(ends, ends, color=INK, linewidth=0.8, zorder=1.5)
    axes.set_xlabel("measured [s]")
    axes.set_ylabel("predicted [s]")
