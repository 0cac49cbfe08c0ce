"""Compute cores: how many MCUs fit, and how fast they run (4.4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.hardware.voltage import Supply, operate
from fastflow.tables import Floats, Ints


class Core(NamedTuple):
    """What the generator needs to know of the cores; shape (points,)."""

    area: Floats  # budget [m^2]
    power: Floats  # budget [W]
    mcus_per_bundle: Ints
    nominal_power: Floats  # of one MCU [W]
    nominal_area: Floats  # of one MCU [m^2]
    nominal_frequency: Floats  # [Hz]


class CoreDesign(NamedTuple):
    """Generated cores; shape (points,)."""

    mcus: Floats
    voltage: Floats  # [V]
    frequency: Floats  # [Hz]


def generate_cores(core: Core, supply: Supply) -> CoreDesign:
    """Fit whole bundles of MCUs into the area, then scale supply and clock into the power."""
    room = np.floor(core.area / core.nominal_area)
    point = operate(room, core.nominal_power, core.power, core.mcus_per_bundle.astype(np.float64), supply)
    return CoreDesign(point.units, point.voltage, point.speed * core.nominal_frequency)
