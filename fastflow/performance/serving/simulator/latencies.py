"""What simulated requests see within a window: latencies, rates, how many decode or wait."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.simulator.window import Ended, Window


@kernel
def write_seen(ended: Ended, window: Window, percentile: float, out: Floats) -> tuple[float, float]:
    """Write what requests see, (10,): means, medians and 99th percentiles of the time to the first token, and
    of the time per token after it, of requests that are sent in the window; requests and tokens of those that
    end in it, a second; and how many decode and how many wait to start, mean over it.

    Returns both times at a percentile.
    """
    ttft, tpot = np.empty(ended.end.size), np.empty(ended.end.size)
    measured, answered, ends, tokens, decoding, wait = 0, 0, 0, 0, 0.0, 0.0
    for i in range(ended.end.size):
        if window.is_whole or window.start <= ended.sent[i] < window.end:
            ttft[measured] = ended.first[i] - ended.sent[i]
            measured += 1
            if ended.osl[i] > 1:
                tpot[answered] = (ended.end[i] - ended.first[i]) / (ended.osl[i] - 1)
                answered += 1
        if window.is_whole or window.start <= ended.end[i] < window.end:
            ends += 1
            tokens += ended.osl[i]
        decoding += inside(window, ended.begin[i], ended.end[i])
        wait += inside(window, ended.sent[i], ended.admitted[i])
    lasts = window.end - window.start
    ttft_s = statistics(ttft[:measured], percentile, out[0:3])
    tpot_s = statistics(tpot[:answered], percentile, out[3:6])
    out[6], out[7], out[8], out[9] = ends / lasts, tokens / lasts, decoding / lasts, wait / lasts
    return ttft_s, tpot_s


@lean_kernel
def inside(window: Window, start: float, end: float) -> float:
    """Return how much of a time lies in the window [s]."""
    return max(0.0, min(end, window.end) - max(start, window.start))


@kernel
def statistics(values: Floats, percentile: float, out: Floats) -> float:
    """Write mean, median and 99th percentile, and return another percentile; 0 of nothing."""
    if values.size == 0:
        return 0.0
    ordered = np.sort(values)
    out[0] = ordered.mean()
    out[1], out[2] = percentile_of(ordered, 50.0), percentile_of(ordered, 99.0)
    return percentile_of(ordered, percentile)


@lean_kernel
def percentile_of(ordered: Floats, percentile: float) -> float:
    """Return a percentile of values, the least first; between neighbours as a straight line."""
    place = percentile / 100.0 * (ordered.size - 1)
    low = int(place)
    high = min(low + 1, ordered.size - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
