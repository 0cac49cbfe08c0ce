"""Result columns of carbon: of a device, of its system, and of a unit of its work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.tables import Columns, Floats
from fastflow.physics.carbon.device import device_carbon
from fastflow.physics.carbon.profile import intensity_of
from fastflow.physics.carbon.system import host_carbon, network_carbon
from fastflow.physics.cost.columns import Devices, finite_columns

GRAMS = 1e3  # of a kilogram


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of infeasible chips
def carbon_columns(kinds: Sequence[Devices], drawn: Floats, time: Floats) -> Columns:
    """Return `schema.carbon.EMISSIONS` of every point.

    NaN where its chip is infeasible, and for emissions of work where it has no time. kinds: the devices of
    systems; the columns of a device are those of the first kind. drawn: the power of the site [W], as of
    `physics.site`, time: of a unit of work [s], NaN without a time, (points,). The
    emissions of making a system are spread over the part of its lifetime in which it works. Raises KeyError
    for a missing input, InputError for a bad profile.
    """
    columns: Columns = {}
    system: Floats = np.zeros(drawn.size)
    all_devices = np.sum([devices.number for devices in kinds], axis=0)
    for inputs, chip, number, yields in kinds:
        carbon = device_carbon(inputs, chip.dram, yields)
        share = carbon.device + host_carbon(inputs) + network_carbon(inputs, all_devices)
        system = system + number * share
        columns = columns or {
            "die_carbon_kg": carbon.die, "memory_carbon_kg": carbon.memory, "device_carbon_kg": carbon.device,
        }  # fmt: skip
    inputs = kinds[0].inputs
    working_time = inputs["carbon.lifetime"] * inputs["carbon.utilization"]
    operational = GRAMS * drawn * intensity_of(inputs) * time
    embodied = GRAMS * system / working_time * time
    embodied = np.where(np.isnan(operational), np.nan, embodied)
    columns |= {"system_carbon_kg": system, "operational_g": operational, "embodied_g": embodied}
    return finite_columns(columns | {"carbon_g": operational + embodied}, drawn.size)
