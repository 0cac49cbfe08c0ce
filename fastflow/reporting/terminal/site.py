"""Power of a point's racks and of its site, and their limits, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastflow.reporting.terminal.tables import quantity

LIMITED = {"a rack": ("rack_W", "rack_limit_W"), "the system": ("system_W", "site_limit_W")}
"""Words, and the columns of a power and of its limit."""


def site_limit_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on the power of a point that has limits of racks or of the site."""
    parts = []
    for words, (name, limit_name) in LIMITED.items():
        power, limit = (row.get(column) for column in (name, limit_name))
        if all(value is not None and value == value for value in (power, limit)):
            parts.append(f"{words} draws {quantity(name, power)} of {quantity(limit_name, limit)}")
    if parts:
        yield f"Limits       {', '.join(parts)} (means over time)"
