"""Output of a calibration: every scalar before and after, and the errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from fastflow.analysis.calibration.fitted_chip import FittedChip, error_frame, scalar_frame
from fastflow.analysis.calibration.robust_fit import AT_BOUND, NOT_DETERMINED
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.terminal.tables import Part, console, new_sheet, print_parts, records

if TYPE_CHECKING:
    import pandas as pd


def show(fitted: FittedChip) -> None:
    """Print a calibration, and how its files were read."""
    out, task = console(), fitted.task
    scalars, errors = scalar_frame(fitted), error_frame(fitted)
    plans = [planned.measurements for planned in task.planned]
    files = ", ".join(f"{Path(planned.file.path).name} ({planned.name})" for planned in plans)
    out.print(f"[bold]{pluralize(task.measured.size, 'row')} of {files} on {task.chip}[/]")
    for line in dict.fromkeys(line for planned in plans for line in planned.notes()):
        out.print(line, markup=False)
    count = dict(zip(errors["rows_of"], errors["rows"], strict=True))
    num_failed = task.measured.size - sum(count.values())
    if num_failed:
        out.print(f"left out, since no time can be predicted: {pluralize(num_failed, 'row')}")
    if task.fitted.size < count["fitted"]:
        out.print(f"{task.fitted.size:,} of the {count['fitted']:,} rows to fit are used, drawn at random")
    print_parts(parts(scalars, errors))
    out.print()
    print(summary(errors))


def summary(errors: pd.DataFrame) -> str:
    """Return the mean error on the held-out rows as a sentence; errors: of a calibration."""
    held_out = errors.iloc[-1]
    return f"held-back fifth: mean relative error {held_out['after']:.1%} (before: {held_out['before']:.1%})"


def parts(scalars: pd.DataFrame, errors: pd.DataFrame) -> Iterator[Part]:
    """Yield the tables of a calibration: its scalars, those at a bound, and its errors."""
    sheet = new_sheet(
        "Scalars", [("chip.", False), ("before", True), ("after", True), ("std. error", True), ("", False)]
    )
    for row in records(scalars):
        is_undetermined = row["state"] == NOT_DETERMINED
        before, after, error = (
            _format_scalar(float(row[name]), row["unit"]) for name in ("before", "after", "standard_error")
        )
        state = "not determined by these rows, not changed" if is_undetermined else row["state"]
        sheet.add_row(row["scalar"], before, after, error, "" if state == "fitted" else state)
    yield sheet
    for row in records(scalars):
        if row["state"] == AT_BOUND:
            yield Text(f"{row['scalar']} is at its bound: the model lacks something there")
    sheet = new_sheet("Mean relative error", [("", False), ("rows", True), ("before", True), ("after", True)])
    for row in records(errors):
        sheet.add_row(row["rows_of"], f"{row['rows']:,}", f"{row['before']:.1%}", f"{row['after']:.1%}")
    yield sheet


def _format_scalar(value: float, unit: str) -> str:
    """Write a scalar, or its standard error, which may be NaN."""
    return units.show(value, unit, 4)
