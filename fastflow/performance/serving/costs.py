"""Power, costs and emissions of systems that serve, whose devices may have other chips, and of tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Columns, Floats, Inputs, Ints
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.attention_pool.devices import ATTENTION_DEVICES
from fastflow.performance.serving.disaggregated.predict import (
    PREFILL_DEVICES,
    has_prefill_chip,
    is_disaggregated,
    with_prefill_chip,
)
from fastflow.performance.serving.encoder_pool.devices import ENCODER_DEVICES
from fastflow.performance.serving.other_chips import has_chip, with_chip
from fastflow.physics.carbon.columns import carbon_columns
from fastflow.physics.cost.columns import Devices, cost_columns, devices_of
from fastflow.physics.cost.rent import invalid_rent
from fastflow.physics.cost.system import HOUR
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.physics.site.columns import power_of_site, site_columns
from fastflow.physics.site.limits import above_site_limits, site_limit_columns
from fastflow.schema import OF_ATTENTION, OF_ENCODER
from fastflow.schema.carbon import CARBON_TOKEN
from fastflow.schema.cost import A_MILLION, MILLION, TOKEN
from fastflow.schema.power import A_MEGAWATT, TOKENS_PER_MW


class ServedCosts(NamedTuple):
    """Power, costs and emissions of points that serve; (points,)."""

    columns: Columns
    above_limits: ReasonColumn  # which limit of a rack or of the site is exceeded


def served_costs(inputs: Inputs, columns: Columns, chip: Chip) -> ServedCosts:
    """Return results of power, cost and carbon; columns: the other results of points that serve.

    inputs: of the points, with all devices, chip: of the devices that decode. A token's cost is that of the
    system in the token's time: of an output token, or of a token of a pass. Emissions are of a request, or of
    a token that a pass decodes.
    """
    devices: Ints = inputs["system.devices"]
    missing = np.full(devices.size, np.nan)
    power: Floats = columns.get("power_W", missing) * devices
    groups = device_groups(inputs, chip)
    output_rate, prompt_rate, request_rate = (
        columns.get(name, missing) for name in ("tokens_per_s", "prefill_tokens_per_s", "requests_per_s")
    )
    token_rate = np.where(np.isnan(output_rate), prompt_rate, output_rate)
    time = 1.0 / np.where(np.isnan(request_rate), output_rate, request_rate)
    of_site = power_of_site(groups, power)
    costs = site_columns(groups, of_site, columns.get("energy_J", missing)) | site_limit_columns(inputs)
    above_limits = above_site_limits(inputs, groups, costs)
    costs |= cost_columns(groups, of_site.site) | carbon_columns(groups, of_site.site, time)
    costs[TOKENS_PER_MW.name] = A_MEGAWATT * token_rate / costs["system_W"]
    costs[TOKEN.name] = costs["usd_per_h"] / HOUR / token_rate
    costs[MILLION.name] = A_MILLION * costs[TOKEN.name]
    costs[CARBON_TOKEN.name] = costs["carbon_g"] / time / token_rate
    return ServedCosts(costs, above_limits)


def device_groups(inputs: Inputs, chip: Chip) -> list[Devices]:
    """Return the devices of points that serve, those with another chip last.

    chip: of the others.
    """
    left: Ints = inputs["system.devices"]
    others = []
    for count, of_chip in _other_devices(inputs):
        others.append(devices_of(of_chip, compute_unique(generate, of_chip, *HARDWARE, cached=True), count))
        left = left - count
    return [devices_of(inputs, chip, left), *others]


def invalid_device_rent(inputs: Inputs) -> ReasonColumn:
    """Say why devices of points that serve have no rent, those with another chip included; (points,)."""
    others = (invalid_rent(of_chip).where(count > 0) for count, of_chip in _other_devices(inputs))
    return first_reasons(invalid_rent(inputs), *others)


def _other_devices(inputs: Inputs) -> list[tuple[Ints, Columns]]:
    """Return the devices with another chip: how many each point has, (points,), and their inputs."""
    others, left = [], inputs["system.devices"]
    if has_prefill_chip(inputs):
        count = np.where(is_disaggregated(inputs), np.minimum(inputs[PREFILL_DEVICES], left), 0)
        others.append((count, with_prefill_chip(inputs)))
        left = left - count
    if has_chip(inputs, OF_ENCODER):
        others.append((np.minimum(inputs[ENCODER_DEVICES], left), with_chip(inputs, OF_ENCODER)))
        left = left - others[-1][0]
    if has_chip(inputs, OF_ATTENTION):
        others.append((np.minimum(inputs[ATTENTION_DEVICES], left), with_chip(inputs, OF_ATTENTION)))
    return others
