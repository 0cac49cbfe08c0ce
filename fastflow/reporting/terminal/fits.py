"""Output of fits: a row for every way, with the least number of devices, the layout, memory and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fastflow.core import units
from fastflow.reporting.terminal.tables import Part, new_sheet, print_parts, records

if TYPE_CHECKING:
    from fastflow.analysis.fits.study import Fits

_LAYOUT = [("zero", True), ("recompute", False)]
"""Columns of a layout of training beside its strategy."""
_MISSING = "-"


def show(result: Fits) -> None:
    """Print the ways of a point."""
    print_parts(parts(result))


def parts(result: Fits) -> Iterator[Part]:
    """Yield the ways of a point as a table, the reasons of those that do not fit, and what would fit."""
    rows = records(result.rows.astype(object).where(result.rows.notna(), None))
    work, offered = "Serving" if result.serves else "Training", _size(rows[0].get("dram_offered_B"))
    heads = [("way", False), ("devices", True), ("strategy", False), *([] if result.serves else _LAYOUT)]
    heads += [("memory", True), ("tokens/s", True), ("time", True), ("device time", True)]
    question = "the least number of devices" if result.chooses_devices else "what fits"
    title = f"{work} of {result.model} on {result.chip}, {offered} each: {question}"
    sheet = new_sheet(title, heads)
    for row in rows:
        names = ["strategy", *([] if result.serves else (name for name, _ in _LAYOUT))]
        layout = [_text(row.get(name)) if row["fits"] else _MISSING for name in names]
        none = "none fits" if _is_known(row.get("devices")) else _MISSING
        cells = [_whole(row.get("devices")) if row["fits"] else none, *layout]
        cells += [_size(row.get("footprint_B")), _rate(row)]
        cells += [_number(row.get(name), ".2f") for name in ("relative_time", "relative_device_time")]
        sheet.add_row(str(row["way"]), *cells)
    yield sheet
    first = next((str(row["way"]) for row in rows if row["fits"]), "")
    if first:
        yield f"time: of a token, over that of '{first}'; device time: the same, times the devices"
    else:
        yield "No number of devices that was tried fits in any way"
    for row in rows:
        if row["reason"]:
            yield Text(f"{row['way']}: {row['reason']}")
    for row in rows:
        if row["overrides"] and row["fits"]:
            yield Text(f"{row['way']}: {row['overrides']}")


def _is_known(value: Any) -> bool:
    return value is not None


def _text(value: Any) -> str:
    return str(value) if _is_known(value) else _MISSING


def _whole(value: Any) -> str:
    return f"{int(value):,}" if _is_known(value) else _MISSING


def _size(value: Any) -> str:
    return units.show(value, "B") if _is_known(value) else _MISSING


def _rate(row: dict[str, Any]) -> str:
    return _number(row.get("tokens_per_s"), ",.0f") if row["fits"] else _MISSING


def _number(value: Any, form: str) -> str:
    return format(value, form) if _is_known(value) else _MISSING
