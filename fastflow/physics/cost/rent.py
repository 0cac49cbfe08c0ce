"""Rent of devices: a provider's price of a chip, or the user's price."""

from __future__ import annotations

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Floats, Inputs

RENT = "cost.rent"
"""The user's price of an hour of a device; AUTO: that of its chip."""
PRICES, PRICE = "cost.rents.", ".price"
"""Prefix and suffix of the keys of chips' prices, around a `price_key`."""
AUTO = 0.0
_PINNED = "chip.pinned."


def price_key(chip: str) -> str:
    """Return the name of a chip in the keys of prices: its `chip.name` with _ for -."""
    return chip.replace("-", "_")


def is_rented(inputs: Inputs) -> bool:
    """Say whether devices of points are rented; they are bought otherwise."""
    return RENT in inputs


def rent_per_hour(inputs: Inputs) -> Floats:
    """Return the rent of a device in an hour [USD], NaN where its chip has no price; (points,), or (1,).

    inputs: `cost` and `chip`, of points that rent. Raises KeyError for a missing input.
    """
    rent, chips = inputs[RENT], inputs["chip.name"]
    price: Floats = np.where(rent == AUTO, np.nan, rent)
    # a generated chip shares only the name with the rented chip
    # a chip made from budgets alone only shares the name of a rented chip
    if any(key.startswith(_PINNED) for key in inputs):
        for name in np.unique(chips).tolist():
            listed = inputs.get(f"{PRICES}{price_key(name)}{PRICE}")
            if listed is not None:
                price = np.where((rent == AUTO) & (chips == name), listed, price)
    return price


def invalid_rent(inputs: Inputs) -> ReasonColumn:
    """Return why the rent of a point is unknown, where devices are rented; (points,)."""
    points = inputs["chip.name"].size
    reason = Reasons(points)
    if is_rented(inputs):
        for i in reason.without(np.broadcast_to(np.isnan(rent_per_hour(inputs)), (points,))):
            allowed = (
                "a chip that exists and has a price (`fastflow show cost=rent` lists them), or"
                f" {RENT}='2.50 USD', what an hour of a device costs you"
            )
            reason.add(i, rejected(Code.RENT, "chip.name", inputs["chip.name"][i], allowed))
    return reason.column()
