"""The analytic form: means of requests without a simulation, fast enough for grids.

It says which points may be far from their simulation (applicability.py): these are simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.analytic.applicability import Slot, is_near, takes_long
from fastflow.performance.serving.analytic.closed_loop import closed_loop_metrics
from fastflow.performance.serving.analytic.mean_request import Request, pass_parts, request_of, total_time
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
    tpot_s: Floats  # time per token after the first
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
    out = Steady(np.zeros(points, dtype=np.int64), *np.zeros((7, points)), *flags)
    _steady(times, servers, loads, out)
    return out


@kernel
def _steady(times: PassTimes, servers: Servers, loads: Loads, out: Steady) -> None:
    for point in range(loads.isl.size):
        steady_point(times, servers, loads, point, out)


@lean_kernel
def steady_point(times: PassTimes, servers: Servers, loads: Loads, point: int, out: Steady) -> None:
    """Write a point's row of `Steady`."""
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
        metrics = closed_loop_metrics(times, batch, request, slot.relative_range, slot.at_once, slot.requests)
    else:
        metrics = open_loop_metrics(times, batch, request, loads.rate[point] / slots, slot.requests)
    out.long[point] = takes_long(batch, slot, metrics)
    if metrics.makespan == np.inf:
        out.refused[point] = TOO_MANY
        out.requests_per_s[point] = slots * most_carried(times, batch, request, loads.rate[point] / slots)
        out.near[point] = out.long[point]
        return
    rate = requests / _makespan(times, batch, request, slot, metrics)
    decoding = rate * metrics.tpot * request.gaps
    prefilling = rate * (metrics.ttft - metrics.wait)
    cached = decoding * request.context + prefilling * request.cached
    out.refused[point] = TAKEN
    out.ttft_s[point] = metrics.ttft
    out.tpot_s[point] = metrics.tpot
    out.requests_per_s[point] = rate
    out.decoding[point] = decoding
    out.queue[point] = rate * metrics.wait
    out.prefill_share[point] = _prefill_share(times, batch, request, metrics, slot.requests)
    out.cache[point] = min(1.0, cached / (servers.ranks[point] * servers.capacity[point]))
    out.near[point] = is_near(times, batch, request, slot, metrics)


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
    parts = pass_parts(times, batch, request, metrics.running, 0.0, 0.0)
    with_prompts = metrics.group.passes / metrics.group_size  # per request, as `added` and `passes`
    added = metrics.group.total / metrics.group_size
    passes = max(0.0, metrics.makespan * metrics.busy / requests - added) / total_time(parts)
    without_prompts = max(0.0, passes - with_prompts) if batch.mixes else passes
    return with_prompts / (with_prompts + without_prompts)
