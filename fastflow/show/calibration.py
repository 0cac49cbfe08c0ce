"""Output of a calibration: every scalar before and after, and the errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastflow import units
from fastflow.measured.least_squares import NOT_DETERMINED
from fastflow.show.tables import console, new_sheet, records

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.measured.calibrate import Asked


def show(asked: Asked, said: Sequence[str], scalars: pd.DataFrame, errors: pd.DataFrame) -> None:
    """Print a calibration; said: what is to be known of how the files were read."""
    out = console()
    files = ", ".join(
        f"{Path(one.measurements.path).name} ({one.measurements.kind.name})" for one in asked.planned
    )
    out.print(f"[bold]{asked.measured.size:,} rows of {files} on {asked.chip}[/]")
    for line in said:
        out.print(line, markup=False)
    count = dict(zip(errors["rows_of"], errors["rows"], strict=True))
    lost = asked.measured.size - sum(count.values())
    if lost:
        out.print(f"{lost:,} rows cannot be predicted and are left out")
    if asked.fitted.size < count["fitted"]:
        out.print(f"{asked.fitted.size:,} of the {count['fitted']:,} rows to fit are used, drawn at random")
    sheet = new_sheet(
        "Scalars", [("chip.", False), ("before", True), ("after", True), ("std. error", True), ("", False)]
    )
    for row in records(scalars):
        flat = row["state"] == NOT_DETERMINED
        before, after, error = (
            _written(float(row[name]), row["unit"]) for name in ("before", "after", "standard_error")
        )
        state = "not determined by these rows, not changed" if flat else row["state"]
        sheet.add_row(row["scalar"], before, after, error, "" if state == "fitted" else state)
    out.print(sheet)
    sheet = new_sheet("Mean relative error", [("", False), ("rows", True), ("before", True), ("after", True)])
    for row in records(errors):
        sheet.add_row(row["rows_of"], f"{row['rows']:,}", f"{row['before']:.1%}", f"{row['after']:.1%}")
    out.print(sheet)
    out.print()
    held = errors.iloc[-1]
    print(f"held-back fifth: mean relative error {held['after']:.1%} (before: {held['before']:.1%})")


def _written(value: float, unit: str) -> str:
    """Write a scalar, or its standard error, which may be none."""
    if value != value:
        return "-"
    return units.show(value, unit, 4) if unit else f"{value:.4g}"
