"""What a device draws at rest, while kernels run, and at most.

At rest, with its clocks up and no kernel, a chip draws what leaks, what refreshes its memory, and its links.
While a kernel runs, the clock tree and the issue of instructions draw more. Operations and bytes come on top
(`schedule/energy.py`), up to the budget: beyond it the clock falls.

Rest and running kernels of a real chip are shares of its budget (`chip.idle_power_fraction`,
`chip.active_power_fraction`). Those of a chip made from budgets are shares of its cores' power
(`tech.core.idle_power_fraction`, `tech.core.active_power_fraction`), beside the standby of its memories and
its links, which draw as much without traffic as with it (Abts et al., Energy Proportional Datacenter
Networks, ISCA 2010). A part of it leaks, more where the die is hotter (`leakage.py`). The rest of its cores'
power is that of operations, so that full cores draw what they were made for. `chip.power_limit` is below the
budget what a device draws at most (`timing/power_limit.py`); the shares remain those of the budget.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.leakage import excess, leaks, left_for_switching

LIMIT, PREFILL_LIMIT = "chip.power_limit", "serve.prefill.power_limit"
SHARED_RUNNING = 0.4
"""Share of the power of running kernels that a device draws however few of its bundles run: clock
distribution, L2, crossbar. Bundles that run draw the others. Calibrated on the powers of 4,000 products in
nvfp4 on B200, whose blocks of few rows leave most bundles idle (ai-dynamo/aiconfigurator@095f58a)."""


class Power(NamedTuple):
    """Power of devices; shape (points,)."""

    idle: Floats  # at rest [W]
    leaking: Floats  # of it, what leaks [W]
    hotter: Floats  # of it, what leaks beyond the reference temperature; below 0: less [W]
    active: Floats  # more, while a kernel runs on all bundles [W]
    operating: Floats  # more, with all units of cores made from budgets busy [W]
    limit: Floats  # at most [W]; infinite for chips without a limit whose parts fit their budgets
    of_budget: Bools  # whether its parts are known shares of its budget


def rest_of(inputs: Inputs) -> Floats:
    """Return the power of each real chip at rest [W], 0 of chips made from budgets; (points,)."""
    share: Floats = inputs.get("chip.idle_power_fraction", np.zeros(inputs["chip.tdp"].size))
    return share * inputs["chip.tdp"]


def limit_of(inputs: Inputs) -> Floats:
    """Return what each device draws at most [W]: its budget, or a limit below it; (points,)."""
    budget: Floats = inputs["chip.tdp"]
    return np.minimum(budget, inputs[LIMIT]) if LIMIT in inputs else budget


def extra_leakage(inputs: Inputs) -> Floats:
    """Return what a real chip leaks beyond the reference temperature [W], 0 of others; (points,)."""
    leakage: Floats = rest_of(inputs) * excess(inputs)
    return leakage


def power_of(inputs: Inputs, chip: Chip) -> Power:
    """Return the power of each chip."""
    budget, rest, cores = inputs["chip.tdp"], rest_of(inputs), chip.core_power
    more = excess(inputs)
    running = inputs.get("chip.active_power_fraction", np.zeros(budget.size)) * budget
    idle, active = (inputs[f"tech.core.{kind}_power_fraction"] * cores for kind in ("idle", "active"))
    standing = sum((level.design.static_power for level in chip.levels), chip.dram.static_power)
    links = sum(8.0 * link.energy * link.bandwidth for link in (chip.intra, chip.inter, *chip.die_links))
    is_known = rest > 0.0
    limit = limit_of(inputs)
    limit = np.where(is_known | (limit < budget), limit, np.inf)
    of_cores = np.where(is_known, rest, idle)
    # cores from budgets have what they leave for switching, see `chip.core_parameters`
    hotter = more * np.where(is_known, of_cores, of_cores / left_for_switching(inputs))
    return Power(
        idle=np.where(is_known, rest, idle + standing + links) + hotter,
        leaking=leaks(inputs) * of_cores + hotter,
        hotter=hotter,
        active=np.where(is_known, running, active),
        operating=np.maximum(cores - idle - active, 0.0),
        limit=limit,
        of_budget=is_known,
    )


def running_share(busy: Floats) -> Floats:
    """Return the power of running kernels over `Power.active`; busy: share of the bundles that run."""
    return SHARED_RUNNING + (1.0 - SHARED_RUNNING) * busy


def energy_per_byte(chip: Chip) -> Floats:
    """Return the energy of a byte of each on-chip level and of main memory [J/B], (levels + 1, points)."""
    energies: Floats = 8.0 * np.stack([*(level.dynamic_energy for level in chip.levels), chip.dram.energy])
    return energies


def full_load(power: Power, chip: Chip) -> Floats:
    """Return the power with all units and memories busy [W], (points,): of real chips, their budget."""
    bandwidths = np.stack([*(level.design.bandwidth for level in chip.levels), chip.dram.bandwidth])
    moved = (energy_per_byte(chip) * bandwidths).sum(axis=0)
    parts: Floats = np.minimum(power.idle + power.active + power.operating + moved, power.limit)
    return np.where(power.of_budget, power.limit, parts)


def operation_energy(power: Power, full: Floats, peak: Floats) -> Floats:
    """Return the energy of an operation of units [J], (points,).

    full: power of the device with all these units busy at the highest clock [W], 0 where it is not known;
    peak: of the units [operations/s].
    """
    of_units = np.maximum(full - (power.idle - power.hotter) - power.active, 0.0)
    energy: Floats = np.where((full > 0.0) & power.of_budget, of_units, power.operating) / peak
    return energy
