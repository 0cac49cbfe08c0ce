"""Power of machines and of the site around them, from that of their devices.

A machine has its host (processors, memory, drives, network cards, and the links within it) beside its
devices. Its fans take a share of what it draws, and its power supplies lose one. Switches and their
transceivers draw power whether or not they carry anything. The building cools all of it and converts its
power once more (power usage effectiveness, ISO/IEC 30134-2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.cost.system import ports_and_cables


class SitePower(NamedTuple):
    """Power of all devices of systems, and of what is around them [W]; (points,)."""

    devices: Floats
    machines: Floats  # at their plugs
    site: Floats  # with switches and the building


def host_power(inputs: Inputs) -> Floats:
    """Return the power of a device's share of its host [W], (points,)."""
    host: Floats = inputs["power.host_fraction"] * inputs["chip.tdp"]
    return host


def switch_power(inputs: Inputs, bandwidth: Floats, devices: Ints) -> Floats:
    """Return the power of a device's share of the switches between packages [W], (points,).

    bandwidth: of a device, one direction [B/s]; devices: of a system. Switches within a package are part of
    its machine's host.
    """
    ports, _ = ports_and_cables(inputs, "system")
    is_used = devices > inputs["system.package.devices"]
    return np.where(is_used, bandwidth * ports * inputs["power.switch"], 0.0)


def site_power(inputs: Inputs, devices: Floats, hosts: Floats, switches: Floats) -> SitePower:
    """Return the power of systems; devices, hosts, switches: all of a system [W], (points,)."""
    of_parts = (devices + hosts) / (1.0 - inputs["power.fan_fraction"])
    machines = of_parts / inputs["power.conversion_efficiency"]
    return SitePower(devices, machines, (machines + switches) * inputs["power.pue"])
