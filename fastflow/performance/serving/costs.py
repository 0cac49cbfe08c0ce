"""Costs of points that serve: of systems, which may have another chip for prefill, and of tokens."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Columns, Floats, Inputs, Ints
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.disaggregated.predict import (
    PREFILL_DEVICES,
    has_prefill_chip,
    is_disaggregated,
    with_prefill_chip,
)
from fastflow.physics.cost.columns import Devices, cost_columns
from fastflow.physics.cost.rent import invalid_rent
from fastflow.physics.cost.system import HOUR
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.schema.cost import A_MILLION, MILLION, TOKEN


def served_costs(inputs: Inputs, columns: Columns, chip: Chip) -> Columns:
    """Return result columns of cost; inputs: of points that serve, with all devices; columns: their results.

    chip: of the devices that decode.

    A token's cost is that of the system in the token's time: of an output token, or of a token of a pass.
    """
    devices: Ints = inputs["system.devices"]
    missing = np.full(devices.size, np.nan)
    power: Floats = columns.get("power_W", missing) * devices
    if has_prefill_chip(inputs):
        prefill_devices = np.where(is_disaggregated(inputs), np.minimum(inputs[PREFILL_DEVICES], devices), 0)
        prefill_inputs = with_prefill_chip(inputs)
        prefill_chip = compute_unique(generate, prefill_inputs, *HARDWARE, cached=True)
        groups = [
            Devices(inputs, chip, devices - prefill_devices),
            Devices(prefill_inputs, prefill_chip, prefill_devices),
        ]
    else:
        groups = [Devices(inputs, chip, devices)]
    costs = cost_columns(groups, power)
    output_rate, prompt_rate = (
        columns.get(name, missing) for name in ("tokens_per_s", "prefill_tokens_per_s")
    )
    costs[TOKEN.name] = costs["usd_per_h"] / HOUR / np.where(np.isnan(output_rate), prompt_rate, output_rate)
    costs[MILLION.name] = A_MILLION * costs[TOKEN.name]
    return costs


def invalid_device_rent(inputs: Inputs) -> ReasonColumn:
    """Say why devices of points that serve have no rent, prefill devices included; (points,)."""
    reason = invalid_rent(inputs)
    if not has_prefill_chip(inputs):
        return reason
    of_prefill = invalid_rent(with_prefill_chip(inputs)).where(is_disaggregated(inputs))
    return first_reasons(reason, of_prefill)
