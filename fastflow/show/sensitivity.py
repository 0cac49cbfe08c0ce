"""Output of a sensitivity: what is worth improving, what is flat, what could not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflow.analysis.sensitivity import shown
from fastflow.charts.sensitivity import SLIGHT, listed
from fastflow.configuration.wording import counted
from fastflow.show.tables import console, new_sheet, quantity

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.analysis.sensitivity import Sensitivity

_MOST = 24


def show(found: Sensitivity) -> None:
    """Print what a result hangs on."""
    out = console()
    rows = found.figures
    worth, here = listed(rows), listed(rows, _MOST)
    slight = rows[rows["reason"].eq("") & ~rows["flat"]].drop(worth.index)
    value = quantity(found.objective, found.value)
    out.print(f"[bold]{counted(len(rows), 'figure')}; {found.objective} is {value}[/]")
    out.print(_sheet(here))
    if len(worth) > len(here):
        out.print(f"and {len(worth) - len(here):,} more (dataset)")
    for name, some in (
        (f"less than {SLIGHT:g}", slight),
        ("flat", rows[rows["flat"]]),
        ("not asked", rows[rows["reason"].ne("")]),
    ):
        if len(some):
            first = ", ".join(some["figure"].head(6))
            out.print(
                f"{counted(len(some), 'figure')} {name}: {first}{', ...' if len(some) > 6 else ''}",
                markup=False,
            )
    if found.points:
        lacking = f", of which {found.failed:,} have no result and count as the mean" if found.failed else ""
        out.print(f"Sobol's indices from {found.points:,} points{lacking}")


def _sheet(rows: pd.DataFrame) -> Sheet:
    """Return figures as a table."""
    indices = "sobol_first" in rows
    heads = [("figure", False), ("value", True), ("both", True), ("less", True), ("more", True)]
    if indices:
        heads += [("alone", True), ("in all", True)]
    sheet = new_sheet("1% more of a figure changes the result by so many percent", [*heads, ("kink", False)])
    sheet.columns[0].no_wrap = True
    sheet.columns[-1].overflow = "fold"
    for row in rows.to_dict("records"):
        cells = [str(row["figure"]), shown(row["figure_value"], row["unit"])]
        cells += [_signed(row[f"{side}elasticity"]) for side in ("", "left_", "right_")]
        if indices:
            cells += [_share(row, "sobol_first"), _share(row, "sobol_total")]
        sheet.add_row(*cells, str(row["kink"]))
    return sheet


def _signed(value: float) -> str:
    return f"{value:+.3f}" if value == value else "-"


def _share(row: dict[Any, Any], name: str) -> str:
    """Write an index with half of its interval."""
    return f"{row[name]:.1%} ± {row[f'{name}_error']:.1%}" if row[name] == row[name] else "-"
