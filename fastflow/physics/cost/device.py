"""Cost of a device: its dies, its memory, and its package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, table
from fastflow.physics.cost.dies import Wafer, dies_per_wafer, negative_binomial
from fastflow.physics.hardware.chiplets import CHIPLETS, areas, dies
from fastflow.physics.hardware.dram import DramDesign

MIN_GOOD_DIES = 1e-12  # of a wafer: so that every die has a finite price


class DeviceCost(NamedTuple):
    """Costs of devices; shape (points,)."""

    die_yield: Floats  # share of dies that work
    die: Floats  # all dies of a device [USD]
    memory: Floats  # [USD]
    package: Floats  # [USD]
    device: Floats  # all of these, as sold [USD]


def device_cost(inputs: Inputs, dram: DramDesign) -> DeviceCost:
    """Return the cost of devices; inputs: `tech`, `mem`, `chip` and `cost`, dram: the memory of the chips.

    A die costs its part of a wafer, dies that fail included. A defect in the part of a compute die that has
    spare units does not kill it (`chip.salvage`). The yield is that of compute dies. Raises KeyError for a
    missing input.
    """
    wafer = table(Wafer, inputs, "cost.wafer")
    die: Floats = np.zeros(1)
    for kind, number, area in areas(inputs):
        node = {
            name: inputs[f"{CHIPLETS}{kind}.{name}" if kind else f"tech.{name}"]
            for name in ("wafer_price", "defect_density", "defect_cluster")
        }
        # only compute dies have spare units
        critical = area if kind else area * (1.0 - inputs["chip.salvage"])
        die_yield = negative_binomial(critical, node["defect_density"], node["defect_cluster"])
        die = die + number * node["wafer_price"] / _good(dies_per_wafer(area, wafer) * die_yield)
    memory = dram.capacity * inputs["mem.price"]
    package = _package(inputs, wafer, dram, die + memory)
    return DeviceCost(die_yield, die, memory, package, (die + memory + package) * inputs["cost.markup"])


def _good(dies: Floats) -> Floats:
    """Return how many dies of a wafer work, at least MIN_GOOD_DIES, (points,)."""
    least: Floats = np.fmax(dies, MIN_GOOD_DIES)
    return least


def _package(inputs: Inputs, wafer: Wafer, dram: DramDesign, parts: Floats) -> Floats:
    """Return the cost of packages [USD], with the parts [USD] that assembly loses."""
    carried_area = inputs["chip.die_area"] + dram.devices * inputs["mem.device_area"]
    area = carried_area * inputs["cost.interposer.margin"]
    density, cluster = (inputs[f"cost.interposer.defect_{name}"] for name in ("density", "cluster"))
    good = dies_per_wafer(area, wafer) * negative_binomial(area, density, cluster)
    interposer = inputs["cost.interposer.wafer_price"] / _good(good)
    bonded = inputs["cost.interposer.bond_yield"] ** (dies(inputs) - 1.0)
    assembled = (parts + interposer) / (inputs["cost.interposer.assembly_yield"] * bonded) - parts
    auxiliary = inputs["cost.auxiliary"] * inputs["chip.tdp"]
    package: Floats = np.where(inputs["mem.on_interposer"], assembled, 0.0) + auxiliary
    return package
