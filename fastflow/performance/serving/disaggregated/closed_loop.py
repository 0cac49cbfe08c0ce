"""The analytic form of a closed loop on disaggregated servers: when a request ends, the next one is sent.

All concurrent requests are in either pool, in transfer, on their round trip, or wait: for decode where they
exceed its batches, and then for prefill where its memory is full of waiting requests. The first burst has
separate terms. Where lengths are equal, requests whose caches arrive within an iteration of decode end
together, and the next requests arrive together.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import NONE_DECODE, decoding_of, group_of, room_of
from fastflow.performance.serving.analytic.queueing import last_passes
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
from fastflow.performance.serving.requests.load import TAKEN


@lean_kernel
def closed_loop_means(
    prefill: Pool, decode: Pool, transfer: Transfer, at_once: float, requests: float, relative_range: float
) -> PoolMeans:
    """Return the metrics of a closed loop."""
    max_decoding = decode.ranks * max_running(decode, at_once)
    most, varies = min(at_once, max_decoding), min(1.0, 2.0 * decode.request.half_range)
    rank_requests, least, away = at_once / prefill.ranks, 1.0, prefill.batch.intake.round_trip_s
    if relative_range == 0.0:
        least = _least_together(prefill, decode, transfer, most, rank_requests)
    running, decoding_s = 0.0, 0.0
    has_answers = decode.request.gaps > 0.0
    if has_answers:
        running = _num_decoding(prefill, decode, transfer.cache_s, at_once, most, varies, least)
        decoding_s = decoding_time(decode, running)
        rate = running / (decoding_s + transfer.cache_s)
    else:
        rate = _prompts_alone(prefill, at_once, varies, least)
    prompt = prompt_times(prefill, rate, varies, least)
    mean_transfer_s = mean_transfer_time(transfer, rate, prompt.group_size / prefill.batch.ranks)
    waiting = at_once / rate - away - prompt.prefill - mean_transfer_s - decoding_s
    burst = group_of(prefill.times, prefill.batch, prefill.request, NONE_DECODE, max(1.0, rank_requests))
    share = at_once / requests
    admission, room = 0.0, 0.0
    if max_decoding < at_once and running > 0.999 * most:
        computing = rate * prompt.prefill
        room = max(0.0, prefill.ranks * np.floor(prefill.batch.capacity / prefill.request.cached) - computing)
        admission = min(max(0.0, waiting - prompt.wait), room / rate)
        # the first burst waits for prefill first, and then as prefill is faster than decode
        burst_s, run_s = admission * prompt.load / max(1e-9, 1.0 - prompt.load), requests / rate
        before = 0.5 * burst_s / run_s if burst_s < run_s else 1.0 - 0.5 * run_s / burst_s
        admission -= max(0.0, admission * before - share * burst.completion)
    queue = max(0.0, waiting - admission)
    blocked = max(0.0, at_once - max_decoding - room) if has_answers else 0.0
    burst_ttft = burst.completion + 0.5 * blocked * blocked / (at_once * rate)
    later_ttft = queue + prompt.prefill
    makespan = requests / rate - away + max(0.0, burst.total - queue - prompt.prefill)
    if relative_range > 0.0:
        last = _last_decoding_time(decode, relative_range, running)
        makespan = (requests - at_once) / rate + later_ttft + mean_transfer_s + admission + last
    served = requests / makespan
    decoding = served * decoding_s
    return PoolMeans(
        refused=TAKEN,
        ttft=share * burst_ttft + (1.0 - share) * later_ttft,
        tpot=tpot_of(decode.request, decoding_s, mean_transfer_s + admission),
        answer=decoding_s + mean_transfer_s + admission if has_answers else 0.0,
        requests_per_s=served,
        decoding=decoding,
        queue=served * (share * (burst_ttft - prompt.prefill) + (1.0 - share) * queue),
        transfer=mean_transfer_s,
        admission=admission,
        queued=queue,
        group_size=prompt.group_size,
        iterations=iterations_of(prefill, decode, prompt, served, requests, running),
    )


@lean_kernel
def _least_together(prefill: Pool, decode: Pool, transfer: Transfer, decoding: float, rank: float) -> float:
    """Return how many prompts of equal length arrive at a rank of prefill together, at least.

    Requests whose caches arrive within an iteration of decode end together. decoding: most requests; rank:
    concurrent requests per rank of prefill.
    """
    group_size = room_of(prefill.batch, prefill.request, 0.0) / prefill.request.prompt
    least = max(1.0, min(rank, np.floor(group_size)))
    if transfer.cache_s > 0.0:
        pass_s = decoding_time(decode, decoding) / max(1.0, decode.request.passes)
        least = max(1.0, min(least, 0.5 * pass_s / transfer.cache_s))
    return float(least)


@lean_kernel
def _num_decoding(
    prefill: Pool, decode: Pool, transfer_s: float, at_once: float, most: float, varies: float, least: float
) -> float:
    """Return how many of the concurrent requests decode: others are in prefill, in transfer, or away."""
    low, high, away = 0.0, most, prefill.batch.intake.round_trip_s
    for step in range(HALVINGS):
        middle = high if step == 0 else 0.5 * (low + high)
        rate = middle / (decoding_time(decode, middle) + transfer_s)
        prompt = prompt_times(prefill, rate, varies, least)
        if middle + rate * (away + prompt.wait + prompt.prefill) > at_once:
            high = middle
        else:
            low = middle
        if low == high:
            break
    return low


@lean_kernel
def _prompts_alone(pool: Pool, at_once: float, varies: float, least: float) -> float:
    """Return the rate of requests whose prompts only are computed [1/s]."""
    most = max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    away = pool.batch.intake.round_trip_s
    low, high = (
        0.0,
        pool.ranks * most / group_of(pool.times, pool.batch, pool.request, NONE_DECODE, most).total,
    )
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        prompt = prompt_times(pool, middle, varies, least)
        if middle * (away + prompt.wait + prompt.prefill) > at_once:
            high = middle
        else:
            low = middle
    return low


@lean_kernel
def _last_decoding_time(pool: Pool, relative_range: float, decoding: float) -> float:
    """Return how long the last requests decode [s]: the longest of them, with half as many others."""
    rank = max(1.0, 0.5 * decoding / pool.ranks)
    pass_s = decoding_of(pool.times, pool.batch, pool.request, rank).pass_s
    return last_passes(pool.request, relative_range, decoding) * pass_s
