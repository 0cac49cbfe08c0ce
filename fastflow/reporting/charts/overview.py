"""Overview figure of any grid: for every axis the best time of each value, and its limiters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.charts.style import (
    LIMITERS,
    SEQUENTIAL,
    display_name,
    draw_heading,
    draw_limiter_legend,
    draw_limiter_shares,
)
from fastflow.reporting.dataset_title import points_title
from fastflow.schema import band_of, find_input, find_result

if TYPE_CHECKING:
    from fastflow.engine.dataset.reader import Dataset

CHOICES = ("tech", "mem", "net", "chip", "system", "model", "strategy", "placement_requested", "tiling")
"""Result columns that are choices; any column that is no result is an axis too."""
_ORDERED = ("tech", "mem", "net")
"""Choices ordered by generation."""
_WINNERS = ("strategy", "layer_strategies")
_STORED = {"placement": "placement_requested"}
"""Input columns by the key of an axis, for keys that are names of results too."""
REQUIRED = ("time_s", "feasible", "bound_by", "reason")
_MAX_VALUES = 24  # of an axis that are shown
_MAX_LETTERS = 16  # of a label
_MILLION = 1e6  # whole numbers from here on have a unit prefix
_ACROSS = 4  # axes side by side
_LABEL, _POINTS = 7.5, 72.0  # size of a label [pt], and of an inch
_WIDTH, _HEIGHT, _TOP = 13.0, 5.6, 0.85  # of the figure, of a row of panels, and of the title [inch]


class ValueSummary(NamedTuple):
    """Summary of a value of an axis."""

    name: str
    points: int
    feasible: int
    median_s: float
    best_s: float
    """Time of the fastest feasible point, or of the fastest if none is feasible; NaN if none has a time."""
    low_s: float
    """The 10th percentile of it, NaN without samples."""
    high_s: float
    """The 90th percentile of it."""
    bound_by: str
    shares: dict[str, float]
    """Share of that point's kernel time by limiter."""


class AxisSummary(NamedTuple):
    """Summary of an axis: numbers in ascending order, texts in the order of the dataset."""

    key: str
    choices: list[ValueSummary]
    ordered: bool
    """Whether the values have an order, as numbers and generations do."""


def columns_of(names: Sequence[str], axes: Sequence[str] = ()) -> list[str]:
    """Return the columns of a dataset that an overview reads; axes: swept keys, empty if unknown."""
    shares = [f"{name}_bound_frac" for name in LIMITERS if f"{name}_bound_frac" in names]
    bands = [name for name in band_of("time_s") if name in names]
    winners = [name for name in _WINNERS if name in names]
    codes = ["reason_code"] if "reason_code" in names else []  # older datasets lack it
    return list(
        dict.fromkeys(
            [*choice_columns(names), *stored_columns(axes), *winners, *REQUIRED, *codes, *bands, *shares]
        )
    )


def stored_columns(axes: Sequence[str]) -> list[str]:
    """Return the columns of the axes of a grid, by their keys."""
    return [_STORED.get(key, key) for key in axes]


def choice_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that may be axes; `parallel.strategy` instead of the resolved strategy."""
    known = CHOICES if "parallel.strategy" not in names else [key for key in CHOICES if key != "strategy"]
    return [name for name in names if name in known or find_result(name) is None]


def best_first(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points with a time: feasible points first, the fastest first."""
    timed = frame[frame["time_s"].notna()]
    return timed.sort_values(["feasible", "time_s", "point"], ascending=[False, True, True])


def axes_of(frame: pd.DataFrame, axis_keys: Sequence[str] = ()) -> list[AxisSummary]:
    """Return summaries of the axes that vary, with each value; of the strategy if nothing varies.

    axis_keys: swept keys, empty if unknown.
    """
    ranked = best_first(frame)
    keys = swept_columns(frame, axis_keys) or [choice_columns(frame.columns.tolist())[-1]]
    return [AxisSummary(key, _values(frame, ranked, key), _is_ordered(frame, key)) for key in keys]


def _is_ordered(frame: pd.DataFrame, key: str) -> bool:
    """Return whether the values of an axis have an order."""
    is_number = pd.api.types.is_numeric_dtype(frame[key]) and not pd.api.types.is_bool_dtype(frame[key])
    return key in _ORDERED or is_number


