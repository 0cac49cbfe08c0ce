"""Result columns of cost: of a device, of its system, of an hour, of an iteration and of a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs, Ints, is_broadcast
from fastflow.physics.cost.device import device_cost
from fastflow.physics.cost.rent import is_rented, rent_per_hour
from fastflow.physics.cost.system import HOUR, electricity, network_cost, system_cost
from fastflow.physics.hardware.chip import Chip

_READ = ("tech.", "mem.", "net.", "chip.", "system.", "cost.")


class Devices(NamedTuple):
    """Devices of one kind, of every point; shape (points,)."""

    inputs: Inputs
    chip: Chip
    number: Ints


def _once(inputs: Inputs) -> Inputs:
    """Return the inputs of costs, of one row where all points have the same: most prices are."""
    return {
        key: column[:1] if is_broadcast(column) else column
        for key, column in inputs.items()
        if key.startswith(_READ)
    }


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of chips that cannot be
def cost_columns(kinds: Sequence[Devices], power: Floats) -> Columns:
    """Return `schema.cost.COSTS` of every point.

    NaN where its chip cannot be, and of its hours where it has no time. kinds: the devices of systems; the
    columns of one device are of the first kind. power: what all devices of a point draw [W], NaN without a
    time, (points,). Raises KeyError for an input that is not there.
    """
    columns: Columns = {}
    read: Inputs = {}
    whole, depreciation, hosts, rent = np.zeros((4, power.size))
    together = np.sum([number for _, _, number in kinds], axis=0)
    for every, chip, number in kinds:
        inputs = _once(every)
        one = device_cost(inputs, chip.dram)
        network = network_cost(inputs, chip.intra.bandwidth, chip.inter.bandwidth, together)
        system = system_cost(inputs, one.device, network, number)
        whole, depreciation = whole + system.whole, depreciation + system.depreciation
        hosts = hosts + number * inputs["chip.tdp"]
        if is_rented(inputs):
            rent = rent + number * rent_per_hour(inputs)
        read = read or inputs
        columns = columns or {
            "die_yield": one.die_yield, "die_usd": one.die, "memory_usd": one.memory,
            "package_usd": one.package, "device_usd": one.device,
        }  # fmt: skip
    drawn = electricity(read, power, hosts)
    columns |= {"system_usd": whole, "power_usd_per_h": HOUR * drawn}
    columns |= {"usd_per_h": HOUR * (depreciation + drawn)}
    if is_rented(read):  # with all that it takes to run the devices
        columns |= {"power_usd_per_h": np.zeros(power.size), "usd_per_h": rent}
    finite = {name: np.where(np.isfinite(column), column, np.nan) for name, column in columns.items()}
    return {name: np.broadcast_to(column, power.shape).copy() for name, column in finite.items()}


def iteration_columns(devices: Devices, time: Floats, energy: Floats) -> Columns:
    """Return `cost_columns` of points that iterate, and what an iteration costs.

    time [s] and energy of all devices [J] of an iteration, NaN without one, (points,).
    """
    columns = cost_columns([devices], energy / time)
    return columns | {"iteration_usd": columns["usd_per_h"] / HOUR * time}
