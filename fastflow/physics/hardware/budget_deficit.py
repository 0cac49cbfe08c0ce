"""The shortage of budgets that make no chip, for the gradient of a search (4.3, 7)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.core.tables import Floats, Inputs
from fastflow.physics.hardware.chip import (
    Chip,
    core_parameters,
    die_link_parameters,
    dram_parameters,
    generate,
    link_parameters,
    sram_parameters,
)
from fastflow.physics.hardware.core import bundles_by_budget
from fastflow.physics.hardware.dram import devices_by_budget, power_by_budget
from fastflow.physics.hardware.infeasible import components
from fastflow.physics.hardware.link import links_by_budget
from fastflow.physics.hardware.sram import banks_by_budget

# where only rounding leaves a component empty: no shortage is 0 without a chip
_LEAST = float(np.finfo(np.float64).eps)


def shortage(inputs: Inputs) -> Floats:
    """Return the shortage of the budgets of a chip's components, shape (points,), no unit.

    A component that a point needs and that its budgets leave empty lacks, of every budget, the part of
    its smallest useful form that the budget has no room for: a bundle of MCUs, a bank in every instance
    of a level, a memory device and a link to it, a network link; all at the lowest supply. The shortage
    is the sum of these parts. It is 0 exactly where no component is empty, and finite everywhere; it
    falls continuously as a budget that lacks grows. What a component takes may rise in steps with the
    budgets of another: a bank for every MCU, standby power for every memory device.
    """
    total = np.zeros(inputs["chip.tdp"].size)
    is_short = np.zeros(total.size, dtype=np.bool_)
    chip = generate(inputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        for component, fractions in zip(components(inputs, chip), _by_budget(inputs, chip), strict=True):
            for fraction in fractions:
                # fmax: NaN is no shortage, it gets a reason of another kind
                total += np.where(component.empty, np.fmax(1.0 - fraction, 0.0), 0.0)
            is_short |= component.empty
    return np.where(is_short, np.maximum(total, _LEAST), 0.0)


def _by_budget(inputs: Inputs, chip: Chip) -> Iterator[tuple[Floats, ...]]:
    """Yield each budget of every component over the need of the smallest useful component."""
    if chip.die_links:
        yield links_by_budget(*die_link_parameters(inputs))
    yield bundles_by_budget(*core_parameters(inputs))
    # levels serve one bundle where there is none yet: a search may correct both at once
    mcus = np.where(chip.cores.mcus > 0.0, chip.cores.mcus, inputs["chip.mcus_per_bundle"])
    bundles = np.ceil(mcus / inputs["chip.mcus_per_bundle"])
    yield from map(banks_by_budget, sram_parameters(inputs, mcus, bundles))
    dram, supply = dram_parameters(inputs)
    yield (*devices_by_budget(dram), power_by_budget(dram, supply))
    for name in ("intra", "inter"):
        yield links_by_budget(*link_parameters(inputs, name))
