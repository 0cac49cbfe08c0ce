"""The analytic form of disaggregated serving: means of requests, fast enough for grids.

It says which points may be far from their simulation: these are simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.analytic.applicability import MAX_WAIT as MAX_FIRST_WAIT
from fastflow.performance.serving.analytic.applicability import (
    MAX_WIDTH,
    MIN_CYCLES,
    MIN_PASSES,
    MIN_REQUESTS,
    are_too_few,
)
from fastflow.performance.serving.analytic.first_tokens import (
    FirstTokens,
    Intervals,
    Prompts,
    add_random_groups,
    first_tokens_of,
    new_intervals,
)
from fastflow.performance.serving.analytic.mean_request import NONE_DECODE, request_of
from fastflow.performance.serving.disaggregated.closed_loop import closed_loop_means
from fastflow.performance.serving.disaggregated.open_loop import open_loop_means
from fastflow.performance.serving.disaggregated.pool_times import Pool, PoolMeans, Transfer
from fastflow.performance.serving.disaggregated.simulate import Pools
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, Loads, longest
from fastflow.performance.serving.simulator.scheduler import batch_of
from fastflow.performance.serving.simulator.window import OVERLOAD_SPANS

FULL_PREFILL = 0.8
"""Largest utilization of prefill: beyond it, waits grow fast."""
MAX_WAIT = 0.02
"""Largest share of an answer's time for admission to decode and the transfer of the cache."""
MAX_STEPS = 1_000_000
"""Most iterations times ranks of a simulation that no key requests: 0.5 s."""


class SteadyDisaggregatedMetrics(NamedTuple):
    """Metrics of requests and of both pools; shape (points,). As `simulate.DisaggregatedMetrics`."""

    refused: Ints  # TAKEN, or why there is no result: TOO_LONG, or TOO_MANY, with the highest requests_per_s
    ttft_s: Floats  # from sending to the first token, which prefill makes
    ttft_p50_s: Floats  # its median; NaN where it or the mean may be far from the simulation's
    tpot_s: Floats  # time per token after the first
    tpot_p50_s: Floats  # its median; NaN where it may be far from the simulation's
    e2e_s: Floats  # from sending to the last token
    requests_per_s: Floats  # mean until the last request ends; of an open loop its rate
    decoding: Floats  # requests on servers of decode, mean over time
    queue: Floats  # requests that wait for prefill, mean over time
    transfer_s: Floats  # from admission to the cache's arrival
    prefill_iterations: Floats  # of all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches in use, mean over time
    near: Bools  # near the simulation, or that would take too long
    long: Bools  # the simulation would take too long


def steady_disaggregated(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads
) -> SteadyDisaggregatedMetrics:
    """Return the metrics of every point's requests; as `simulate.simulate_disaggregated`."""
    points = loads.isl.size
    flags = np.zeros((2, points), dtype=np.bool_)
    out = SteadyDisaggregatedMetrics(np.zeros(points, dtype=np.int64), *np.zeros((12, points)), *flags)
    _steady(prefill, decode, pools, loads, out)
    return out


@kernel
def _steady(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: SteadyDisaggregatedMetrics
) -> None:
    intervals = new_intervals()
    for point in range(loads.isl.size):
        steady_disaggregated_point(prefill, decode, pools, loads, point, intervals, out)


