"""Main memory: devices, links, capacity and bandwidth (4.4.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.voltage import Supply, lowest_power, operate

# Largest share of the power for standby. Up to this share a further device raises the bandwidth at any
# supply: from a half on, the gain of its links from a lower supply is less than its standby power.
STANDBY_POWER = 0.4


class Dram(NamedTuple):
    """The generator's inputs for main memory; shape (points,)."""

    package_area: Floats  # node area without the compute die [m^2]
    controller_budget: Floats  # die area for controllers [m^2]
    perimeter: Floats  # budget [m]
    power: Floats  # budget [W]
    links_per_device: Ints
    links_per_length: Floats  # [1/m]
    dynamic_energy: Floats  # [J/bit]
    static_power: Floats  # [W/bit]
    device_capacity: Floats  # [B]
    device_area: Floats  # [m^2]
    controller_area: Floats  # [m^2]
    nominal_frequency: Floats  # of one link [bit/s]


class DramDesign(NamedTuple):
    """Generated main memory; shape (points,)."""

    devices: Floats
    capacity: Floats  # [B]
    bandwidth: Floats  # [B/s]
    energy: Floats  # at the operating supply [J/bit]
    static_power: Floats  # [W]


def devices_by_budget(dram: Dram) -> tuple[Floats, Floats, Floats]:
    """Return how many devices fit package, controllers and die edge (Equation 4), as fractions."""
    return (
        dram.package_area / dram.device_area,
        dram.controller_budget / dram.controller_area,
        dram.perimeter * dram.links_per_length / dram.links_per_device,
    )


def power_by_budget(dram: Dram, supply: Supply) -> Floats:
    """Return the power over that of one device on standby and one link at the lowest supply; (points,)."""
    return dram.power / (_standby(dram, dram.device_capacity) + lowest_power(_link_power(dram), supply))


def _devices(dram: Dram, supply: Supply) -> Floats:
    """Return how many whole devices fit, and have the power for use.

    A device beyond the power budget would take standby power from the links of the others: it is left out. A
    single device is kept, with fewer links.
    """
    by_package, by_controller, by_edge = devices_by_budget(dram)
    fitting = np.maximum(np.floor(np.minimum(np.minimum(by_package, by_controller), by_edge)), 0.0)
    standby = _standby(dram, dram.device_capacity)
    active = standby + dram.links_per_device * lowest_power(_link_power(dram), supply)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        powered = np.minimum(dram.power / active, STANDBY_POWER * dram.power / standby)
    return np.minimum(fitting, np.maximum(np.floor(powered), 1.0))


def _standby(dram: Dram, capacity: Floats) -> Floats:
    """Return the standby power of a capacity [W]."""
    return 8.0 * capacity * dram.static_power


def _link_power(dram: Dram) -> Floats:
    """Return the power of one link at the nominal point [W]."""
    return dram.nominal_frequency * dram.dynamic_energy


def generate_dram(dram: Dram, supply: Supply) -> DramDesign:
    """Place as many devices as fit package, controllers, die edge (Equation 4) and power at the least supply.

    Then scale supply and link rate to the power that is left by standby. So a further device never makes main
    memory slower. A single device beyond the power at the minimum supply has fewer links.
    """
    devices = _devices(dram, supply)
    capacity = devices * dram.device_capacity
    static = _standby(dram, capacity)
    links = (devices * dram.links_per_device).astype(np.float64)
    point = operate(links, _link_power(dram), dram.power - static, np.ones_like(links), supply)
    return DramDesign(
        devices=devices,
        capacity=capacity,
        bandwidth=point.units * point.speed * dram.nominal_frequency / 8.0,
        energy=dram.dynamic_energy * (point.voltage / supply.nominal_voltage) ** 2,
        static_power=static,
    )
