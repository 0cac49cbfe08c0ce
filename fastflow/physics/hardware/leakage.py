"""Leakage of cores and on-chip memories: by temperature and supply.

Power at rest is stated for a die at REFERENCE and its nominal supply; `tech.core.leakage_fraction` of it
leaks. Leakage grows exponentially with temperature, here by a factor of 2 for every
`tech.core.leakage_doubling` (De Vogeleer et al., Modeling the Temperature Bias of Power Consumption for
Nanometer-Scale CPUs, arXiv:1404.3381, measured from 20 to 85 degrees Celsius). What it takes beyond the
reference is not left for switching.

Leakage falls with the supply: its current with the barrier that the drain lowers, its power with the supply
once more (Kim et al., Leakage Current: Moore's Law Meets Static Power, IEEE Computer 36-12, 2003).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs

REFERENCE = 65.0  # temperature of the die, at which powers were calibrated [degrees Celsius]; assumed
OF_SUPPLY = 3.0
"""Power of the supply that leakage grows with near the nominal supply: drain-induced barrier lowering of 70
mV/V over a swing of 36 mV an e-fold, and the supply itself. Assumed."""


def leaks(inputs: Inputs) -> Floats:
    """Return the share of the power at rest that leaks at the reference, (points,)."""
    share: Floats = inputs["tech.core.leakage_fraction"]
    return share


def excess(inputs: Inputs) -> Floats:
    """Return how much more leaks than at the reference, over the power at rest there; (points,).

    It is below 0 for a colder die.
    """
    warmer = inputs["chip.temperature"] - REFERENCE
    return leaks(inputs) * (np.exp2(warmer / inputs["tech.core.leakage_doubling"]) - 1.0)


def left_for_switching(inputs: Inputs) -> Floats:
    """Return what cores from budgets have for switching, over what they have at the reference; (points,)."""
    left: Floats = 1.0 - inputs["tech.core.idle_power_fraction"] * excess(inputs)
    return left


def of_supply(supply_squared: Floats) -> Floats:
    """Return leakage over that at the nominal supply; supply_squared: over the square of that."""
    leakage: Floats = supply_squared ** (0.5 * OF_SUPPLY)
    return leakage
