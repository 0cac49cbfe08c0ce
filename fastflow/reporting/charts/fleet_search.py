"""Figures of a search over fleets: the front of two objectives, and servers over the periods of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import QUIET
from fastflow.schema import result_column

_MAX_NAMED = 8
"""Fleets of a front whose keys are written next to their marks."""
_STRATEGY = {"parallel.strategy": "strategy"}
"""Keys whose result column has what a search chose for auto."""


def columns_of_keys(about: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    """Return the columns of the swept keys; about: `fastflow.fleets` of the metadata."""
    names = [_STRATEGY.get(key, key) for key in about["keys"]]
    return [name for name in dict.fromkeys(names) if name in frame]


def differing(about: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    """Return the columns of swept keys whose values differ among rows; all where none does."""
    names = columns_of_keys(about, frame)
    return [name for name in names if len(frame[name].unique()) > 1] or names


def draw_front(frame: pd.DataFrame, about: Mapping[str, Any]) -> Figure:
    """Draw the fleets that meet the constraints by both objectives, and the front.

    frame: of a ranking; about: as of `columns_of_keys`.
    """
    figure = Figure(figsize=(7.6, 4.8))
    axes = figure.add_axes((0.1, 0.12, 0.86, 0.7))
    meets = frame[frame["meets_constraints"]]
    front = meets[meets["on_front"]].sort_values("objective")
    constraints = f", with {', '.join(about['constraints'])}" if about["constraints"] else ""
    note = f"{pluralize(len(front), 'fleet')} on the front, of {about['points']:,}{constraints}"
    draw_heading(figure, f"Fleets by {about['objective']} and {about['pareto']}", note)
    scaled = {}
    for column, name, label in (
        ("objective", about["objective"], axes.set_xlabel),
        ("second_objective", about["pareto"], axes.set_ylabel),
    ):
        scale = units.scale_of(
            float(meets[column].abs().max()) if len(meets) else 1.0, result_column(name).unit
        )
        scaled[column] = meets[column] / scale.size, front[column] / scale.size
        label(f"{name} [{scale.name}]" if scale.name else name)
    (x, front_x), (y, front_y) = scaled["objective"], scaled["second_objective"]
    axes.plot(x, y, "o", color="#c9d3dc", markersize=3.5, label="meets the constraints")
    axes.plot(front_x, front_y, "-o", color=QUALITATIVE[0], markersize=4.5, linewidth=1.0, label="front")
    _name_fleets(axes, front, differing(about, front), front_x, front_y)
    if front.empty:
        axes.text(
            0.5, 0.5, "no fleet meets the constraints", transform=axes.transAxes, ha="center", color=QUIET
        )
    axes.legend(loc="upper right")
    return figure


def _name_fleets(axes: Axes, front: pd.DataFrame, names: Sequence[str], x: Any, y: Any) -> None:
    """Write the keys of fleets next to their marks, of some at even distances."""
    rows = np.unique(np.linspace(0, len(front) - 1, min(len(front), _MAX_NAMED)).round().astype(int))
    for row in rows.tolist() if len(front) else []:
        text = ", ".join(_text(name, front.iloc[row][name]) for name in names)
        axes.annotate(
            text, (x.iloc[row], y.iloc[row]), (4, 4), textcoords="offset points", fontsize=7, color=QUIET
        )


def _text(name: str, value: Any) -> str:
    """Write the value of a key; of a number with the last part of its name."""
    return value if isinstance(value, str) else f"{name.rpartition('.')[2]} {value:g}"


def draw_plan(frame: pd.DataFrame, about: Mapping[str, Any]) -> Figure:
    """Draw the rate of arrivals, devices and the objective over the periods of a plan."""
    by_devices = about["objective"] == "devices"
    panels = 2 if by_devices else 3
    height = 0.95 + 1.8 * panels
    figure = Figure(figsize=(8.0, height))
    rows = figure.subplots(panels, 1, sharex=True)
    figure.subplots_adjust(left=0.09, right=0.97, top=1.0 - 0.95 / height, bottom=0.5 / height, hspace=0.42)
    hours = frame["period_start_s"] / 3600.0
    width = float(frame["period_s"].iloc[0]) / 3600.0
    rows[0].bar(hours, frame["arrivals_per_s"], width=width, align="edge", color=QUALITATIVE[0], alpha=0.85)
    rows[0].set_title("Requests that arrive [1/s]")
    edges = np.append(hours.to_numpy(), hours.iloc[-1] + width)
    named = [("devices", "Devices")]
    if not by_devices:
        unit = result_column(about["objective"]).unit
        named.append(("objective", f"{about['objective']} [{unit}]" if unit else about["objective"]))
    for axes, (name, title) in zip(rows[1:], named, strict=True):
        for column, colour, line, label in (
            (f"fixed_{name}", QUALITATIVE[1], "--", "best fixed fleet"),
            (name, QUALITATIVE[0], "-", "best fleet of each period"),
        ):
            values = frame[column].astype(float).to_numpy()
            if np.isfinite(values).any():
                axes.stairs(values, edges, color=colour, linestyle=line, label=label, baseline=None)
        axes.set_title(title)
        axes.set_ylim(bottom=0.0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, borderaxespad=0.0)
    rows[-1].set_xlabel("time [h]")
    text = ", ".join(about["constraints"])
    note = f"{pluralize(len(frame), 'period')}{f', with {text}' if text else ''}"
    draw_heading(figure, f"Capacity plan by {about['objective']}", note)
    return figure
