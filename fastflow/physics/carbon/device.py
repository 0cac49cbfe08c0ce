"""Embodied carbon of a device: its dies, its memory, and its package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs
from fastflow.physics.cost.device import Yields, of_node
from fastflow.physics.hardware.chiplets import dies
from fastflow.physics.hardware.dram import DramDesign


class DeviceCarbon(NamedTuple):
    """Emissions of making devices, as CO2e [kg]; shape (points,)."""

    die: Floats  # all dies of a device
    memory: Floats
    device: Floats  # with the package, its board and heat sink


def device_carbon(inputs: Inputs, dram: DramDesign, yields: Yields) -> DeviceCarbon:
    """Return the emissions of making devices; inputs: `tech`, `mem`, `chip`, `cost` and `carbon`.

    dram: the memory of the chips, yields: of wafers and packages. Wafers take electricity, gases and
    materials by area (ACT: Gupta et al., ISCA 2022, equations 4 and 5); a die has its part of a wafer, with
    the dies and the rim that fail, as in its cost. Raises KeyError for a missing input.
    """
    wafer_area = np.pi / 4.0 * inputs["cost.wafer.diameter"] ** 2
    die: Floats = np.zeros(1)
    for kind, number, _, good in yields.dies:
        of_area = of_node(inputs, kind, "fab_energy") * inputs["carbon.fab.intensity"]
        of_area = of_area + of_node(inputs, kind, "fab_gas") + inputs["carbon.fab.materials"]
        die = die + number * wafer_area * of_area / good
    memory = dram.capacity * inputs["mem.carbon"]
    interposer = wafer_area * inputs["carbon.interposer"] / yields.interposers
    # a package that fails loses its dies and memory
    assembled = np.where(
        inputs["mem.on_interposer"], (die + memory + interposer) / yields.assembled, die + memory
    )
    packaged = (dies(inputs) + dram.devices) * inputs["carbon.packaging"]
    device = assembled + packaged + inputs["carbon.auxiliary"] * inputs["chip.tdp"]
    return DeviceCarbon(die, memory, device)