def swept_columns(frame: pd.DataFrame, axes: Sequence[str] = ()) -> list[str]:
    """Return the axes that vary; of columns that vary together the first."""
    kept: list[str] = []
    codes = {
        key: pd.factorize(frame[key])[0]
        for key in stored_columns(axes) or choice_columns(frame.columns.tolist())
    }
    for key, code in codes.items():
        pair_counts = (pd.unique(pd.Series(code) * (len(frame) + 1) + codes[other]).size for other in kept)
        is_duplicate = any(
            pair_count == code.max() + 1 == codes[other].max() + 1
            for pair_count, other in zip(pair_counts, kept, strict=False)
        )
        if code.max() > 0 and not is_duplicate:
            kept.append(key)
    return kept


def _values(frame: pd.DataFrame, ranked: pd.DataFrame, key: str) -> list[ValueSummary]:
    """Return summaries of the values of an axis; ranked: the points with a time, best first."""
    counts = frame.groupby(key, observed=True, sort=False)["feasible"].agg(["size", "sum"])
    median = ranked.groupby(key, observed=True)["time_s"].median()
    rows = ranked.drop_duplicates(key).set_index(key)
    unique = frame[key].dropna().unique().tolist()
    names = sorted(unique) if pd.api.types.is_numeric_dtype(frame[key]) else unique
    values = []
    for name in names:
        row: dict[str, Any] = rows.loc[name].to_dict() if name in rows.index else {}
        shares = {
            limiter: row[f"{limiter}_bound_frac"] for limiter in LIMITERS if f"{limiter}_bound_frac" in row
        }
        values.append(
            ValueSummary(
                name=label(key, name),
                points=int(counts.loc[name, "size"]),
                feasible=int(counts.loc[name, "sum"]),
                median_s=float(median.get(name, float("nan"))),
                best_s=row.get("time_s", float("nan")),
                low_s=row.get("time_s_p10", float("nan")),
                high_s=row.get("time_s_p90", float("nan")),
                bound_by=str(row["bound_by"]) if isinstance(row.get("bound_by"), str) else "",
                shares={limiter: share for limiter, share in shares.items() if share == share},
            )
        )
    return values


def label(key: str, value: Any) -> str:
    """Write a value of an axis."""
    column = find_input(key)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if column is not None and column.unit:
        return units.show(float(value), column.unit)
    return f"{int(value)}" if value == int(value) and abs(value) < _MILLION else units.show(float(value), "")


def draw_dataset(dataset: Dataset) -> Figure:
    """Draw a grid as `draw`; raises InputError where the dataset is none."""
    axis_keys = dataset.texts("axes") if dataset.about("axes") else []
    frame = dataset.read(columns_of(dataset.schema.names, axis_keys))
    return draw(axes_of(frame, axis_keys), points_title(dataset, pluralize(len(frame), "point")))


def draw(axes: Sequence[AxisSummary], title: str) -> Figure:
    """Draw the best and the median time over every axis, and the limiters of the best points."""
    rows, across = ceil(len(axes) / _ACROSS), min(len(axes), _ACROSS)
    height = _TOP + rows * _HEIGHT
    figure = Figure(figsize=(_WIDTH, height))
    about = "best and median time along each axis, and what limits the kernels of the best points"
    draw_heading(figure, title, f"{about}{_feasible(axes)}")
    scale = _scale(axes)
    for index, axis in zip(count(), axes, strict=False):
        row, column = divmod(index, _ACROSS)
        shown = shown_of(axis)
        panel_width = (_WIDTH - 0.95) / max(across, 2)  # a single axis does not fill the figure
        left, wide = 0.75 + column * panel_width, panel_width - 0.6
        base = height - _TOP - (row + 1) * _HEIGHT
        above, below = (
            figure.add_axes((left / _WIDTH, (base + bottom) / height, wide / _WIDTH, tall / height))
            for bottom, tall in ((3.05, 2.1), (1.15, 1.55))
        )
        _draw_times(above, shown, scale.size, axis.ordered)
        above.set_title(title_of(axis))
        draw_limiter_shares(below, [_short(value.name) for value in shown], _shares(shown))
        _rotate_labels(below, wide)
        if not column:
            above.set_ylabel(f"time [{scale.name}]")
            below.set_ylabel("share of kernel time")
    if axes:
        figure.axes[0].legend(loc="best")
    draw_limiter_legend(figure, 0.75 / _WIDTH, 0.12 / height)
    return figure


