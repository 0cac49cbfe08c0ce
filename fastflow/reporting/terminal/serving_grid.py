"""Report on a dataset of points that serve: the front of their rates, and every line through the loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fastflow.config.messages import pluralize
from fastflow.core.reasons.codes import Code
from fastflow.reporting.charts.serving import (
    DEVICE,
    PROMPTS,
    USER,
    Lines,
    columns_of,
    draw,
    has_code,
    latencies_of,
    lines_of,
)
from fastflow.reporting.dataset_title import points_title
from fastflow.reporting.terminal.digest import counts_of_codes
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

_MAX_ROWS = 20  # rows of a table


def report(
    dataset: Dataset, save: Callable[[Callable[[], Figure]], None], chosen: Sequence[str] = ()
) -> None:
    """Print tables on a dataset of points that serve, and draw them; raises InputError.

    chosen: columns of the front instead of the default results, or of the first points without a front.
    """
    columns = columns_of(dataset.schema.names)
    frame = dataset.read(columns)
    lines = lines_of(frame)
    out = console()
    for line in _counts(dataset, frame, lines):
        out.print(line)
    print_parts(assumptions_of(dataset))
    if lines.front.size:
        more_columns = [name for name in chosen if name not in columns]
        more_results = dataset.read(["point", *more_columns]).set_index("point") if more_columns else None
        out.print(_front(lines, chosen, more_results))
    elif chosen:
        rows = dataset.read(list(dict.fromkeys(["point", *chosen]))).head(_MAX_ROWS)
        out.print(listing(f"First {pluralize(len(rows), 'point')}", chosen, records(rows)))
    if len(lines.frame):
        out.print(_lines(lines))
    out.print()
    save(partial(draw, lines, f"Serving: {points_title(dataset, pluralize(len(frame), 'point'))}"))


def _counts(dataset: Dataset, frame: pd.DataFrame, lines: Lines) -> list[str]:
    """Return lines on the number of points, the feasible points, and the first infeasible point of a kind."""
    total = f" of {dataset.grid_points:,}; the run was cut short" if dataset.grid_points > len(frame) else ""
    points, count = pluralize(len(frame), "point"), pluralize(len(lines.names), "line")
    report_lines = [f"{dataset.folder.shown}: {points}{total}, {count}"]
    report_lines.append(f"{int(frame['feasible'].sum()):,} feasible")
    late = lines.frame[lines.frame["late"]]
    others = frame[~frame["feasible"] & ~frame["point"].isin(late["point"])]
    overloaded = has_code(others, Code.OVERLOAD)
    kinds = {
        "late": late, "overloaded": others[overloaded], "without results or memory": others[~overloaded],
    }  # fmt: skip
    for kind, rows in kinds.items():
        if len(rows):
            first = rows.iloc[0]
            codes = counts_of_codes(rows)
            report_lines.append(f"{len(rows):,} {kind}{codes}; point {first['point']:,}: {first['reason']}")
    return report_lines


def _front(lines: Lines, chosen: Sequence[str], more_results: pd.DataFrame | None) -> Sheet:
    """Return the points that no other beats in the rates of devices and of users.

    chosen: columns instead of the default results; more_results: those that lines do not have.
    """
    load = [lines.load] if lines.load and lines.load not in chosen else []
    rows = lines.frame.loc[lines.front]
    rows = rows if more_results is None else rows.join(more_results, on="point")
    shown = chosen or [*latencies_of(rows), DEVICE, USER, "joules_per_token"]
    title = f"Front of {pluralize(len(rows), 'point')}" + (
        f", the first {_MAX_ROWS}" if len(rows) > _MAX_ROWS else ""
    )
    names = [("point", True), ("line", False), *((name, True) for name in (*load, *shown))]
    sheet = new_sheet(title, names)
    for row in records(rows.head(_MAX_ROWS)):
        cells = (quantity(name, row[name]) for name in (*load, *shown))
        sheet.add_row(f"{row['point']:,}", row["line"], *cells)
    return sheet


def _lines(lines: Lines) -> Sheet:
    """Return the best results of every line, of its points in time if it has any."""
    rate = DEVICE if lines.frame[DEVICE].notna().any() else PROMPTS
    names = ["line", "points", "late", rate, USER, *latencies_of(lines.frame), "joules_per_token"]
    names = [name for name in names if name not in lines.frame or lines.frame[name].notna().any()]
    best = [name for name in names if name not in ("line", "points", "late")]
    sheet = new_sheet("Best of each line", [(name, name != "line") for name in names])
    groups = []
    for name, rows in lines.frame.groupby("line", sort=False):
        rows_in_time = rows[~rows["late"]] if (~rows["late"]).any() else rows
        values = {
            column: rows_in_time[column].max() if column in (rate, USER) else rows_in_time[column].min()
            for column in best
        }
        groups.append((str(name), len(rows), int(rows["late"].sum()), values))
    groups.sort(key=lambda group: -group[3][rate])
    for name, points, late, values in groups[:_MAX_ROWS]:
        cells = (quantity(_UNIT.get(column, column), value) for column, value in values.items())
        sheet.add_row(name, f"{points:,}", f"{late:,}", *cells)
    if len(groups) > _MAX_ROWS:
        sheet.add_row(f"{len(groups) - _MAX_ROWS:,} others")
    return sheet


_UNIT = {PROMPTS: "prefill_tokens_per_s"}
"""Columns with the unit of a column that datasets do not have."""
