"""Voltage and frequency: the operating point that a power budget allows (4.4.1, 4.4.3, 4.4.4).

The alpha-power law (Sakurai and Newton, IEEE JSSC 25(2), 1990) with alpha = 2 gives the speed at a
supply V, and the power is proportional to it and to the square of the supply:

    f / f_nom = [(V - Vt)^2 / V] / [(Vn - Vt)^2 / Vn]        P / P_nom = (f / f_nom) (V / Vn)^2
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats


class Supply(NamedTuple):
    """Supply limits of scaled components, one row a point; all [V], shape (points,)."""

    nominal_voltage: Floats
    threshold_voltage: Floats
    minimum_voltage: Floats
    maximum_voltage: Floats


class Operation(NamedTuple):
    """Operating points, shape (points,): units in use, supply [V], speed over nominal."""

    units: Floats
    voltage: Floats
    speed: Floats


@kernel
def speed_ratio(voltage: float, nominal: float, threshold: float) -> float:
    """Return f / f_nom at a supply [V]."""
    return ((voltage - threshold) ** 2 / voltage) / ((nominal - threshold) ** 2 / nominal)


@kernel
def power_ratio(voltage: float, nominal: float, threshold: float) -> float:
    """Return P / P_nom at a supply [V]."""
    return speed_ratio(voltage, nominal, threshold) * (voltage / nominal) ** 2


@kernel
def highest_voltage(budget: float, nominal: float, threshold: float, minimum: float, maximum: float) -> float:
    """Return the highest supply [V] within the limits whose P / P_nom is at most `budget`.

    By bisection, since power rises with the supply; the minimum where even that exceeds the budget.
    """
    if power_ratio(maximum, nominal, threshold) <= budget:
        return maximum
    low, high = minimum, maximum
    while True:
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            return low
        if power_ratio(middle, nominal, threshold) <= budget:
            low = middle
        else:
            high = middle


@kernel
def lowest_power(unit_power: Floats, supply: Supply) -> Floats:
    """Return the power of one unit at the minimum supply [W], shape (points,).

    unit_power: at the nominal point [W], shape (points,).
    """
    out = np.empty(unit_power.size)
    for i in range(unit_power.size):
        out[i] = unit_power[i] * power_ratio(
            supply.minimum_voltage[i], supply.nominal_voltage[i], supply.threshold_voltage[i]
        )
    return out


@kernel
def operate(
    units: Floats,
    unit_power: Floats,
    budget: Floats,
    group: Floats,
    supply: Supply,
) -> Operation:
    """Find the operating point of identical units that share a power budget.

    units: how many fit; unit_power: of one at the nominal point [W]; budget [W];
    group: units are used in whole groups of this many (MCUs in bundles). All of shape (points,).

    Where all units exceed the budget at the minimum supply, fewer are used (4.4.1). The supply is the highest
    within the budget for the units in use: room for a further bundle never slows the others. 0 units is a
    valid result.
    """
    rows = units.size
    out = Operation(np.empty(rows), np.empty(rows), np.empty(rows))
    lowest = lowest_power(unit_power, supply)
    for i in range(rows):
        nominal, threshold = supply.nominal_voltage[i], supply.threshold_voltage[i]
        minimum, maximum = supply.minimum_voltage[i], supply.maximum_voltage[i]
        used = np.floor(units[i] / group[i]) * group[i]
        if used * lowest[i] > budget[i]:
            used = np.floor(max(budget[i], 0.0) / (lowest[i] * group[i])) * group[i]
        voltage = minimum
        if used > 0.0:
            voltage = highest_voltage(
                budget[i] / (used * unit_power[i]), nominal, threshold, minimum, maximum
            )
        out.units[i] = used
        out.voltage[i] = voltage
        out.speed[i] = speed_ratio(voltage, nominal, threshold)
    return out


@kernel
def voltage_at(speed: Floats, supply: Supply) -> Floats:
    """Return the supply [V] at which f / f_nom is `speed`, within the limits; shape (points,).

    The alpha-power law solved for V, for chips whose clock is known and whose supply is not.
    """
    out = np.empty(speed.size)
    for i in range(speed.size):
        nominal, threshold = supply.nominal_voltage[i], supply.threshold_voltage[i]
        drive = speed[i] * (nominal - threshold) ** 2 / nominal
        half = threshold + 0.5 * drive
        voltage = half + np.sqrt(half**2 - threshold**2)
        out[i] = min(max(voltage, supply.minimum_voltage[i]), supply.maximum_voltage[i])
    return out