def _feasible(axes: Sequence[AxisSummary]) -> str:
    """Return a note on the number of feasible points; "" if all are."""
    values = axes[0].choices if axes else []
    points, feasible = sum(value.points for value in values), sum(value.feasible for value in values)
    return f"; {feasible or 'none'} of {points:,} points feasible" if feasible < points else ""


def _rotate_labels(panel: Axes, wide: float) -> None:
    """Rotate labels that would overlap: aslant, or upright and small if there are many."""
    labels = panel.get_xticklabels()
    spacing = wide / len(labels)
    panel.tick_params(axis="x", labelsize=min(_LABEL, 0.8 * _POINTS * spacing))
    if sum(len(text.get_text()) + 2 for text in labels) > 16 * wide:
        rotation = {"rotation": 90, "va": "center"} if spacing < 1.5 * _LABEL / _POINTS else {"rotation": 55}
        for text in labels:
            text.set(ha="right", rotation_mode="anchor", **rotation)


def _draw_times(panel: Axes, shown: Sequence[ValueSummary], scale: float, ordered: bool) -> None:
    """Draw the best and the median time over the values of an axis; joined by lines where it is ordered."""
    at = range(len(shown))
    for name, colour, style in (("best", SEQUENTIAL[2], "-"), ("median", "#8899aa", "--")):
        times = [getattr(value, f"{name}_s") / scale for value in shown]
        lows, highs = ([getattr(value, end) / scale for value in shown] for end in ("low_s", "high_s"))
        if name == "best" and any(low == low for low in lows):
            if ordered:
                panel.fill_between(at, lows, highs, color=colour, alpha=0.2, linewidth=0, label="10% to 90%")
            else:
                panel.vlines(at, lows, highs, color=colour, alpha=0.2, linewidth=5, label="10% to 90%")
        panel.plot(
            at, times, color=colour, linestyle=style if ordered else "", marker="o", linewidth=1.6,
            label=name,
            markersize=4 if ordered or name == "best" else 7, zorder=3 if name == "best" else 2,
        )  # fmt: skip
    times = [time for value in shown for time in (value.best_s, value.median_s, value.high_s) if time == time]
    if times and max(times) > 20.0 * min(times):
        panel.set_yscale("log")
    else:
        panel.set_ylim(0.0, 1.08 * max(times, default=1.0) / scale)
    panel.set_xlim(-0.6, len(shown) - 0.4)
    panel.set_xticks(at, [])


def _scale(axes: Sequence[AxisSummary]) -> units.Scale:
    """Return the unit of the drawn times."""
    times = [value.best_s for axis in axes for value in axis.choices if value.best_s == value.best_s]
    return units.scale_of(max(times, default=1.0), "s")


def shown_of(axis: AxisSummary) -> list[ValueSummary]:
    """Return the values of an axis that are shown: all, or the best of many."""
    if len(axis.choices) <= _MAX_VALUES:
        return axis.choices
    order = sorted(
        range(len(axis.choices)), key=lambda i: (axis.choices[i].feasible == 0, axis.choices[i].best_s)
    )
    return [axis.choices[i] for i in sorted(order[:_MAX_VALUES])]


def _shares(shown: Sequence[ValueSummary]) -> dict[str, list[float]]:
    names = [name for name in LIMITERS if any(name in value.shares for value in shown)]
    return {name: [value.shares.get(name, 0.0) for value in shown] for name in names}


def title_of(axis: AxisSummary) -> str:
    """Return the name of an axis, and the number of shown values."""
    count = len(axis.choices)
    return axis.key if count <= _MAX_VALUES else f"{axis.key}: best {_MAX_VALUES} of {count:,}"


def _short(name: str) -> str:
    name = display_name(name)
    return name if len(name) <= _MAX_LETTERS else name[: _MAX_LETTERS - 1] + "…"
