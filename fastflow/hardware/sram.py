"""Registers and caches: banks, capacity and bandwidth of an on-chip level (4.4.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.tables import Floats

# The paper only asks that controllers and leakage leave power to move data (4.4.2). Without a floor the
# last bank that fits can take nearly all of it, and a larger budget makes a slower memory.
LEAST_DATA_POWER = 0.25


class Sram(NamedTuple):
    """What the generator needs to know of one on-chip memory level; shape (points,)."""

    area: Floats  # budget of all instances [m^2]
    power: Floats  # budget of all instances [W]
    instances: Floats  # one a die, a bundle or an MCU, by the level's scope
    components: Floats  # that one instance serves
    latency: Floats  # [s]
    dynamic_energy: Floats  # [J/bit]
    static_power: Floats  # [W/bit]
    cell_area: Floats  # [m^2/bit]
    overhead: Floats  # share of a bank's area that is not cells
    bank_capacity: Floats  # [B]
    bank_width: Floats  # [B] a cycle
    bank_frequency: Floats  # [Hz]
    controller_power: Floats  # [W] a bank
    controller_area: Floats  # [m^2] a bank
    link_area: Floats  # [m^2] a bank and component: a crosspoint of the crossbar


class SramDesign(NamedTuple):
    """A generated on-chip level, all instances together; shape (points,)."""

    banks: Floats
    capacity: Floats  # [B]
    bandwidth: Floats  # [B/s]
    static_power: Floats  # leakage and controllers [W]


@kernel
def _bank_needs(level: Sram) -> tuple[Floats, Floats]:
    """Return the area of a bank with its part of the crossbar [m^2], and its standing power [W]."""
    bits = 8.0 * level.bank_capacity
    area = bits * level.cell_area / (1.0 - level.overhead)
    area += level.controller_area + level.components * level.link_area
    return area, bits * level.static_power + level.controller_power


def bank_rooms(level: Sram) -> tuple[Floats, Floats]:
    """Return how many banks area and power take in every instance, in fractions; shape (points,).

    Without power there is room for none, even where standing by takes none.
    """
    bank_area, bank_power = _bank_needs(level)
    standing = (1.0 - LEAST_DATA_POWER) * level.power
    by_power = np.where(level.power > 0.0, np.inf, 0.0)
    np.divide(standing, level.instances * bank_power, out=by_power, where=bank_power > 0.0)
    return level.area / (level.instances * bank_area), by_power


@kernel
def generate_sram(level: Sram) -> SramDesign:
    """Fit banks and their crossbar into the area, then spend the power that is left on moving data.

    An instance has the largest whole number of banks whose cells (over 1 - overhead), controllers and
    crossbar (banks x components in scope) fit its area, and whose leakage (Equation 2) and controllers
    leave at least LEAST_DATA_POWER of its power to move data. Bandwidth is what the power left moves
    (Equation 3), and at most what the banks' width and clock can: without that ceiling a small cache
    with much power looks absurdly fast.
    """
    rows = level.area.size
    out = SramDesign(
        banks=np.empty(rows), capacity=np.empty(rows), bandwidth=np.empty(rows), static_power=np.empty(rows)
    )
    bank_area, bank_power = _bank_needs(level)
    for i in range(rows):
        banks = 0.0
        if level.instances[i] > 0.0 and level.power[i] > 0.0:
            banks = np.floor(level.area[i] / (level.instances[i] * bank_area[i]))
        standing = (1.0 - LEAST_DATA_POWER) * level.power[i]
        if level.instances[i] * banks * bank_power[i] > standing:
            banks = np.floor(standing / (level.instances[i] * bank_power[i]))
        banks = max(banks, 0.0) * level.instances[i]
        static = banks * bank_power[i]
        by_power = (level.power[i] - static) / (8.0 * level.dynamic_energy[i])
        by_banks = banks * level.bank_width[i] * level.bank_frequency[i]
        out.banks[i] = banks
        out.capacity[i] = banks * level.bank_capacity[i]
        out.bandwidth[i] = max(min(by_power, by_banks), 0.0)
        out.static_power[i] = static
    return out
