"""Power limits in words: of devices, of racks, and of the site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastflow.reporting.terminal.tables import has_value, quantity

LIMITED = {"a rack": ("rack_W", "rack_limit_W"), "the system": ("system_W", "site_limit_W")}
"""Words, and the columns of a power and of its limit."""


def site_limit_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on the power of a point that has limits of racks or of the site."""
    parts = []
    for words, (name, limit_name) in LIMITED.items():
        if has_value(row, name) and has_value(row, limit_name):
            power, limit = (quantity(column, row[column]) for column in (name, limit_name))
            parts.append(f"{words} draws {power} of {limit}")
    if parts:
        yield f"Limits       {', '.join(parts)} (means over time)"


def device_limits(row: Mapping[str, Any]) -> str:
    """Return the power limits of devices in words; "" without one."""
    names = ["power_limit_W"]
    if has_value(row, "prefill_devices") and row["prefill_devices"] > 0:
        names.append("prefill_power_limit_W")
    limits = [quantity(name, row[name]) if has_value(row, name) else "" for name in names]
    if limits[0] == limits[-1]:
        return f" within a limit of {limits[0]}" if limits[0] else ""
    of = zip(limits, ("decode", "prefill"), strict=True)
    return " within a limit of " + " and ".join(f"{limit} ({phase})" for limit, phase in of if limit)
