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

_SECTIONS = ("tech.", "mem.", "net.", "chip.", "system.", "cost.")


class Devices(NamedTuple):
    """Devices of one kind, of every point; shape (points,)."""

    inputs: Inputs
    chip: Chip
    number: Ints


def _cost_inputs(inputs: Inputs) -> Inputs:
    """Return the inputs of costs, of shape (1,) where all points have the same, as most prices are."""
    return {
        key: column[:1] if is_broadcast(column) else column
        for key, column in inputs.items()
        if key.startswith(_SECTIONS)
    }


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of infeasible chips
def cost_columns(kinds: Sequence[Devices], power: Floats) -> Columns:
    """Return `schema.cost.COSTS` of every point.

    NaN where its chip is infeasible, and for costs of an hour where it has no time. kinds: the devices of
    systems; the columns of a device are those of the first kind. power: of all devices of a point [W], NaN
    without a time, (points,). Raises KeyError for a missing input.
    """
    columns: Columns = {}
    first_inputs: Inputs = {}
    total_usd, depreciation, hosts, rent = np.zeros((4, power.size))
    all_devices = np.sum([number for _, _, number in kinds], axis=0)
    for all_inputs, chip, number in kinds:
        inputs = _cost_inputs(all_inputs)
        cost = device_cost(inputs, chip.dram)
        network = network_cost(inputs, chip.intra.bandwidth, chip.inter.bandwidth, all_devices)
        system = system_cost(inputs, cost.device, network, number)
        total_usd, depreciation = total_usd + system.whole, depreciation + system.depreciation
        hosts = hosts + number * inputs["chip.tdp"]
        if is_rented(inputs):
            rent = rent + number * rent_per_hour(inputs)
        first_inputs = first_inputs or inputs
        columns = columns or {
            "die_yield": cost.die_yield, "die_usd": cost.die, "memory_usd": cost.memory,
            "package_usd": cost.package, "device_usd": cost.device,
        }  # fmt: skip
    drawn = electricity(first_inputs, power, hosts)
    columns |= {"system_usd": total_usd, "power_usd_per_h": HOUR * drawn}
    columns |= {"usd_per_h": HOUR * (depreciation + drawn)}
    if is_rented(first_inputs):  # a rent has the electricity and all other costs
        columns |= {"power_usd_per_h": np.zeros(power.size), "usd_per_h": rent}
    finite = {name: np.where(np.isfinite(column), column, np.nan) for name, column in columns.items()}
    return {name: np.broadcast_to(column, power.shape).copy() for name, column in finite.items()}


def iteration_columns(devices: Devices, time: Floats, energy: Floats) -> Columns:
    """Return `cost_columns` of points that iterate, and the cost of an iteration.

    time [s] and energy of all devices [J] of an iteration, NaN where there is none, (points,).
    """
    columns = cost_columns([devices], energy / time)
    return columns | {"iteration_usd": columns["usd_per_h"] / HOUR * time}
