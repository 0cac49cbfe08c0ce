"""Limits of the power of racks, and of whole systems at a site such as a hall.

A limit is compared with the mean power over time: breakers and cooling of a rack, and the supply of a hall,
see seconds and minutes, and an iteration or a request is shorter. `chip.power_limit` limits what a device
draws in any kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn, Reasons, no_reasons
from fastflow.core.reasons.forms import rack_above_limit, system_above_limit
from fastflow.core.tables import Bools, Columns, Floats, Inputs, broadcast_column
from fastflow.physics.cost.columns import Devices
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.hardware.power import power_of

RACK_LIMIT, SITE_LIMIT = "power.rack_limit", "power.site_limit"
DRAWN = {RACK_LIMIT: "rack_W", SITE_LIMIT: "system_W"}
"""Keys of limits, and the result column that each is compared with."""
_COLUMNS = {RACK_LIMIT: "rack_limit_W", SITE_LIMIT: "site_limit_W"}
_LEAST_ABOVE_REST = 0.05  # of an advised power limit above rest, over the budget above rest: else too slow


def has_site_limits(inputs: Inputs) -> bool:
    """Say whether points may have a limit of the power of racks or of the site."""
    return any(key in inputs for key in DRAWN)


def site_limit_columns(inputs: Inputs) -> Columns:
    """Return the columns of these limits, (points,): NaN without a limit."""
    no_limit, points = np.array([np.nan]), inputs["chip.tdp"].size
    return {
        name: inputs[key] if key in inputs else broadcast_column(no_limit, points)
        for key, name in _COLUMNS.items()
    }


def is_within_limits(inputs: Inputs, columns: Columns) -> Bools:
    """Say which points draw no more than their limits, or have no power, (points,).

    columns: `schema.power.SITE`.
    """
    within: Bools = np.ones(columns["system_W"].size, dtype=np.bool_)
    for key, name in DRAWN.items():
        if key in inputs:
            within &= ~(columns[name] > inputs[key])
    return within


def power_excess(inputs: Inputs, columns: Columns) -> Floats:
    """Return the logarithm of powers over their limits, summed over exceeded limits; (points,).

    columns: `schema.power.SITE`.
    """
    total = np.zeros(columns["system_W"].size)
    for key, name in DRAWN.items():
        if key in inputs:
            rows = np.flatnonzero(columns[name] > inputs[key])
            total[rows] += np.log(columns[name][rows]) - np.log(inputs[key][rows])
    return total


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of points without a time
def above_site_limits(inputs: Inputs, kinds: Sequence[Devices], columns: Columns) -> ReasonColumn:
    """Say of every point which limit it exceeds, and what keeps to it, (points,).

    kinds: as of `site_columns`; columns: `schema.power.SITE`.
    """
    rows = np.flatnonzero(~is_within_limits(inputs, columns))
    if not rows.size:
        return no_reasons(columns["system_W"].size)
    reason, limited = Reasons(columns["system_W"].size), _limited_devices(inputs, kinds, columns)
    for row in rows.tolist():
        of_device = _rounded_down(float(limited[row]))
        drawn = {key: float(columns[name][row]) for key, name in DRAWN.items()}
        limit = {key: float(inputs[key][row]) if key in inputs else np.inf for key in DRAWN}
        if drawn[RACK_LIMIT] > limit[RACK_LIMIT]:
            form, key, one_device = rack_above_limit, RACK_LIMIT, float(columns["machine_W"][row])
        else:
            form, key, one_device = system_above_limit, SITE_LIMIT, float(columns["site_W"][row])
        fit = _count_within(limit[key], one_device)
        package = int(inputs[PACKAGE][row])
        fit -= fit % package if fit >= package else 0  # of whole machines
        reason.add(row, form(drawn=drawn[key], limit=limit[key], devices=fit, of_device=of_device))
    return reason.column()


def _limited_devices(inputs: Inputs, kinds: Sequence[Devices], columns: Columns) -> Floats:
    """Return the power of a device with which points keep to all limits [W], (points,).

    NaN where it is too near to what a device draws at rest, and where devices are of two kinds: each kind has
    a power limit of its own. What is drawn grows in proportion to what devices draw.
    """
    first = kinds[0].inputs
    most = columns["gpu_W"]
    of_machine = 1.0 / (1.0 - first["power.fan_fraction"]) / first["power.conversion_efficiency"]
    number = np.sum([devices.number for devices in kinds], axis=0)
    grows = {
        RACK_LIMIT: of_machine * first["power.rack_devices"],
        SITE_LIMIT: of_machine * first["power.pue"] * number,
    }
    for key, name in DRAWN.items():
        if key in inputs:
            reduced = columns["gpu_W"] - np.maximum(columns[name] - inputs[key], 0.0) / grows[key]
            most = np.minimum(most, reduced)
    rest, budget = power_of(first, kinds[0].chip).idle, first["chip.tdp"]
    can_be_limited = (most > rest + _LEAST_ABOVE_REST * (budget - rest)) & (most <= budget)
    for others in kinds[1:]:
        can_be_limited &= others.number == 0
    return np.where(can_be_limited, most, np.nan)


def _count_within(limit: float, one_device: float) -> int:
    """Return how many devices of some power are within a limit."""
    number = int(min(limit / one_device, 1e12))
    return number - 1 if number * one_device > limit else number


def _rounded_down(power: float) -> float:
    """Return a power with three digits, at most as large; NaN for NaN."""
    if not power > 0.0:
        return np.nan
    step = 10.0 ** (np.floor(np.log10(power)) - 2.0)
    return float(np.floor(power / step) * step)
