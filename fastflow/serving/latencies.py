"""What simulated requests see within a window: latencies, rates, how many decode or wait."""

from __future__ import annotations

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.serving.window import Ended, Window
from fastflow.tables import Floats


@kernel
def write_seen(ended: Ended, window: Window, out: Floats) -> None:
    """Write what requests see, (10,): means, medians and 99th percentiles of the time to the first token, and
    of the time per token after it, of requests that are sent in the window; requests and tokens of those that
    end in it, a second; and how many decode and how many wait to start, mean over it."""
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
    statistics(ttft[:measured], out[0:3])
    statistics(tpot[:answered], out[3:6])
    out[6], out[7], out[8], out[9] = ends / lasts, tokens / lasts, decoding / lasts, wait / lasts


@lean_kernel
def inside(window: Window, start: float, end: float) -> float:
    """Return how much of a time lies in the window [s]."""
    return max(0.0, min(end, window.end) - max(start, window.start))


@kernel
def statistics(values: Floats, out: Floats) -> None:
    """Write mean, median and 99th percentile, between neighbours as a straight line; 0 of nothing."""
    if values.size:
        ordered = np.sort(values)
        out[0] = ordered.mean()
        for i, rank in ((1, 0.5), (2, 0.99)):
            place = rank * (ordered.size - 1)
            low = int(place)
            high = min(low + 1, ordered.size - 1)
            out[i] = ordered[low] + (place - low) * (ordered[high] - ordered[low])
