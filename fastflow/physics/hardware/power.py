"""What a device draws at rest, while kernels run, and at most.

The power of a real chip has parts (`chip.idle_power_fraction`, `chip.active_power_fraction`). At rest, with
its clocks up and no kernel, it draws a share of its budget: leakage, refresh of memory, links, conversion.
While a kernel runs, the clock tree and the issue of instructions take another share. Operations and bytes
come on top (`schedule/energy.py`), up to the budget: beyond it the clock falls. A chip made from budgets has
no such shares. It draws what the technology says of its parts: the leakage and standby of its memories, and
nothing for clocks beyond its operations. `chip.power_limit` is below the budget what a device draws at most
(`timing/power_limit.py`); the shares remain those of the budget.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs
from fastflow.physics.hardware.chip import Chip

LIMIT = "chip.power_limit"


class Power(NamedTuple):
    """Power of devices; shape (points,)."""

    idle: Floats  # at rest [W]
    active: Floats  # more, while a kernel runs [W]
    limit: Floats  # at most [W]; infinite for chips without a limit whose parts fit their budgets
    of_budget: Bools  # whether its parts are known shares of its budget


def rest_of(inputs: Inputs) -> Floats:
    """Return the power of each real chip at rest [W], 0 of chips made from budgets; (points,)."""
    share: Floats = inputs.get("chip.idle_power_fraction", np.zeros(inputs["chip.tdp"].size))
    return share * inputs["chip.tdp"]


def power_of(inputs: Inputs, chip: Chip) -> Power:
    """Return the power of each chip."""
    budget, rest = inputs["chip.tdp"], rest_of(inputs)
    running = inputs.get("chip.active_power_fraction", np.zeros(budget.size)) * budget
    standing = sum((level.design.static_power for level in chip.levels), chip.dram.static_power)
    is_known = rest > 0.0
    limit = np.where(is_known, budget, np.inf)
    if LIMIT in inputs:
        limit = np.where(inputs[LIMIT] < budget, inputs[LIMIT], limit)
    return Power(np.where(is_known, rest, standing), running, limit, is_known)


def limit_of(inputs: Inputs) -> Floats:
    """Return the most that each device may draw [W], (points,): its budget, or a lower limit."""
    budget: Floats = inputs["chip.tdp"]
    return np.minimum(inputs[LIMIT], budget) if LIMIT in inputs else budget


def energy_per_byte(chip: Chip) -> Floats:
    """Return the energy of a byte of each on-chip level and of main memory [J/B], (levels + 1, points)."""
    energies: Floats = 8.0 * np.stack([*(level.dynamic_energy for level in chip.levels), chip.dram.energy])
    return energies


def operation_energy(power: Power, full: Floats, core_power: Floats, peak: Floats) -> Floats:
    """Return the energy of an operation of units [J], (points,).

    full: power of the device with all these units busy at the highest clock [W], 0 where it is not known;
    core_power: of the cores from technology [W]; peak: of the units [operations/s].
    """
    of_units = np.maximum(full - power.idle - power.active, 0.0)
    energy: Floats = np.where((full > 0.0) & power.of_budget, of_units, core_power) / peak
    return energy
