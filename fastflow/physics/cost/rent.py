"""What devices are rented at: a provider's price of a chip, or the user's own."""

from __future__ import annotations

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Floats, Inputs, Reasons, Texts

RENT = "cost.rent"
"""The price of an hour of a device that the user gives; AUTO: that of its chip."""
PRICES, PRICE = "cost.rents.", ".price"
"""What the prices of chips begin with and end in; between them stands what `key_of` returns."""
AUTO = 0.0
_PINNED = "chip.pinned."


def key_of(chip: str) -> str:
    """Return what a chip is called among the prices: its `chip.name` with _ for -."""
    return chip.replace("-", "_")


def is_rented(inputs: Inputs) -> bool:
    """Say whether devices of points are rented; they are bought otherwise."""
    return RENT in inputs


def rent_per_hour(inputs: Inputs) -> Floats:
    """Return what an hour of a device costs [USD], NaN where its chip has no price; (points,), or (1,).

    inputs: `cost` and `chip`, of points that rent. Raises KeyError for an input that is not there.
    """
    given, chips = inputs[RENT], inputs["chip.name"]
    price: Floats = np.where(given == AUTO, np.nan, given)
    if any(key.startswith(_PINNED) for key in inputs):  # what budgets alone make has no more than the name
        for name in np.unique(chips).tolist():
            listed = inputs.get(f"{PRICES}{key_of(name)}{PRICE}")
            if listed is not None:
                price = np.where((given == AUTO) & (chips == name), listed, price)
    return price


def invalid_rent(inputs: Inputs) -> Texts:
    """Say why the devices of a point have no rent; "" where they have one or are bought, (points,)."""
    points = inputs["chip.name"].size
    reason = Reasons(points)
    if is_rented(inputs):
        for i in reason.without(np.broadcast_to(np.isnan(rent_per_hour(inputs)), (points,))):
            allowed = (
                "a chip that exists and has a price (`fastflow show cost=rent` lists them), or"
                f" {RENT}='2.50 USD', what an hour of a device costs you"
            )
            reason.add(i, str(InputError("chip.name", inputs["chip.name"][i], allowed)))
    return reason.texts()
