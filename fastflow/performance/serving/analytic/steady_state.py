"""The analytic form: means of requests without a simulation, fast enough for grids.

It says which points may be far from their simulation (applicability.py): these are simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.analytic.applicability import MAX_WAIT, Slot, is_accurate, takes_long
from fastflow.performance.serving.analytic.closed_loop import closed_loop_first_tokens, closed_loop_metrics
from fastflow.performance.serving.analytic.first_tokens import (
    FirstTokens,
    Intervals,
    first_tokens_of,
    new_intervals,
)
from fastflow.performance.serving.analytic.mean_request import Request, decoding_of, request_of
from fastflow.performance.serving.analytic.open_loop import most_carried, open_loop_metrics
from fastflow.performance.serving.analytic.queueing import SlotMetrics
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of


class Steady(NamedTuple):
    """Metrics of requests; shape (points,). As `simulator.run.Simulated`, and 0 where a load is refused."""

    refused: Ints  # TAKEN, or why there is no result: TOO_LONG, or TOO_MANY, with the highest requests_per_s
    ttft_s: Floats  # from sending to the first token
    ttft_p50_s: Floats  # its median; NaN where it may be far from the simulation's, as the next one
    tpot_s: Floats  # time per token after the first
    tpot_p50_s: Floats
    e2e_s: Floats  # from sending to the last token
    requests_per_s: Floats  # mean until the last request ends; of an open loop its rate
    decoding: Floats  # requests between their first and last tokens, mean over time
    queue: Floats  # requests that have not started, mean over time
    prefill_share: Floats  # share of iterations that compute prompts
    cache: Floats  # share of the cache in use, mean over time
    near: Bools  # near the simulation, or that would take too long
    long: Bools  # the simulation would take too long


def steady(times: PassTimes, servers: Servers, loads: Loads) -> Steady:
    """Return the metrics of every point's requests."""
    points = loads.isl.size
    flags = np.zeros((2, points), dtype=np.bool_)
    out = Steady(np.zeros(points, dtype=np.int64), *np.zeros((10, points)), *flags)
    _steady(times, servers, loads, out)
    return out


@kernel
def _steady(times: PassTimes, servers: Servers, loads: Loads, out: Steady) -> None:
    intervals = new_intervals()
    for point in range(loads.isl.size):
        steady_point(times, servers, loads, point, intervals, out)


@lean_kernel
def steady_point(
    times: PassTimes, servers: Servers, loads: Loads, point: int, intervals: Intervals, out: Steady
) -> None:
    """Write a point's row of `Steady`; intervals: overwritten."""
    is_closed = loads.concurrency[point] > 0
    batch = batch_of(servers, point, is_closed)
    request = request_of(times, batch, loads, point)
    if request.largest > batch.capacity:
        out.refused[point] = TOO_LONG
        return
    requests = float(loads.requests[point])
    at_once = min(requests, float(loads.concurrency[point])) if is_closed else requests
    slots = min(float(servers.slots[point]), at_once)
    slot = Slot(
        is_uniform=loads.known[point] == 0,
        relative_range=loads.relative_range[point],
        prompt=longest(request.prompt, loads.relative_range[point]),
        at_once=at_once / slots,
        requests=requests / slots,
        slots=slots,
        is_extended=loads.most[point] > 0 and not is_closed,
    )
    if is_closed:
        load = slot.relative_range, slot.at_once, slot.requests
        metrics = closed_loop_metrics(times, batch, request, *load)
    else:
        rate = loads.rate[point] / slots
        metrics = open_loop_metrics(times, batch, request, rate, slot.requests, intervals)
    out.long[point] = takes_long(batch, slot, metrics)
    if metrics.makespan == np.inf:
        out.refused[point] = TOO_MANY
        out.requests_per_s[point] = slots * most_carried(times, batch, request, loads.rate[point] / slots)
        out.near[point] = out.long[point]
        return
    first_tokens = _first_tokens(times, batch, request, slot, metrics, intervals)
    rate = requests / _makespan(times, batch, request, slot, metrics)
    decoding = rate * metrics.tpot * request.gaps
    prefilling = rate * (metrics.ttft - metrics.wait)
    cached = decoding * request.context + prefilling * request.cached
    out.refused[point] = TAKEN
    out.ttft_s[point] = first_tokens.mean
    out.ttft_p50_s[point] = first_tokens.median
    out.tpot_s[point] = metrics.tpot
    answer = metrics.answer
    if (
        is_closed and slot.relative_range == 0.0
    ):  # all requests take as long, and have their first tokens apart
        answer += first_tokens.mean - first_tokens.median
    out.tpot_p50_s[point] = answer / request.gaps if request.gaps > 0.0 else 0.0
    out.e2e_s[point] = first_tokens.mean + metrics.answer
    out.requests_per_s[point] = rate
    out.decoding[point] = decoding
    out.queue[point] = rate * metrics.wait
    out.prefill_share[point] = _prefill_share(times, batch, request, metrics, slot.requests)
    out.cache[point] = min(1.0, cached / (servers.ranks[point] * servers.capacity[point]))
    accurate = is_accurate(times, batch, request, slot, metrics, first_tokens)
    out.near[point] = accurate or out.long[point]
    if not accurate:
        out.ttft_p50_s[point] = out.tpot_p50_s[point] = np.nan


@lean_kernel
def _first_tokens(
    times: PassTimes, batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics, intervals: Intervals
) -> FirstTokens:
    """Return the times to first token of a slot's requests; intervals: of an open loop's."""
    if not batch.is_closed:
        return first_tokens_of(intervals, metrics.queued + metrics.behind, 0.0)
    if metrics.queued > MAX_WAIT * metrics.ttft:  # whole cycles, most of the time
        return FirstTokens(metrics.ttft, np.nan, np.inf, 0.0)
    load = slot.relative_range, slot.at_once, slot.requests
    return closed_loop_first_tokens(times, batch, request, *load, metrics.queued, intervals)


@lean_kernel
def _makespan(times: PassTimes, batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics) -> float:
    """Return the time until the slot with most concurrent requests has ended all of them [s]."""
    most = np.ceil(slot.at_once)
    if not batch.is_closed or most == slot.at_once:
        return metrics.makespan
    requests = slot.requests / slot.at_once * most
    return closed_loop_metrics(times, batch, request, slot.relative_range, most, requests).makespan


@lean_kernel
def _prefill_share(
    times: PassTimes, batch: Batch, request: Request, metrics: SlotMetrics, requests: float
) -> float:
    """Return the share of iterations that compute prompts; requests: of a slot."""
    pass_s = decoding_of(times, batch, request, metrics.running).pass_s
    with_prompts = metrics.group.passes / metrics.group_size  # per request, as `added` and `passes`
    added = metrics.group.total / metrics.group_size
    passes = max(0.0, metrics.makespan * metrics.busy / requests - added) / pass_s
    without_prompts = max(0.0, passes - with_prompts) if batch.mixes else passes
    return with_prompts / (with_prompts + without_prompts)
