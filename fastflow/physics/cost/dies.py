"""Dies of a wafer: how many there are, and how many of them work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats

_EDGE = 2.32  # fitted to counts of square dies by de Vries, table I


class Wafer(NamedTuple):
    """Wafers; shape (points,)."""

    diameter: Floats  # [m]
    edge: Floats  # rim without dies [m]
    scribe: Floats  # lane between dies [m]


def dies_per_wafer(area: Floats, wafer: Wafer) -> Floats:
    """Return how many square dies of an area [m^2] a wafer has, whole or not, shape (points,).

    De Vries, "Investigation of gross die per wafer formulas", IEEE Trans. Semiconductor Manufacturing
    18(1), 2005: pi d^2 / 4 S exp(-2.32 sqrt(S) / d). The rim is taken off the diameter d, and a lane is added
    to the sides of the die S. A mean over dies of about that size: it is no whole number.
    """
    usable = wafer.diameter - 2.0 * wafer.edge
    side = np.sqrt(area) + wafer.scribe
    count: Floats = np.pi / 4.0 * (usable / side) ** 2 * np.exp(-_EDGE * side / usable)
    return count


def negative_binomial(area: Floats, density: Floats, cluster: Floats) -> Floats:
    """Return the share of dies without a defect that kills, shape (points,).

    area [m^2], density of defects [1/m^2], cluster: how little they cluster. (1 + area density /
    cluster)^-cluster: Stapper, "Defect density distribution for LSI yield calculations", IEEE Trans. Electron
    Devices 20(7), 1973.
    """
    share: Floats = (1.0 + area * density / cluster) ** -cluster
    return share
