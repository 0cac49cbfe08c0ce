"""Embodied carbon of a system: devices with their share of hosts and of the network between packages."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.cost.system import ports_and_cables


def host_carbon(inputs: Inputs) -> Floats:
    """Return the emissions of making a machine without its devices, per device [kg], (points,)."""
    memory = inputs["carbon.host.dram"] * inputs["carbon.dram"]
    storage = inputs["carbon.host.nand"] * inputs["carbon.nand"]
    host: Floats = memory + storage + inputs["carbon.host.other"]
    return host


def network_carbon(inputs: Inputs, devices: Ints) -> Floats:
    """Return the emissions of making a device's share of the network between packages [kg], (points,).

    A network card for each device, and as much for each port of a switch; cables are left out. The network
    within a package is part of the device's board. devices: of all kinds together.
    """
    ports, _ = ports_and_cables(inputs, "system")
    is_used = devices > inputs["system.package.devices"]
    return np.where(is_used, (1.0 + ports) * inputs["carbon.adapter"], 0.0)
