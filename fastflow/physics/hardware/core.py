"""Compute cores: how many MCUs fit, and how fast they run (4.4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.voltage import Supply, lowest_power, operate


class Core(NamedTuple):
    """The generator's inputs for the cores; shape (points,)."""

    area: Floats  # budget [m^2]
    power: Floats  # budget [W]
    bundles: Floats  # at most, so that on-chip memories have their capacity
    mcus_per_bundle: Ints
    nominal_power: Floats  # of one MCU [W]
    nominal_area: Floats  # of one MCU [m^2]
    nominal_frequency: Floats  # [Hz]


class CoreDesign(NamedTuple):
    """Generated cores; shape (points,)."""

    mcus: Floats
    voltage: Floats  # [V]
    frequency: Floats  # [Hz]


def bundles_by_budget(core: Core, supply: Supply) -> tuple[Floats, Floats]:
    """Return how many bundles fit area and power at the lowest supply, as fractions; shape (points,)."""
    bundle_power = lowest_power(core.nominal_power, supply) * core.mcus_per_bundle
    return _mcus_by_area(core) / core.mcus_per_bundle, core.power / bundle_power


def _mcus_by_area(core: Core) -> Floats:
    """Return how many MCUs fit the area, as a fraction."""
    return core.area / core.nominal_area


def generate_cores(core: Core, supply: Supply) -> CoreDesign:
    """Fit whole bundles of MCUs into the area, then scale supply and clock into the power.

    At most `Core.bundles`: a further bundle would take memory capacity from the others.
    """
    mcus = np.floor(np.minimum(_mcus_by_area(core), core.bundles * core.mcus_per_bundle))
    point = operate(mcus, core.nominal_power, core.power, core.mcus_per_bundle.astype(np.float64), supply)
    return CoreDesign(point.units, point.voltage, point.speed * core.nominal_frequency)
