"""Overview of any grid: feasible points, the fastest points, and the best time along every axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fastflow.config.messages import pluralize
from fastflow.core.units import percent
from fastflow.reporting.charts.overview import (
    AxisSummary,
    axes_of,
    best_first,
    columns_of,
    draw,
    shown_of,
    title_of,
)
from fastflow.reporting.charts.style import LIMITERS
from fastflow.reporting.dataset_title import points_title
from fastflow.reporting.terminal.digest import best_title, counts_of_codes, words_of_kind
from fastflow.reporting.terminal.grid_columns import with_winners
from fastflow.reporting.terminal.tables import (
    assumptions_of,
    console,
    listing,
    new_sheet,
    print_parts,
    quantity,
    records,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table as Sheet

    from fastflow.engine.dataset.reader import Dataset

_BEST = 10  # points listed


def report(
    dataset: Dataset, save: Callable[[Callable[[], Figure]], None], chosen: Sequence[str] = ()
) -> None:
    """Print tables on a dataset, and draw its axes; raises InputError.

    chosen: columns of the fastest points instead of the default results.
    """
    axis_keys = dataset.texts("axes") if dataset.about("axes") else []
    frame = dataset.read(list(dict.fromkeys([*columns_of(dataset.schema.names, axis_keys), *chosen])))
    axes = axes_of(frame, axis_keys)
    out = console()
    for line in _counts(dataset, frame, axes):
        out.print(line)
    print_parts(assumptions_of(dataset))
    best = records(best_first(frame).head(_BEST))
    results = chosen or ("time_s", "bound_by", "feasible")
    title = best_title(serves=False, is_feasible=bool(frame["feasible"].any()))
    columns = [*with_winners([axis.key for axis in axes], best), *results]
    out.print(listing(title, list(dict.fromkeys(columns)), best))
    for axis in axes:
        out.print(_sheet(axis))
    out.print()
    save(partial(draw, axes, points_title(dataset, pluralize(len(frame), "point"))))


def _counts(dataset: Dataset, frame: pd.DataFrame, axes: list[AxisSummary]) -> list[str]:
    """Return lines on the number of points, the axes, and the number of feasible points."""
    total = f" of {dataset.grid_points:,}; the run was cut short" if dataset.grid_points > len(frame) else ""
    varies = ", ".join(f"{axis.key} ({len(axis.choices):,})" for axis in axes)
    lines = [f"{dataset.folder.shown}: {pluralize(len(frame), 'point')}{total}; {varies}"]
    timed = frame["time_s"].notna()
    lines.append(f"{int(frame['feasible'].sum()):,} feasible")
    for singular, plural, rows in (
        ("does not fit its memory", "do not fit their memory", timed & ~frame["feasible"]),
        ("has no time", "have no time", ~timed),
    ):
        if rows.any():
            first = frame[rows].iloc[0]
            count = int(rows.sum())
            codes = frame.loc[rows, "reason_code"] if "reason_code" in frame else ()
            words = words_of_kind((singular, plural), codes)
            said = f"{count:,} {words[count > 1]}{counts_of_codes(frame[rows])}"
            lines.append(f"{said}; point {first['point']:,}: {first['reason']}")
    return lines


def _sheet(axis: AxisSummary) -> Sheet:
    """Return a table of the values of an axis, with the limiters of the kernels of the best point of each."""
    shown = shown_of(axis)
    limits = [name for name in LIMITERS if any(value.shares.get(name, 0.0) >= 0.005 for value in shown)]
    names = [("points", True), ("feasible", True), ("best", True), ("median", True), ("bound by", False)]
    sheet = new_sheet(f"By {title_of(axis)}", [(axis.key, False), *names, *((name, True) for name in limits)])
    for value in shown:
        sheet.add_row(
            value.name,
            f"{value.points:,}",
            f"{value.feasible:,}",
            quantity("time_s", value.best_s),
            quantity("time_s", value.median_s),
            value.bound_by,
            *(percent(value.shares[name]) if name in value.shares else "-" for name in limits),
        )
    return sheet
