"""What a point costs, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table as Sheet

from fastflow.show.tables import new_sheet, quantity

_A_MILLION = 1e6


def cost_sheet(row: Mapping[str, Any]) -> Sheet:
    """Return what a point's device and system cost, an hour of it, and what that makes."""
    sheet = new_sheet("Cost", [("", False), ("USD", True), ("", False)])
    q = {name: quantity(name, row[name]).removesuffix(" USD") for name in row if "usd" in name}
    dies = f"dies {q['die_usd']} (yield with cores {row['die_yield']:.0%}), memory {q['memory_usd']}"
    sheet.add_row("device", q["device_usd"], f"{dies}, package {q['package_usd']}")
    sheet.add_row("system", q["system_usd"], f"{row['devices']:,} of them, hosts and networks")
    sheet.add_row("an hour", q["usd_per_h"], f"of which electricity {q['power_usd_per_h']}")
    if q.get("iteration_usd", "-") != "-":
        sheet.add_row("an iteration", q["iteration_usd"], "")
    if q.get("token_usd", "-") != "-":
        million = quantity("token_usd", _A_MILLION * row["token_usd"]).removesuffix(" USD")
        sheet.add_row("a million tokens", million, "")
    return sheet
