"""Cost of a point in a few lines, and the kind of the cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table as Sheet

from fastflow.physics.cost.rent import AUTO, PRICES, RENT, price_key
from fastflow.reporting.terminal.tables import new_sheet, quantity

TOKENS_PER_PARAMETER = "model.train_tokens_per_parameter"
COST_PREFIX = "cost."
"""Prefix of the keys of the inputs that describe a cost."""
_PUBLIC = "public"


def cost_title(inputs: Mapping[str, Any]) -> str:
    """Return the kind of a cost: to build, at the buyers' price, or a rent with its provider and date.

    inputs: of a point, by dotted key; of `cost`, and `chip.name` of the rent's chip. Without `cost.markup`
    the name of the price list alone decides.
    """
    name = inputs.get("cost.name")
    if name is None:
        return "Cost"
    if inputs.get(RENT, AUTO) != AUTO:
        return f"Rent ({RENT}, as given)"
    if RENT in inputs:
        price = f"{PRICES}{price_key(inputs.get('chip.name', ''))}"
        source = ", ".join(
            str(inputs[key]) for key in (f"{price}.provider", f"{price}.date") if key in inputs
        )
        return f"Rent (cost={name}{f'; {source}' if source else ''})"
    markup = inputs.get("cost.markup", 1.0 if name == _PUBLIC else None)
    kind = "Cost" if markup is None else "Cost to build" if markup == 1.0 else "Cost at what buyers pay"
    return f"{kind} (cost={name})"


def train_tokens_key(inputs: Mapping[str, Any]) -> str:
    """Return the key that sets the number of training tokens; inputs: of the point, by dotted key."""
    return TOKENS_PER_PARAMETER if inputs.get(TOKENS_PER_PARAMETER, 0.0) > 0.0 else "model.train_tokens"


def price_list_name(overrides: Iterable[str]) -> str:
    """Return the price list among overrides, as it is written."""
    names = (text.removeprefix("cost=") for text in overrides if text.startswith("cost="))
    return [_PUBLIC, *names][-1]


def cost_sheet(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Sheet:
    """Return what a point's device and system cost, an hour of them, and the cost of the results.

    inputs: of the point, as for `cost_title` and `train_tokens_key`.
    """
    sheet = new_sheet(cost_title(inputs), [("", False), ("USD", True), ("", False)])
    q = {name: quantity(name, row[name]).removesuffix(" USD") for name in row if "usd" in name}
    devices = int(row["devices"])
    hour = quantity("usd_per_h", row["usd_per_h"] / devices).removesuffix(" USD") if devices else "-"
    if RENT in inputs:
        sheet.add_row("an hour of a device", hour, "host, networks and electricity within it")
        sheet.add_row("an hour of the system", q["usd_per_h"], f"{devices:,} of them")
    else:
        dies = f"dies {q['die_usd']} (yield with cores {row['die_yield']:.0%}), memory {q['memory_usd']}"
        sheet.add_row("device", q["device_usd"], f"{dies}, package {q['package_usd']}")
        sheet.add_row("system", q["system_usd"], f"{devices:,} devices, hosts and networks")
        sheet.add_row("an hour of a device", hour, "depreciation and electricity")
        sheet.add_row("an hour of the system", q["usd_per_h"], f"of which electricity {q['power_usd_per_h']}")
    for label, name, note in (
        ("an iteration", "iteration_usd", ""),
        ("a million tokens", "usd_per_million_tokens", ""),
        ("to train", "train_usd", f"on {train_tokens_key(inputs)}"),
    ):
        if q.get(name, "-") != "-":
            sheet.add_row(label, q[name], note)
    return sheet
