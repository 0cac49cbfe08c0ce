"""Result columns of cost: of a device, of its system, of an hour, of an iteration and of a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs, Ints, is_broadcast
from fastflow.physics.cost.device import Yields, device_cost, yields_of
from fastflow.physics.cost.rent import is_rented, rent_per_hour
from fastflow.physics.cost.system import HOUR, network_cost, system_cost
from fastflow.physics.hardware.chip import Chip

_SECTIONS = ("tech.", "mem.", "net.", "chip.", "system.", "cost.", "carbon.", "power.")


class Devices(NamedTuple):
    """Devices of one kind, of every point; shape (points,)."""

    inputs: Inputs  # of their hardware, cost, carbon and site; (1,) where all points have the same
    chip: Chip
    number: Ints
    yields: Yields


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of infeasible chips
def devices_of(inputs: Inputs, chip: Chip, number: Ints) -> Devices:
    """Return devices of every point, (points,) each; raises KeyError for a missing input.

    Inputs are of shape (1,) where all points have the same, as most prices are.
    """
    of_devices = {
        key: column[:1] if is_broadcast(column) else column
        for key, column in inputs.items()
        if key.startswith(_SECTIONS)
    }
    return Devices(of_devices, chip, number, yields_of(of_devices, chip.dram))


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of infeasible chips
def cost_columns(kinds: Sequence[Devices], drawn: Floats) -> Columns:
    """Return `schema.cost.COSTS` of every point.

    NaN where its chip is infeasible, and for costs of an hour where it has no time. kinds: the devices of
    systems; the columns of a device are those of the first kind. drawn: the power of the site [W], as of
    `physics.site`, NaN without a time, (points,). Raises KeyError for a missing input.
    """
    columns: Columns = {}
    total_usd, depreciation, rent = np.zeros((3, drawn.size))
    all_devices = np.sum([devices.number for devices in kinds], axis=0)
    for inputs, chip, number, yields in kinds:
        cost = device_cost(inputs, chip.dram, yields)
        network = network_cost(inputs, chip.intra.bandwidth, chip.inter.bandwidth, all_devices)
        system = system_cost(inputs, cost.device, network, number)
        total_usd, depreciation = total_usd + system.whole, depreciation + system.depreciation
        if is_rented(inputs):
            rent = rent + number * rent_per_hour(inputs)
        columns = columns or {
            "die_yield": cost.die_yield, "die_usd": cost.die, "memory_usd": cost.memory,
            "package_usd": cost.package, "device_usd": cost.device,
        }  # fmt: skip
    first_inputs = kinds[0].inputs
    electricity = drawn * first_inputs["cost.electricity"]
    columns |= {"system_usd": total_usd, "power_usd_per_h": HOUR * electricity}
    columns |= {"usd_per_h": HOUR * (depreciation + electricity)}
    if is_rented(first_inputs):  # a rent has the electricity and all other costs
        columns |= {"power_usd_per_h": np.zeros(drawn.size), "usd_per_h": rent}
    return finite_columns(columns, drawn.size)


def finite_columns(columns: Columns, points: int) -> Columns:
    """Return columns of shape (points,) each, with NaN for infinity."""
    finite: Columns = {name: np.full(points, np.nan) for name in columns}
    for name, column in columns.items():
        np.copyto(finite[name], column, where=np.isfinite(column))
    return finite


def iteration_columns(devices: Devices, time: Floats, drawn: Floats) -> Columns:
    """Return `cost_columns` of points that iterate, and the cost of an iteration.

    time: of an iteration [s], drawn: the power of the site [W], NaN where there is none, (points,).
    """
    columns = cost_columns([devices], drawn)
    return columns | {"iteration_usd": columns["usd_per_h"] / HOUR * time}
