"""Output of a sensitivity: parameters that matter, that move nothing, and that cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.charts.sensitivity import MIN_EFFECT, important_parameters
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    new_sheet,
    print_parts,
    quantity,
    validation_lines,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.analysis.sensitivity.study import Sensitivity

_MAX_PARAMETERS = 24


def show(sensitivity: Sensitivity) -> None:
    """Print the sensitivity of a result."""
    print_parts(parts(sensitivity))


def parts(sensitivity: Sensitivity, limit: int = _MAX_PARAMETERS) -> Iterator[Part]:
    """Yield the sensitivity of a result; limit: parameters of the table besides those with a large share."""
    rows = sensitivity.parameters
    important, shown_rows = important_parameters(rows), important_parameters(rows, limit)
    slight = rows[rows["reason"].eq("") & ~rows["insensitive"]].drop(important.index)
    value = quantity(sensitivity.objective, sensitivity.value)
    yield f"[bold]{pluralize(len(rows), 'parameter')}; {sensitivity.objective} is {value}[/]"
    yield _sheet(shown_rows)
    if len(important) > len(shown_rows):
        yield f"and {len(important) - len(shown_rows):,} more (dataset)"
    for name, rows_of in (
        (f"less than {MIN_EFFECT:g}", slight),
        ("insensitive", rows[rows["insensitive"]]),
        ("not varied", rows[rows["reason"].ne("")]),
    ):
        if len(rows_of):
            first = ", ".join(rows_of["parameter"].head(6))
            yield Text(
                f"{pluralize(len(rows_of), 'parameter')} {name}: {first}{', ...' if len(rows_of) > 6 else ''}"
            )
    if sensitivity.points:
        failed_note = (
            f", of which {sensitivity.failed:,} have no result and count as the mean"
            if sensitivity.failed
            else ""
        )
        yield f"Sobol's indices from {sensitivity.points:,} points{failed_note}"
    yield from assumption_lines([sensitivity._asdict()])
    yield from validation_lines([sensitivity._asdict()])


def _sheet(rows: pd.DataFrame) -> Sheet:
    """Return parameters as a table."""
    indices = "sobol_first" in rows
    heads = [("parameter", False), ("value", True), ("both", True), ("less", True), ("more", True)]
    if indices:
        heads += [("alone", True), ("in all", True)]
    sheet = new_sheet(
        "Change of the result [%] for 1% more of a parameter", [*heads, ("nonlinearity", False)]
    )
    sheet.columns[0].no_wrap = True
    sheet.columns[-1].overflow = "fold"
    for row in rows.to_dict("records"):
        cells = [str(row["parameter"]), units.show(row["parameter_value"], row["unit"])]
        cells += [_signed(row[f"elasticity{side}"]) for side in ("", "_minus", "_plus")]
        if indices:
            cells += [_share(row, "sobol_first"), _share(row, "sobol_total")]
        sheet.add_row(*cells, str(row["nonlinearity"]))
    return sheet


def _signed(value: float) -> str:
    return f"{value:+.3f}" if value == value else "-"


def _share(row: dict[Any, Any], name: str) -> str:
    """Write an index with half of its interval."""
    return f"{row[name]:.1%} ± {row[f'{name}_error']:.1%}" if row[name] == row[name] else "-"
