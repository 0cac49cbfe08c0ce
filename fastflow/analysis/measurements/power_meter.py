"""What a meter shows of a kernel that repeats: less than the kernel draws, where it repeats for a short time.

A collector (ai-dynamo/aiconfigurator@095f58a, collector/helper.py) lets a kernel repeat for a second, at most
3,000 times, and takes the mean of readings every 100 ms, the first at the start. A reading of NVML is itself
the mean of the last second, since Ampere (NVML API reference, nvmlDeviceGetPowerUsage). Before a run, the
device rests while the next case is prepared: weights are quantised, caches are filled, libraries look for
their fastest kernel. So the readings of a run have some of the rest before it, and of the run before that.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats

READING_S = 0.1  # from one reading to the next
MEAN_S = 1.0  # of which a reading is the mean
RUN_S, MOST_CALLS = 1.0, 3000  # of a run: how long it shall last, and how often a kernel is called at most
ROUNDING = 1e-9  # of a run that ends with a reading


def shown_power(power: Floats, rest: Floats, time: Floats, pause: Floats, copies: int) -> Floats:
    """Return the mean of the readings of runs [W], (rows,).

    power: while the kernel runs [W]; rest: between runs [W]; time: of a kernel, as measured [s]; pause: from
    a run to the next [s]; copies: of the kernel, a call.
    """
    return rest + (power - rest) * shown_share(time, pause, copies)


def shown_share(time: Floats, pause: Floats, copies: int) -> Floats:
    """Return the share of the power beyond rest that the mean of a run's readings has, (rows,).

    Runs of the same kernel follow each other: the cases of a file are in order, so neighbours are alike.
    """
    calls = np.minimum(np.floor(RUN_S / (time * copies)) + 1.0, MOST_CALLS)
    run = calls * copies * time
    readings = np.floor(run / READING_S + ROUNDING) + 1.0
    total = np.zeros(time.size)
    for number in range(int(readings.max(initial=0.0))):
        at = READING_S * number
        of_mean = (_running_before(at, run, pause) - _running_before(at - MEAN_S, run, pause)) / MEAN_S
        total += np.where(number < readings, of_mean, 0.0)
    share: Floats = total / readings
    return share


def _running_before(at: float, run: Floats, pause: Floats) -> Floats:
    """Return for how long kernels ran before a time [s], since a run that began at 0; at: may be below 0."""
    cycle = run + pause
    whole = np.floor(at / cycle)
    running: Floats = whole * run + np.minimum(at - whole * cycle, run)
    return running
