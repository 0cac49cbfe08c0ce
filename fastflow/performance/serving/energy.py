"""Energy and power of servers, as result columns."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs, Ints
from fastflow.physics.hardware.power import limit_of, rest_of


def energy_columns(
    joules: Floats, requests: Floats, tokens: Floats, seconds: Floats, devices: Ints
) -> Columns:
    """Return energy and power; joules: of all devices for some requests of some tokens in a time."""
    return {
        "energy_J": joules / requests, "joules_per_token": joules / (requests * tokens),
        "power_W": joules / seconds / devices,
    }  # fmt: skip


def energy_within_limits(
    inputs: Inputs, joules: Floats, requests: Floats, tokens: Floats, seconds: Floats, devices: Ints
) -> Columns:
    """Return energy and power of devices that draw at least what they draw at rest, and at most their limit.

    Passes of prompts and of decoding tokens that run together are summed, and a server may wait for requests.
    """
    rest = rest_of(inputs)
    drawn = np.clip(joules / (seconds * devices), rest, limit_of(inputs))
    joules = np.where(rest > 0.0, drawn * seconds * devices, joules)
    return energy_columns(joules, requests, tokens, seconds, devices)
