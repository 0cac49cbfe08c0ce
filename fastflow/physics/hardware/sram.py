"""Registers and caches: banks, capacity and bandwidth of an on-chip level (4.4.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats

# The paper only requires that leakage leaves power to move data (4.4.2). With a fixed share, more banks take
# no power from data movement, so that more area is never a slower memory.
LEAKAGE_POWER = 0.01


class SramComponent(NamedTuple):
    """An on-chip memory of the technology library, scaled to the chip's node; shape (points,)."""

    latency: Floats  # [s]
    dynamic_energy: Floats  # [J/bit]
    static_power: Floats  # [W/bit]
    cell_area: Floats  # [m^2/bit]
    overhead: Floats  # share of a bank's area outside its cells
    bank_capacity: Floats  # [B]
    bank_width: Floats  # [B] a cycle
    bank_frequency: Floats  # [Hz]
    controller_power: Floats  # of a bank that moves data [W]
    controller_area: Floats  # [m^2] a bank
    ports: Floats  # of the crossbar, towards the level inside
    link_area: Floats  # [m^2] a bank and port: a crosspoint of the crossbar


class Sram(NamedTuple):
    """The generator's inputs for an on-chip memory level; shape (points,)."""

    area: Floats  # budget of all instances [m^2]
    power: Floats  # budget of all instances [W]
    instances: Floats  # one per die, bundle or MCU, by the level's scope
    target_capacity: Floats  # capacity of one instance; infinite: all that its budgets allow [B]
    component: SramComponent


class SramDesign(NamedTuple):
    """A generated on-chip level, all instances together; shape (points,)."""

    banks: Floats
    capacity: Floats  # [B]
    bandwidth: Floats  # [B/s]
    ceiling: Floats  # bandwidth of its banks without a power limit [B/s]
    static_power: Floats  # leakage [W]


def _bank_cost(sram: SramComponent) -> tuple[Floats, Floats]:
    """Return the area of a bank with its part of the crossbar [m^2], and its leakage [W] (Equation 2)."""
    bits = 8.0 * sram.bank_capacity
    area = bits * sram.cell_area / (1.0 - sram.overhead)
    area += sram.controller_area + sram.ports * sram.link_area
    return area, bits * sram.static_power


def moved_energy(sram: SramComponent) -> Floats:
    """Return the energy of moving a bit, in cells and in the controller of a bank [J/bit], (points,)."""
    return sram.dynamic_energy + sram.controller_power / (8.0 * sram.bank_width * sram.bank_frequency)


def banks_by_budget(level: Sram) -> tuple[Floats, Floats]:
    """Return how many banks fit area and leakage power in all instances, as fractions; shape (points,).

    Without power no bank fits, even if banks do not leak.
    """
    bank_area, leakage = _bank_cost(level.component)
    by_power = np.where(level.power > 0.0, np.inf, 0.0)
    np.divide(LEAKAGE_POWER * level.power, leakage, out=by_power, where=leakage > 0.0)
    return level.area / bank_area, by_power


def max_instances(level: Sram) -> Floats:
    """Return how many whole instances of the required capacity fit the budgets; (points,)."""
    by_area, by_power = banks_by_budget(level)
    banks = np.floor(np.minimum(by_area, by_power))
    return np.floor(banks * level.component.bank_capacity / level.target_capacity)


def generate_sram(level: Sram) -> SramDesign:
    """Fit banks and their crossbar into the area, and spend the power on moving data.

    The number of whole banks is that of the required capacity, at most that which fits the area with
    controllers and crossbar (banks x ports), and leaks at most LEAKAGE_POWER of the power (Equation 2);
    instances share them evenly. The rest of the power gives the bandwidth (Equation 3), including a bank's
    controller while the bank moves data; width and clock of the banks are its ceiling: without it a small
    cache with much power would be far too fast. So neither more area nor more power makes a level smaller or
    slower.
    """
    return _fit(level, *_bank_cost(level.component), moved_energy(level.component))


@kernel
def _fit(level: Sram, bank_area: Floats, leakage: Floats, energy: Floats) -> SramDesign:
    """Fit banks as `generate_sram` says; of a bank [m^2] and [W], of a bit [J], shape (points,)."""
    rows, sram = level.area.size, level.component
    out = SramDesign(
        banks=np.empty(rows),
        capacity=np.empty(rows),
        bandwidth=np.empty(rows),
        ceiling=np.empty(rows),
        static_power=np.empty(rows),
    )
    for i in range(rows):
        banks = 0.0
        if level.instances[i] > 0.0 and level.power[i] > 0.0:
            banks = np.floor(level.area[i] / bank_area[i])
            if banks * leakage[i] > LEAKAGE_POWER * level.power[i]:
                banks = np.floor(LEAKAGE_POWER * level.power[i] / leakage[i])
            banks = min(banks, np.ceil(level.instances[i] * level.target_capacity[i] / sram.bank_capacity[i]))
        by_power = (1.0 - LEAKAGE_POWER) * level.power[i] / (8.0 * energy[i])
        by_banks = banks * sram.bank_width[i] * sram.bank_frequency[i]
        out.banks[i] = banks
        out.capacity[i] = min(banks * sram.bank_capacity[i], level.instances[i] * level.target_capacity[i])
        out.bandwidth[i], out.ceiling[i] = min(by_power, by_banks), by_banks
        out.static_power[i] = banks * leakage[i]
    return out
