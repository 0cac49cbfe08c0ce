"""Output of fits: a row for every way, with the least number of devices, the layout, memory and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fastflow.core import units
from fastflow.physics.hardware.packages import DEVICES
from fastflow.reporting.terminal.tables import Part, new_sheet, print_parts, records

if TYPE_CHECKING:
    from fastflow.analysis.fits.study import Fits

_MISSING = "-"


def show(result: Fits) -> None:
    """Print the ways of a point."""
    print_parts(parts(result))


def parts(result: Fits) -> Iterator[Part]:
    """Yield the ways of a point as a table, the reasons of those that do not fit, and what would fit."""
    rows = records(result.rows)
    work = "Serving" if result.serves else "Training"
    heads = [("way", False), ("devices", True), ("layout", False), ("memory", True), ("offered", True)]
    heads += [("tokens per second", True), ("time", True), ("device time", True)]
    sheet = new_sheet(f"{work} of {result.model} on {result.chip}: the least number of devices", heads)
    for row in rows:
        fits = bool(row["fits"])
        cells = [_whole(row.get("devices")) if fits else "none fits", layout_of(row) if fits else _MISSING]
        cells += [_size(row.get("footprint_B")), _size(row.get("dram_offered_B"))]
        cells += [_number(row.get("tokens_per_s"), ",.0f") if fits else _MISSING]
        cells += [_number(row.get(name), ".2f") for name in ("relative_time", "relative_device_time")]
        sheet.add_row(str(row["way"]), *cells)
    yield sheet
    first = next((str(row["way"]) for row in rows if row["fits"]), "")
    if first:
        yield f"time: of a token, over that of '{first}'; device time: the same, times the devices"
    else:
        yield f"No number of devices that was tried fits in any way; {DEVICES} has been auto or as given"
    for row in rows:
        if row["reason"]:
            yield Text(f"{row['way']}: {row['reason']}")
    for row in rows:
        if row["overrides"] and row["fits"]:
            yield Text(f"{row['way']}: {row['overrides']}")


def layout_of(row: dict[str, Any]) -> str:
    """Return the layout of a row in words."""
    words = [str(row["strategy"])]
    if _is_known(row.get("zero")) and row["zero"] > 1:
        words.append(f"ZeRO {int(row['zero'])}")
    if _is_known(row.get("recompute")) and row["recompute"] not in ("none", ""):
        words.append(f"recompute {row['recompute']}")
    return ", ".join(words)


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _whole(value: Any) -> str:
    return f"{int(value):,}" if _is_known(value) else _MISSING


def _size(value: Any) -> str:
    return units.show(value, "B") if _is_known(value) else _MISSING


def _number(value: Any, form: str) -> str:
    return format(value, form) if _is_known(value) else _MISSING
