"""Bounds of results of fleets that need no simulation: what devices cost and draw, and what a trace allows.

A device draws at least what it draws at rest, and a trace lasts at least until its last request arrives. So
costs and energy are at least those of devices at rest, and a token's share is at least that of the largest
possible rate.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.tables import Columns, Floats, Inputs
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.costs import device_groups
from fastflow.performance.serving.fleet.requests import last_arrival
from fastflow.physics.cost.columns import Devices, cost_columns
from fastflow.physics.cost.system import HOUR
from fastflow.physics.hardware.chip import generate
from fastflow.physics.hardware.power import power_of
from fastflow.physics.site.columns import power_of_site
from fastflow.schema.cost import A_MILLION, MILLION, TOKEN
from fastflow.schema.power import A_MEGAWATT, TOKENS_PER_MW

_ROUNDING = 1e-9
"""Relative: sums of a simulation and of a bound round differently."""


def fleet_bounds(inputs: Inputs) -> Columns:
    """Return bounds of result columns of points with `serve.trace` and a number of devices; (points,) each.

    Results are at least as large, those per second and device, or per second and megawatt, at most as large.
    Raises InputError for a trace that cannot be read.
    """
    devices = inputs["system.devices"]
    groups = device_groups(inputs, compute_unique(generate, inputs, *HARDWARE, cached=True))
    at_rest = np.sum([_at_rest(group) for group in groups], axis=0)
    system = power_of_site(groups, at_rest).site
    usd = cost_columns(groups, system)["usd_per_h"]
    rate = _largest_token_rate(inputs)
    least = {
        "system_W": system, "usd_per_h": usd, TOKEN.name: usd / HOUR / rate,
        MILLION.name: A_MILLION * usd / HOUR / rate, "joules_per_token": at_rest / rate,
    }  # fmt: skip
    most = {
        "tokens_per_s": rate, "tokens_per_s_per_device": rate / devices,
        TOKENS_PER_MW.name: A_MEGAWATT * rate / system,
    }  # fmt: skip
    bounds: Columns = {"devices": devices}
    bounds |= {name: column * (1.0 - _ROUNDING) for name, column in least.items()}
    return bounds | {name: column * (1.0 + _ROUNDING) for name, column in most.items()}


def _at_rest(group: Devices) -> Floats:
    """Return what devices of a kind draw at rest [W], (points,)."""
    power: Floats = np.maximum(power_of(group.inputs, group.chip).idle, 0.0) * group.number
    return power


def _largest_token_rate(inputs: Inputs) -> Floats:
    """Return the most tokens of answers a second: if all requests end as the last one arrives; (points,)."""
    rates = np.empty(inputs["system.devices"].size)
    for point in range(rates.size):
        requests, mean_osl, seconds = last_arrival(inputs, point)
        rates[point] = requests * mean_osl / seconds if seconds > 0.0 else np.inf
    return rates
