"""The analytic form of an open loop on disaggregated servers: requests arrive at random times.

By Little's law, as many requests decode as arrive during the decoding of a request, whose time depends on
that number.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.disaggregated.pool_times import (
    HALVINGS,
    Pool,
    PoolMeans,
    Transfer,
    decoding_time,
    iterations_of,
    max_running,
    mean_transfer_time,
    prompt_times,
    tpot_of,
)
from fastflow.performance.serving.requests.load import TAKEN, TOO_MANY

TINY = 1e-300
"""Seconds of answers without decoding."""


@lean_kernel
def open_loop_means(
    prefill: Pool, decode: Pool, transfer: Transfer, rate: float, requests: float
) -> PoolMeans:
    """Return the metrics of requests that arrive at random times, at pools in their stationary state.

    requests: total. Where the rate is too high, `requests_per_s` is the highest that the pools carry.
    """
    max_decoding = decode.ranks * max_running(decode, np.inf)
    prompt = prompt_times(prefill, rate, 1.0 / prefill.ranks, 1.0)
    if prompt.wait == np.inf or decoding_time(decode, max_decoding) * rate > max_decoding:
        most = min(rate * 0.999 / prompt.load, max_decoding / max(decoding_time(decode, max_decoding), TINY))
        iterations = iterations_of(prefill, decode, prompt, most, requests, max_decoding)
        return PoolMeans(TOO_MANY, 0.0, 0.0, 0.0, most, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, iterations)
    low, high = 0.0, max_decoding
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if decoding_time(decode, middle) * rate > middle:
            low = middle
        else:
            high = middle
    decoding_s = decoding_time(decode, 1.0 + high)  # other requests as at a random time (Poisson)
    mean_transfer_s = mean_transfer_time(transfer, rate, prompt.group_size / prefill.batch.ranks)
    busy = min(0.999, high / max_decoding)
    waits = busy ** (sqrt(2.0 * (max_decoding + 1.0)) - 1.0)
    admission = 0.5 * decoding_s * waits / (max_decoding * (1.0 - busy))
    return PoolMeans(
        refused=TAKEN,
        ttft=prompt.wait + prompt.prefill,
        tpot=tpot_of(decode.request, decoding_s, mean_transfer_s + admission),
        answer=decoding_s + mean_transfer_s + admission if decode.request.gaps > 0.0 else 0.0,
        requests_per_s=rate,
        decoding=rate * decoding_s,
        queue=rate * prompt.wait,
        transfer=mean_transfer_s,
        admission=admission,
        queued=prompt.queued,
        group_size=prompt.group_size,
        iterations=iterations_of(prefill, decode, prompt, rate, requests, high),
    )
