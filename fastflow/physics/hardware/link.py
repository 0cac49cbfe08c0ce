"""Network links, within the package and between packages (4.4.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.voltage import Supply, lowest_power, operate


class Link(NamedTuple):
    """The generator's inputs for the links of a network; shape (points,)."""

    area: Floats  # budget [m^2]
    power: Floats  # budget [W]
    perimeter: Floats  # budget [m]
    nominal_frequency: Floats  # of one link [bit/s]
    nominal_energy: Floats  # [J/bit]
    nominal_area: Floats  # of one link [m^2]
    links_per_length: Floats  # [1/m]
    maximum_links: Ints  # width of a device's port


class LinkDesign(NamedTuple):
    """Generated links; shape (points,)."""

    links: Floats
    bandwidth: Floats  # one direction [B/s]
    energy: Floats  # at the operating supply [J/bit]


def links_by_budget(link: Link, supply: Supply) -> tuple[Floats, Floats, Floats]:
    """Return how many links fit area, die edge and, at the lowest supply, power, as fractions.

    Shape (points,) each. The port's width is not a budget.
    """
    return (*_by_budget(link), link.power / lowest_power(_unit_power(link), supply))


def _by_budget(link: Link) -> tuple[Floats, Floats]:
    """Return how many links fit area and die edge, as fractions."""
    return link.area / link.nominal_area, link.perimeter * link.links_per_length


def _unit_power(link: Link) -> Floats:
    """Return the power of one link at the nominal point [W]."""
    # of a link without energy: a divisor of the budget that is not 0
    return np.maximum(link.nominal_frequency * link.nominal_energy, np.finfo(np.float64).tiny)


def generate_links(link: Link, supply: Supply) -> LinkDesign:
    """Fit links into area, die edge and port, then scale supply and rate into the power."""
    links = np.floor(np.minimum(np.minimum(*_by_budget(link)), link.maximum_links))
    point = operate(links, _unit_power(link), link.power, np.ones_like(links), supply)
    bandwidth = point.units * point.speed * link.nominal_frequency / 8.0
    energy = link.nominal_energy * (point.voltage / supply.nominal_voltage) ** 2
    return LinkDesign(point.units, bandwidth, energy)
