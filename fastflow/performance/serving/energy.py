"""Energy, power and throttling of servers, as result columns: of passes, of waits for the host, of rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Ints
from fastflow.physics.hardware.power import Power

HOST_SHARE = 0.15
"""Share of the power of running kernels that a device draws while its host prepares an iteration: copies,
small kernels, collectives that wait for other ranks. Calibrated on 314 served points of 2024, of A100 and
H100 (ml-energy/leaderboard@0cd52da), whose hosts take most of the time."""


class Work(NamedTuple):
    """What all devices of some servers do; (points,)."""

    joules: Floats  # of passes, rest included [J]
    passes: Floats  # devices' time in passes [s]
    host: Floats  # devices' time in iterations outside of passes [s]
    kernels: Floats  # of their time in passes, without exchanges [s]
    throttled: Floats  # of it, in kernels that a power limit slows down [s]


class Pool(NamedTuple):
    """Devices of one kind with the work of some requests; (points,)."""

    power: Power
    devices: Ints
    work: Work


def energy_columns(pools: Sequence[Pool], requests: Floats, tokens: Floats, seconds: Floats) -> Columns:
    """Return energy, power and throttling of requests of some tokens in a time, on one or several pools.

    A device draws at least what it draws at rest, and at most its limit: passes of prompts and of decoding
    tokens that run together are summed.
    """
    joules: Floats = np.zeros(seconds.size)
    devices: Ints = np.zeros(seconds.size, dtype=np.int64)
    kernels, throttled = np.zeros((2, seconds.size))
    for power, number, work in pools:
        total = seconds * number
        waiting = np.maximum(total - work.passes, 0.0)
        host = np.minimum(work.host, waiting)
        drawn = work.joules + power.idle * waiting + HOST_SHARE * power.active * host
        most = np.where(number > 0, power.limit, 0.0) * total  # a chip may have no limit
        joules = joules + np.clip(drawn, power.idle * total, most)
        devices = devices + number
        kernels, throttled = kernels + work.kernels, throttled + work.throttled
    return {
        "energy_J": joules / requests, "joules_per_token": joules / (requests * tokens),
        "power_W": joules / seconds / devices,
        "throttled_frac": np.minimum(throttled / np.where(kernels > 0.0, kernels, 1.0), 1.0),
    }  # fmt: skip
