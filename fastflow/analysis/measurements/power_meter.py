"""What a meter shows of a kernel that repeats: less than the kernel draws, where it repeats for a short time.

A collector (ai-dynamo/aiconfigurator@095f58a, collector/helper.py) lets a kernel repeat for a second, at most
3,000 times, and takes the mean of readings every 100 ms, the first at the start. A reading of NVML is itself
the mean of the last second, since Ampere (NVML API reference, nvmlDeviceGetPowerUsage). Before a run, the
device rests while the next case is prepared: weights are quantised, caches are filled, libraries look for
their fastest kernel. So the readings of a run have some of the rest before it, and of the runs before that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats

READING_S = 0.1  # from one reading to the next
MEAN_S = 1.0  # of which a reading is the mean
RUN_S, MOST_CALLS = 1.0, 3000  # of a run: how long it shall last, and how often a kernel is called at most
READINGS = round(MEAN_S / READING_S)  # of a run, that have some of the runs before
ROUNDING = 1e-9  # of a run that ends with a reading


class Shares(NamedTuple):
    """Shares of the power beyond rest that the mean of a run's readings has; shape (rows,)."""

    current: Floats  # of the kernel of the run
    previous: Floats  # of the kernels of the runs before


def shown_power(power: Floats, before: Floats, rest: Floats, shares: Shares) -> Floats:
    """Return the mean of the readings of runs [W], (rows,).

    power: while the kernel runs [W]; before: while the kernels of the runs before run [W]; rest: between
    runs [W].
    """
    return rest + (power - rest) * shares.current + (before - rest) * shares.previous


def shown_after(power: Floats, rest: Floats, current: Floats, left: Floats, run: Floats) -> Floats:
    """Return the mean of the readings of runs whose readings have others before them [W], (rows,).

    current: share of the run's power, see `Shares`; left: of the runs before [W], (rows, READINGS); run: how
    long it lasts [s].
    """
    readings = _count_readings(run)
    is_read = np.arange(READINGS) < readings[:, None]
    shown: Floats = rest + (power - rest) * current + np.where(is_read, left, 0.0).sum(axis=1) / readings
    return shown


def shown_shares(time: Floats, before: Floats, pause: Floats, copies: int) -> Shares:
    """Return what the readings of runs show.

    time: of a kernel, as measured [s]; before: of the kernels of the runs before [s]; pause: from a run to
    the next [s]; copies: of the kernel, a call.
    """
    run, run_before = length_of_run(time, copies), length_of_run(before, copies)
    readings = _count_readings(run)
    current, previous = np.zeros(time.size), np.zeros(time.size)
    for number in range(int(readings.max(initial=0.0))):
        at, is_read = READING_S * number, number < readings
        current += np.where(is_read, min(at, MEAN_S) / MEAN_S, 0.0)
        previous += np.where(is_read, _ran_before(max(0.0, MEAN_S - at), run_before, pause) / MEAN_S, 0.0)
    return Shares(current / readings, previous / readings)


def length_of_run(time: Floats, copies: int) -> Floats:
    """Return how long runs of a kernel last [s]; time: of the kernel [s]; copies: of it, a call."""
    calls = np.minimum(np.floor(RUN_S / (time * copies)) + 1.0, MOST_CALLS)
    length: Floats = calls * copies * time
    return length


def _count_readings(run: Floats) -> Floats:
    """Return how many readings runs have; run: how long they last [s]."""
    readings: Floats = np.floor(run / READING_S + ROUNDING) + 1.0
    return readings


def _ran_before(span: float, run: Floats, pause: Floats) -> Floats:
    """Return for how long kernels ran in a span of time that ends where a run begins [s]; run: before [s]."""
    cycle = run + pause
    whole = np.floor(span / cycle)
    ran: Floats = whole * run + np.maximum(0.0, span - whole * cycle - pause)
    return ran
