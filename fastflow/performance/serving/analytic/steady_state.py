"""What requests of a server see, in a form fast enough for grids: means, without a walk through events.

It says where it may be far from the simulation (applicability.py): such a point is simulated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.analytic.applicability import Slot, is_near, takes_long
from fastflow.performance.serving.analytic.closed_loop import closed
from fastflow.performance.serving.analytic.mean_request import Request, pass_parts, request_of, total_of
from fastflow.performance.serving.analytic.open_loop import most_carried, opened
from fastflow.performance.serving.analytic.queueing import Seen
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of


class Steady(NamedTuple):
    """What requests see; shape (points,). as `simulator.run.Simulated`, and 0 where a load is refused."""

    refused: Ints  # TAKEN, or why it has no result: TOO_LONG, or TOO_MANY, with requests_per_s of the most
    ttft_s: Floats  # from sending to the first token
    tpot_s: Floats  # from the first to the last token, for each after the first
    requests_per_s: Floats  # until the last one ends, mean over time; of an open loop all that come
    decoding: Floats  # requests between their first and last tokens, mean over time
    queue: Floats  # requests that have not started, mean over time
    prefill_share: Floats  # of iterations: those that compute prompts
    cache: Floats  # share of the cache that is held, mean over time
    near: Bools  # the simulation says nearly the same, or would take too long
    long: Bools  # it would take too long


def steady(times: PassTimes, servers: Servers, loads: Loads) -> Steady:
    """Return what every point's requests see."""
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
    """Write what `Steady` has of a point."""
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
        spread=loads.spread[point],
        prompt=longest(request.prompt, loads.spread[point]),
        at_once=at_once / slots,
        requests=requests / slots,
        slots=slots,
        goes_on=loads.most[point] > 0 and not is_closed,
    )
    if is_closed:
        seen = closed(times, batch, request, slot.spread, slot.at_once, slot.requests)
    else:
        seen = opened(times, batch, request, loads.rate[point] / slots, slot.requests)
    out.long[point] = takes_long(batch, slot, seen)
    if seen.makespan == np.inf:
        out.refused[point] = TOO_MANY
        out.requests_per_s[point] = slots * most_carried(times, batch, request, loads.rate[point] / slots)
        out.near[point] = out.long[point]
        return
    rate = requests / _makespan(times, batch, request, slot, seen)
    decoding = rate * seen.tpot * request.gaps
    prefilling = rate * (seen.ttft - seen.wait)
    held = decoding * request.context + prefilling * request.held
    out.refused[point] = TAKEN
    out.ttft_s[point] = seen.ttft
    out.tpot_s[point] = seen.tpot
    out.requests_per_s[point] = rate
    out.decoding[point] = decoding
    out.queue[point] = rate * seen.wait
    out.prefill_share[point] = _prefill_share(times, batch, request, seen, slot.requests)
    out.cache[point] = min(1.0, held / (servers.ranks[point] * servers.capacity[point]))
    out.near[point] = is_near(times, batch, request, slot, seen)


@lean_kernel
def _makespan(times: PassTimes, batch: Batch, request: Request, slot: Slot, seen: Seen) -> float:
    """Return how long it takes until the slot that has most requests at a time has ended all of them [s]."""
    most = np.ceil(slot.at_once)
    if not batch.is_closed or most == slot.at_once:
        return seen.makespan
    requests = slot.requests / slot.at_once * most
    return closed(times, batch, request, slot.spread, most, requests).makespan


@lean_kernel
def _prefill_share(times: PassTimes, batch: Batch, request: Request, seen: Seen, requests: float) -> float:
    """Return the share of iterations that compute prompts; requests: of a slot."""
    every = pass_parts(times, batch, request, seen.running, 0.0, 0.0)
    with_prompts = seen.group.passes / seen.together  # for each request, as the next two
    added = seen.group.total / seen.together
    passes = max(0.0, seen.makespan * seen.busy / requests - added) / total_of(every)
    alone = max(0.0, passes - with_prompts) if batch.mixes else passes
    return with_prompts / (with_prompts + alone)
