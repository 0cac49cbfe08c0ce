"""Main memory: devices, links, capacity and bandwidth (4.4.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.voltage import Supply, lowest_power, operate

# The most of the power that standby may take. Up to here one device more moves more at any supply: from half
# of it on, what its links gain by a lower supply no longer makes up for its standby.
STANDBY_POWER = 0.4


class Dram(NamedTuple):
    """What the generator needs to know of main memory; shape (points,)."""

    package_area: Floats  # node area that the compute die leaves [m^2]
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
    """Return how many devices package, controllers and die edge take (Equation 4), in fractions."""
    return (
        dram.package_area / dram.device_area,
        dram.controller_budget / dram.controller_area,
        dram.perimeter * dram.links_per_length / dram.links_per_device,
    )


def power_by_budget(dram: Dram, supply: Supply) -> Floats:
    """Return the power over what one device on standby and one link at its lowest supply take; (points,)."""
    return dram.power / (_standby(dram, dram.device_capacity) + lowest_power(_link_power(dram), supply))


def _devices(dram: Dram, supply: Supply) -> Floats:
    """Return how many whole devices there is room for, and power to use.

    A device more than the power feeds would take standby power from the links of the others: it is left out.
    One device is kept with fewer links.
    """
    by_package, by_controller, by_edge = devices_by_budget(dram)
    room = np.maximum(np.floor(np.minimum(np.minimum(by_package, by_controller), by_edge)), 0.0)
    standby = _standby(dram, dram.device_capacity)
    busy = standby + dram.links_per_device * lowest_power(_link_power(dram), supply)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        fed = np.minimum(dram.power / busy, STANDBY_POWER * dram.power / standby)
    return np.minimum(room, np.maximum(np.floor(fed), 1.0))


def _standby(dram: Dram, capacity: Floats) -> Floats:
    """Return the standby power of a capacity [W]."""
    return 8.0 * capacity * dram.static_power


def _link_power(dram: Dram) -> Floats:
    """Return the power of one link at the nominal point [W]."""
    return dram.nominal_frequency * dram.dynamic_energy


def generate_dram(dram: Dram, supply: Supply) -> DramDesign:
    """Place as many devices as package, controllers and die edge take (Equation 4), and as the power feeds at
    the minimum supply; then scale supply and link rate into the power that standby leaves.

    So a device more never makes main memory slower. Where the power does not feed one device at the minimum
    supply, it has fewer links.
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
