"""What one device costs: its dies, its memory, and the package that holds them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, table
from fastflow.physics.cost.dies import Wafer, dies_per_wafer, negative_binomial
from fastflow.physics.hardware.chiplets import CHIPLETS, areas, dies
from fastflow.physics.hardware.dram import DramDesign

LEAST_GOOD = 1e-12  # of a wafer: what costs more has a price all the same


class DeviceCost(NamedTuple):
    """Costs of devices; shape (points,)."""

    die_yield: Floats  # share of dies that work
    die: Floats  # all dies of a device [USD]
    memory: Floats  # [USD]
    package: Floats  # [USD]
    device: Floats  # all of these, as sold [USD]


def device_cost(inputs: Inputs, dram: DramDesign) -> DeviceCost:
    """Return what devices cost; inputs: `tech`, `mem`, `chip` and `cost`, dram: the memory that chips have.

    A die costs its part of a wafer, those that fail included. A defect in the part of a cores' die that has
    spare units does not kill it (`chip.salvage`). The yield is of the cores' dies. Raises KeyError for an
    input that is not there.
    """
    wafer = table(Wafer, inputs, "cost.wafer")
    die: Floats = np.zeros(1)
    for kind, number, area in areas(inputs):
        node = {
            name: inputs[f"{CHIPLETS}{kind}.{name}" if kind else f"tech.{name}"]
            for name in ("wafer_price", "defect_density", "defect_cluster")
        }
        # spare units are of cores
        critical = area if kind else area * (1.0 - inputs["chip.salvage"])
        works = negative_binomial(critical, node["defect_density"], node["defect_cluster"])
        die = die + number * node["wafer_price"] / _good(dies_per_wafer(area, wafer) * works)
    memory = dram.capacity * inputs["mem.price"]
    package = _package(inputs, wafer, dram, die + memory)
    return DeviceCost(works, die, memory, package, (die + memory + package) * inputs["cost.markup"])


def _good(dies: Floats) -> Floats:
    """Return how many dies of a wafer work, (points,): where next to none does, LEAST_GOOD."""
    least: Floats = np.fmax(dies, LEAST_GOOD)
    return least


def _package(inputs: Inputs, wafer: Wafer, dram: DramDesign, parts: Floats) -> Floats:
    """Return what packages cost [USD], with the parts [USD] that are lost as they are assembled."""
    carried = inputs["chip.die_area"] + dram.devices * inputs["mem.device_area"]
    area = carried * inputs["cost.interposer.margin"]
    density, cluster = (inputs[f"cost.interposer.defect_{what}"] for what in ("density", "cluster"))
    good = dies_per_wafer(area, wafer) * negative_binomial(area, density, cluster)
    interposer = inputs["cost.interposer.wafer_price"] / _good(good)
    bonded = inputs["cost.interposer.bond_yield"] ** (dies(inputs) - 1.0)
    assembled = (parts + interposer) / (inputs["cost.interposer.assembly_yield"] * bonded) - parts
    rest = inputs["cost.auxiliary"] * inputs["chip.tdp"]
    package: Floats = np.where(inputs["mem.on_interposer"], assembled, 0.0) + rest
    return package
