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
from fastflow.performance.serving.analytic.mean_request import (
    Request,
    pass_parts,
    plus,
    request_of,
    scaled,
    total_of,
)
from fastflow.performance.serving.analytic.open_loop import most_carried, opened
from fastflow.performance.serving.analytic.queueing import Seen
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of


class Steady(NamedTuple):
    """What requests see, and what iterations are made of; shape (points,). As `simulator.run.Simulated`."""

    refused: Ints  # TAKEN, or why it has no result: TOO_LONG, or TOO_MANY, with requests_per_s of the most
    ttft_s: Floats  # from sending to the first token
    tpot_s: Floats  # from the first to the last token, for each after the first
    requests_per_s: Floats  # until the last one ends, mean over time; of an open loop all that come
    tokens_per_s: Floats  # of answers
    decoding: Floats  # requests between their first and last tokens, mean over time
    queue: Floats  # requests that have not started, mean over time
    prefill_share: Floats  # of iterations: those that compute prompts
    iterations: Floats  # of all slots
    shared: Floats  # share of layers but attention's core
    head: Floats  # of logits
    decode: Floats  # of decoding requests' attention
    prefill: Floats  # of prompts' attention
    host: Floats  # of the host
    draft: Floats  # of proposing tokens
    cache: Floats  # share of the cache that is held, mean over time
    near: Bools  # the simulation says nearly the same, or would take too long
    long: Bools  # it would take too long


def steady(times: PassTimes, servers: Servers, loads: Loads) -> Steady:
    """Return what every point's requests see."""
    out = np.zeros((len(Steady._fields), loads.isl.size))
    _steady(times, servers, loads, out)
    return Steady._make([out[0].astype(np.int64), *out[1:-2], *(out[-2:] > 0.0)])


@kernel
def _steady(times: PassTimes, servers: Servers, loads: Loads, out: Floats) -> None:
    for point in range(out.shape[1]):
        steady_point(times, servers, loads, point, out[:, point])


@lean_kernel
def steady_point(times: PassTimes, servers: Servers, loads: Loads, point: int, out: Floats) -> None:
    """Write what `Steady` has of a point."""
    is_closed = loads.concurrency[point] > 0
    batch = batch_of(servers, point, is_closed)
    request = request_of(times, batch, loads, point)
    if request.largest > batch.capacity:
        out[0] = TOO_LONG
        return
    requests = float(loads.requests[point])
    at_once = min(requests, float(loads.concurrency[point])) if is_closed else requests
    slots = min(float(servers.slots[point]), at_once)
    slot = Slot(
        is_closed=is_closed,
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
    if seen.makespan == np.inf:
        out[0] = TOO_MANY
        out[3] = slots * most_carried(times, batch, request, loads.rate[point] / slots)
        out[16] = out[17] = 1.0 if takes_long(batch, slot, seen) else 0.0
        return
    out[0] = TAKEN
    out[1], out[2] = seen.ttft, seen.tpot
    out[3] = requests / _makespan(times, batch, request, slot, seen)
    out[4] = out[3] * loads.osl[point]
    out[5], out[6] = out[3] * seen.tpot * request.gaps, out[3] * seen.wait
    _write_iterations(times, batch, request, seen, slot.requests, out)
    out[8] *= slots
    prefilling = out[3] * (seen.ttft - seen.wait)
    held = out[5] * request.context + prefilling * request.held
    out[15] = min(1.0, held / (servers.ranks[point] * servers.capacity[point]))
    out[16] = 1.0 if is_near(times, batch, request, slot, seen) else 0.0
    out[17] = 1.0 if takes_long(batch, slot, seen) else 0.0


@lean_kernel
def _makespan(times: PassTimes, batch: Batch, request: Request, slot: Slot, seen: Seen) -> float:
    """Return how long it takes until the slot that has most requests at a time has ended all of them [s]."""
    most = np.ceil(slot.at_once)
    if not slot.is_closed or most == slot.at_once:
        return seen.makespan
    requests = slot.requests / slot.at_once * most
    return closed(times, batch, request, slot.spread, most, requests).makespan


@lean_kernel
def _write_iterations(
    times: PassTimes, batch: Batch, request: Request, seen: Seen, requests: float, out: Floats
) -> None:
    """Write how many iterations there are, and shares of their time; requests: of a slot."""
    every = pass_parts(times, batch, request, seen.running, 0.0, 0.0)
    with_prompts = seen.group.passes / seen.together  # for each request, as the next two
    added = seen.group.total / seen.together
    passes = max(0.0, seen.makespan * seen.busy / requests - added) / total_of(every)
    alone = max(0.0, passes - with_prompts) if batch.mixes else passes
    parts = scaled(seen.group.parts, 1.0 / seen.together)
    parts = plus(parts, every, alone)
    total = total_of(parts)
    out[7] = with_prompts / (with_prompts + alone)
    out[8] = requests * (with_prompts + alone)
    out[9], out[10], out[11] = parts.shared / total, parts.head / total, parts.decode / total
    out[12], out[13], out[14] = parts.prefill / total, parts.host / total, parts.draft / total