@lean_kernel
def steady_disaggregated_point(
    prefill: PassTimes,
    decode: PassTimes,
    pools: Pools,
    loads: Loads,
    point: int,
    intervals: Intervals,
    out: SteadyDisaggregatedMetrics,
) -> None:
    """Write a point's row of `SteadyDisaggregatedMetrics`; intervals: overwritten."""
    is_closed = loads.concurrency[point] > 0
    prefill_batch = batch_of(pools.prefill, point, is_closed)
    decode_batch = batch_of(pools.decode, point, is_closed)
    prompt = request_of(prefill, prefill_batch, loads, point)
    answer = request_of(decode, decode_batch, loads, point)
    if (
        longest(loads.isl[point], loads.relative_range[point]) > prefill_batch.capacity
        or answer.largest > decode_batch.capacity
    ):
        out.refused[point] = TOO_LONG
        return
    units = float(pools.prefills[point] * prefill_batch.slots)
    prefill_pool = Pool(prefill, prefill_batch, prompt, units, units * prefill_batch.ranks)
    units = float(pools.decodes[point] * decode_batch.slots)
    decode_pool = Pool(decode, decode_batch, answer, units, units * decode_batch.ranks)
    requests = float(loads.requests[point])
    cache_s = pools.transfer_latency_s[point] + pools.transfer_token_s[point] * loads.isl[point]
    transfer = Transfer(cache_s if answer.gaps > 0.0 else 0.0, float(pools.prefills[point]))
    if is_closed:
        at_once = min(requests, float(loads.concurrency[point]))
        relative_range = loads.relative_range[point]
        means = closed_loop_means(prefill_pool, decode_pool, transfer, at_once, requests, relative_range)
    else:
        means = open_loop_means(prefill_pool, decode_pool, transfer, loads.rate[point], requests)
    iterations = means.iterations
    # the simulation is extended until it is stationary
    if loads.most[point] > 0 and not is_closed and means.refused == TAKEN:
        requests = max(requests, 2.0 * OVERLOAD_SPANS * means.decoding)
    passes = iterations.prefills * prefill_batch.ranks + iterations.decodes * decode_batch.ranks
    steps = passes * requests / float(loads.requests[point])
    out.refused[point] = means.refused
    out.requests_per_s[point] = means.requests_per_s
    out.long[point] = steps > MAX_STEPS
    if means.refused != TAKEN:
        out.near[point] = out.long[point]
        return
    accurate = _is_near(decode_pool, loads, point, means)
    first_tokens = FirstTokens(means.ttft, np.nan, np.inf, 0.0)
    if not is_closed or loads.concurrency[point] == 1:
        first_tokens = _first_tokens(prefill_pool, means, intervals)
    # the first token of a server that decodes comes after the waits that other servers have after it
    waits = means.transfer + means.admission if pools.streams[point] and answer.gaps > 0.0 else 0.0
    out.ttft_s[point] = first_tokens.mean + waits
    out.ttft_p50_s[point] = first_tokens.median + waits
    if not accurate or not _has_near_first_tokens(loads.relative_range[point], means, first_tokens):
        out.ttft_p50_s[point] = np.nan
    out.tpot_s[point], out.tpot_p50_s[point] = means.tpot, np.nan
    if accurate:
        out.tpot_p50_s[point] = (means.answer - waits) / answer.gaps if answer.gaps > 0.0 else 0.0
    if waits > 0.0:
        out.tpot_s[point] -= waits * answer.short / answer.gaps
    out.e2e_s[point] = first_tokens.mean + means.answer
    out.decoding[point] = means.decoding
    out.queue[point] = means.queue
    out.transfer_s[point] = means.transfer
    out.prefill_iterations[point] = iterations.prefills
    out.decode_iterations[point] = iterations.decodes
    out.cache[point] = min(1.0, means.decoding * answer.context / (decode_pool.ranks * decode_batch.capacity))
    accurate = accurate and pools.transfer_layers[point] == 1  # a transfer by layers is overlapped
    out.near[point] = accurate or out.long[point]


@lean_kernel
def _first_tokens(pool: Pool, means: PoolMeans, intervals: Intervals) -> FirstTokens:
    """Return the times to first token of requests that arrive by themselves; pool: of prefill."""
    intervals.used[0] = 0
    prompts = Prompts(NONE_DECODE, means.group_size - 1.0, 0.0, 0.0)
    add_random_groups(pool.times, pool.batch, pool.request, prompts, 1.0, intervals)
    return first_tokens_of(intervals, means.queued, 0.0)


@lean_kernel
def _has_near_first_tokens(relative_range: float, means: PoolMeans, first_tokens: FirstTokens) -> bool:
    """Say whether times to first token are near the simulation: where few requests queue.

    They are not in closed loops of several requests, which arrive in groups as they end.
    """
    is_steep = relative_range > 0.0 and first_tokens.width > MAX_WIDTH
    return bool(not is_steep and means.queued <= MAX_FIRST_WAIT * first_tokens.mean)


@lean_kernel
def _is_near(pool: Pool, loads: Loads, point: int, means: PoolMeans) -> bool:
    """Say whether means are near the simulation; pool: of decode.

    They are not where caches limit the batch of decode, where prefill is full, where admission or transfers
    are a large part of an answer's time, and where requests are few, or of a file.
    """
    requests, at_once = float(loads.requests[point]), float(loads.concurrency[point])
    if loads.known[point] > 0 or pool.request.passes < MIN_PASSES:
        return False
    is_closed = at_once > 0.0
    if not is_closed and loads.most[point] == 0:  # the simulation is not extended
        sending_s = requests / loads.rate[point]
        if are_too_few(sending_s, means.ttft + means.tpot * pool.request.gaps):
            return False
    if (
        is_closed
        and loads.relative_range[point] > 0.0
        and requests < max(MIN_CYCLES * at_once, float(MIN_REQUESTS))
    ):
        return False
    # with equal lengths, the requests after those that end together arrive together
    if loads.relative_range[point] == 0.0 and at_once > 1.0:
        return False
    rank = min(float(pool.batch.most), np.ceil(at_once / pool.ranks))
    if rank * pool.request.largest > pool.batch.capacity:
        return False
    is_brief_wait = means.transfer + means.admission <= MAX_WAIT * means.tpot * pool.request.gaps
    return bool(means.iterations.prefill_busy < FULL_PREFILL and is_brief_wait)
