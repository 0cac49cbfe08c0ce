"""Output of a sensitivity: what is worth improving, what is flat, what could not be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fastflow.analysis.sensitivity.study import shown
from fastflow.config.messages import counted
from fastflow.reporting.charts.sensitivity import SLIGHT, listed
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    new_sheet,
    quantity,
    tell,
    validation_lines,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.analysis.sensitivity.study import Sensitivity

_MOST = 24


def show(found: Sensitivity) -> None:
    """Print what a result hangs on."""
    tell(parts(found))


def parts(found: Sensitivity, most: int = _MOST) -> Iterator[Part]:
    """Yield what a result hangs on; most: figures of the table, those of a large share of variance aside."""
    rows = found.figures
    worth, here = listed(rows), listed(rows, most)
    slight = rows[rows["reason"].eq("") & ~rows["flat"]].drop(worth.index)
    value = quantity(found.objective, found.value)
    yield f"[bold]{counted(len(rows), 'figure')}; {found.objective} is {value}[/]"
    yield _sheet(here)
    if len(worth) > len(here):
        yield f"and {len(worth) - len(here):,} more (dataset)"
    for name, some in (
        (f"less than {SLIGHT:g}", slight),
        ("flat", rows[rows["flat"]]),
        ("not asked", rows[rows["reason"].ne("")]),
    ):
        if len(some):
            first = ", ".join(some["figure"].head(6))
            yield Text(f"{counted(len(some), 'figure')} {name}: {first}{', ...' if len(some) > 6 else ''}")
    if found.points:
        lacking = f", of which {found.failed:,} have no result and count as the mean" if found.failed else ""
        yield f"Sobol's indices from {found.points:,} points{lacking}"
    yield from assumption_lines([found._asdict()])
    yield from validation_lines([found._asdict()])


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
