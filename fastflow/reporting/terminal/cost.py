"""What a point costs, in a few lines, and what kind of cost it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table as Sheet

from fastflow.physics.cost.rent import AUTO, PRICES, RENT, price_key
from fastflow.reporting.terminal.tables import new_sheet, quantity

EACH = "model.train_tokens_per_parameter"
SECTION = "cost."
"""What the inputs that say what a cost is begin with."""
_TO_BUILD = "public"


def title_of_cost(inputs: Mapping[str, Any]) -> str:
    """Say what a cost is: to build, at what buyers pay, or a rent, whose and of when.

    inputs: of a point, by dotted key; of `cost`, and `chip.name` of the rent's chip. Without `cost.markup`
    the name of the prices alone says it.
    """
    name = inputs.get("cost.name")
    if name is None:
        return "Cost"
    if inputs.get(RENT, AUTO) != AUTO:
        return f"Rent ({RENT}, as given)"
    if RENT in inputs:
        price = f"{PRICES}{price_key(inputs.get('chip.name', ''))}"
        beside = ", ".join(
            str(inputs[key]) for key in (f"{price}.provider", f"{price}.date") if key in inputs
        )
        return f"Rent (cost={name}{f'; {beside}' if beside else ''})"
    markup = inputs.get("cost.markup", 1.0 if name == _TO_BUILD else None)
    what = "Cost" if markup is None else "Cost to build" if markup == 1.0 else "Cost at what buyers pay"
    return f"{what} (cost={name})"


def trained_on(inputs: Mapping[str, Any]) -> str:
    """Name the input that says on how many tokens a point trains; inputs: of it, by dotted key."""
    return EACH if inputs.get(EACH, 0.0) > 0.0 else "model.train_tokens"


def prices_of(overrides: Iterable[str]) -> str:
    """Return the choice of prices among overrides, as it is written."""
    given = (text.removeprefix("cost=") for text in overrides if text.startswith("cost="))
    return [_TO_BUILD, *given][-1]


def cost_sheet(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Sheet:
    """Return what a point's device and system cost, an hour of them, and what that makes.

    inputs: of the point, as of `title_of_cost` and `trained_on`.
    """
    sheet = new_sheet(title_of_cost(inputs), [("", False), ("USD", True), ("", False)])
    q = {name: quantity(name, row[name]).removesuffix(" USD") for name in row if "usd" in name}
    devices = int(row["devices"])
    hour = quantity("usd_per_h", row["usd_per_h"] / devices).removesuffix(" USD") if devices else "-"
    if RENT in inputs:
        sheet.add_row("an hour of a device", hour, "host, networks and electricity within it")
        sheet.add_row("an hour of the system", q["usd_per_h"], f"{devices:,} of them")
    else:
        dies = f"dies {q['die_usd']} (yield with cores {row['die_yield']:.0%}), memory {q['memory_usd']}"
        sheet.add_row("device", q["device_usd"], f"{dies}, package {q['package_usd']}")
        sheet.add_row("system", q["system_usd"], f"{devices:,} of them, hosts and networks")
        sheet.add_row("an hour of a device", hour, "its part of what is written off, and electricity")
        sheet.add_row("an hour of the system", q["usd_per_h"], f"of which electricity {q['power_usd_per_h']}")
    for label, name, note in (
        ("an iteration", "iteration_usd", ""),
        ("a million tokens", "usd_per_million_tokens", ""),
        ("to train", "train_usd", f"on {trained_on(inputs)}"),
    ):
        if q.get(name, "-") != "-":
            sheet.add_row(label, q[name], note)
    return sheet
