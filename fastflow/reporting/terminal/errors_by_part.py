"""Errors of a validation whose rows are several times of the same point, such as served points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastflow.analysis.validation.error_metrics import ALL, errors_of, is_of_file
from fastflow.reporting.terminal.tables import new_sheet
from fastflow.schema.quantities import TIME, Quantity

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet


def parts_of(errors: pd.DataFrame) -> list[str]:
    """Return the parts that have errors of their times, in the order of rows; [] for other kinds."""
    return [part for part in errors["part"].unique().tolist() if part] if "part" in errors else []


def group_sheet(errors: pd.DataFrame, quantities: Sequence[Quantity]) -> Sheet:
    """Return the mean and the median error of each part and quantity as a table, by columns of the file.

    quantities: those of the errors, the time first.
    """
    tables = {part: errors_of(errors, TIME, part) for part in parts_of(errors)}
    tables |= {quantity.name: errors_of(errors, quantity) for quantity in quantities[1:]}
    columns = [("", False), ("points", True)]
    columns += [(head, True) for name in tables for head in (f"{name} mean", "median")]
    sheet = new_sheet("Error by group, relative", columns)
    for by in filter(_is_shown, dict.fromkeys(by for table in tables.values() for by in table["by"])):
        if by != ALL:
            sheet.add_section()
            sheet.add_row(f"[italic]by {by}[/]")
        of_column = [table[table["by"] == by].set_index("value") for table in tables.values()]
        for value in dict.fromkeys(value for table in of_column for value in table.index):
            has_value = [value in table.index for table in of_column]
            points = max(table["rows"].get(value, 0) for table in of_column)
            cells = [
                f"{table.loc[value, name]:.1%}" if has else "-"
                for table, has in zip(of_column, has_value, strict=True)
                for name in ("mean_error", "median_error")
            ]
            sheet.add_row(ALL if by == ALL else f" {value}", f"{points:,}", *cells)
    return sheet


def without_categories(errors: pd.DataFrame) -> pd.DataFrame:
    """Return errors of all rows, by size and by limiter, which differ between the parts of a point."""
    return errors[[not is_of_file(by) for by in errors["by"]]]


def _is_shown(by: str) -> bool:
    return by == ALL or is_of_file(by)
