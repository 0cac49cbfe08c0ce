"""What points that serve cost: their systems, which may have a chip of their own for prefill, and tokens."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.tables import Columns, Floats, Inputs, Ints, Texts, first_of
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.disaggregated.predict import (
    PREFILL_DEVICES,
    has_prefill_chip,
    is_apart,
    with_prefill_chip,
)
from fastflow.physics.cost.columns import Devices, cost_columns
from fastflow.physics.cost.rent import invalid_rent
from fastflow.physics.cost.system import HOUR
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.schema.cost import A_MILLION, MILLION, TOKEN


def served_costs(inputs: Inputs, columns: Columns, chip: Chip) -> Columns:
    """Return result columns of cost; inputs: of points that serve, with all devices; columns: their results.

    chip: that of the devices which decode.

    A token costs what the system costs in the time that it takes: an output token, or a token of a pass.
    """
    number: Ints = inputs["system.devices"]
    nothing = np.full(number.size, np.nan)
    power: Floats = columns.get("power_W", nothing) * number
    if has_prefill_chip(inputs):
        prefills = np.where(is_apart(inputs), np.minimum(inputs[PREFILL_DEVICES], number), 0)
        others = with_prefill_chip(inputs)
        prefill = compute_unique(generate, others, *HARDWARE, cached=True)
        kinds = [Devices(inputs, chip, number - prefills), Devices(others, prefill, prefills)]
    else:
        kinds = [Devices(inputs, chip, number)]
    costs = cost_columns(kinds, power)
    answers, prompts = (columns.get(name, nothing) for name in ("tokens_per_s", "prefill_tokens_per_s"))
    costs[TOKEN.name] = costs["usd_per_h"] / HOUR / np.where(np.isnan(answers), prompts, answers)
    costs[MILLION.name] = A_MILLION * costs[TOKEN.name]
    return costs


def unrented_devices(inputs: Inputs) -> Texts:
    """Say why devices of points that serve have no rent, those that prefill alone among them; (points,)."""
    reason = invalid_rent(inputs)
    if not has_prefill_chip(inputs):
        return reason
    return first_of(reason, np.where(is_apart(inputs), invalid_rent(with_prefill_chip(inputs)), ""))
