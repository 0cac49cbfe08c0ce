"""A server simulated: every request of a benchmark, from sending to its last token.

An open loop at random times goes on until it is stationary, and is measured without its ramp and its drain
(window.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import (
    TAKEN,
    TOO_LONG,
    Loads,
    is_random,
    lengths_sent,
    sent_at,
)
from fastflow.performance.serving.simulator.fast_forward import (
    BUSY,
    CACHE,
    DRAFT,
    ITERATIONS,
    PREEMPTIONS,
    SHARED,
    STEPS,
    TOTALS,
    WITH_PREFILL,
    step,
)
from fastflow.performance.serving.simulator.latencies import write_seen
from fastflow.performance.serving.simulator.scheduler import (
    Batch,
    Ranks,
    Requests,
    advance,
    batch_of,
    compose,
    next_arrival,
    preempt,
    ranks_of,
    requests_of,
    send,
)
from fastflow.performance.serving.simulator.window import (
    Ended,
    Window,
    bounds_of,
    longer_run,
    stationarity,
    whole_run,
    window_of,
)

TINY = 1e-300
"""Seconds: of no iterations, of which shares are 0."""


class Simulated(NamedTuple):
    """What requests see, and what iterations are made of; shape (points,).

    All are 0 where the server does not take the load. Shares are of the time of all iterations. Times per
    output token are those of requests with more than one; 0 where there is none. Of an open loop at random
    times, what is in its window: requests that are sent in it, ends, iterations that start in it.
    """

    refused: Ints  # TAKEN, or why it has no result: TOO_LONG
    ttft_s: Floats  # from sending to the first token: mean
    ttft_median_s: Floats
    ttft_p99_s: Floats
    tpot_s: Floats  # from the first to the last token, for each after the first: mean
    tpot_median_s: Floats
    tpot_p99_s: Floats
    requests_per_s: Floats  # all requests over the time until the last one ends; or ends in the window
    tokens_per_s: Floats  # of answers
    decoding: Floats  # requests between their first and last tokens, mean over time
    queue: Floats  # requests that have not started, mean over time
    prefill_share: Floats  # of iterations: those that compute prompts
    iterations: Floats  # of all slots
    steps: Floats  # in which they were summed up
    preemptions: Floats  # places lost
    shared: Floats  # share of layers but attention's core
    head: Floats  # of logits
    decode: Floats  # of decoding requests' attention
    prefill: Floats  # of prompts' attention
    host: Floats  # of the host
    draft: Floats  # of proposing tokens
    cache: Floats  # share of the cache that is held, mean over time
    stationary: Floats  # 1: an open loop at random times is; 0: it is not; NaN: no such loop
    overload: Floats  # requests a second that are sent, where fewer are served; else 0
    ttft_percentile_s: Floats  # at `load.percentile`, of 0 the least
    tpot_percentile_s: Floats


def simulate(times: PassTimes, servers: Servers, loads: Loads) -> Simulated:
    """Simulate every point's server."""
    points = loads.isl.size
    out = np.zeros((len(Simulated._fields), points))
    _simulate(times, servers, loads, out)
    return Simulated(out[0].astype(np.int64), *out[1:])


@kernel
def _simulate(times: PassTimes, servers: Servers, loads: Loads, out: Floats) -> None:
    for point in range(out.shape[1]):
        simulate_point(times, servers, loads, point, out[:, point])


@kernel
def simulate_point(times: PassTimes, servers: Servers, loads: Loads, point: int, out: Floats) -> None:
    """Simulate one point's server, slot by slot, and write what `Simulated` has of it."""
    requests = loads.requests[point]
    while requests > 0:
        requests = _simulate_requests(times, servers, loads, point, requests, out)


@kernel
def _simulate_requests(
    times: PassTimes, servers: Servers, loads: Loads, point: int, requests: int, out: Floats
) -> int:
    """Simulate so many requests of a point; returns how many are to be sent instead, or 0."""
    concurrency = loads.concurrency[point]
    isl, osl = lengths_sent(loads, point, requests)
    capacity = servers.capacity[point] // servers.slots[point]
    if (isl + osl).max() > capacity:
        out[:] = 0.0
        out[0] = TOO_LONG
        return 0
    is_closed = concurrency > 0
    sent = sent_at(loads, point, requests)
    bounds = bounds_of(sent) if is_random(loads, point) else np.zeros(1)
    slots = min(servers.slots[point], requests, concurrency if is_closed else requests)
    totals, ended = np.zeros((bounds.size, TOTALS)), ended_of(requests)
    clients = concurrency if is_closed else requests
    number, done = np.arange(requests), 0
    for slot in range(slots):
        mine = np.flatnonzero(number % clients % slots == slot)
        batch = batch_of(servers, point, is_closed)
        share = concurrency // slots + (1 if slot < concurrency % slots else 0)
        own = requests_of(isl[mine], osl[mine], sent[mine], loads.prefix[point])
        ranks = ranks_of(batch.ranks, own.isl.size, batch.most)
        _run(times, batch, own, ranks, share if is_closed else own.isl.size, bounds, totals)
        _keep(ended, own, mine, done)
        done += mine.size
    window = window_of(ended, bounds, loads.rate[point]) if bounds.size > 1 else whole_run(ended, 1)
    out[0] = TAKEN
    out[24], out[25] = write_seen(ended, window, loads.percentile[point], out[1:11])
    _write_iterations(servers, point, totals[window.first : window.last], window, out)
    out[22], out[23] = stationarity(ended, window, loads.rate[point], is_closed)
    return longer_run(window, requests, loads.rate[point], loads.most[point]) if bounds.size > 1 else 0


@kernel
def ended_of(requests: int) -> Ended:
    """Return room for so many requests."""
    number, osl = np.empty(requests, dtype=np.int64), np.empty(requests, dtype=np.int64)
    sent, admitted, first = np.empty(requests), np.empty(requests), np.empty(requests)
    return Ended(number, osl, sent, admitted, first, first, np.empty(requests), np.empty(requests))


@kernel
def _keep(ended: Ended, own: Requests, number: Ints, start: int) -> None:
    """Write a slot's requests behind those of the slots before it."""
    stop = start + number.size
    ended.number[start:stop], ended.osl[start:stop] = number, own.osl
    ended.sent[start:stop], ended.admitted[start:stop] = own.sent, own.admitted
    ended.first[start:stop], ended.end[start:stop] = own.first, own.end
    ended.service[start:stop] = own.end - own.admitted


@kernel
def _write_iterations(servers: Servers, point: int, rows: Floats, window: Window, out: Floats) -> None:
    """Write what iterations that start in the window are made of; rows: of totals, (parts, TOTALS)."""
    totals = rows.sum(axis=0)
    out[11] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out[12], out[13], out[14] = totals[ITERATIONS], totals[STEPS], totals[PREEMPTIONS]
    out[15:21] = totals[SHARED : DRAFT + 1] / max(totals[BUSY], TINY)
    lasts = window.end - window.start
    out[21] = totals[CACHE] / (lasts * servers.ranks[point] * servers.capacity[point])


@lean_kernel
def _run(
    times: PassTimes,
    batch: Batch,
    requests: Requests,
    ranks: Ranks,
    at_once: int,
    bounds: Floats,
    totals: Floats,
) -> None:
    """Run a slot until all of its requests have ended; adds to the totals, a row for each part.

    at_once: requests that are sent without waiting for others to end; bounds: when parts start [s].
    """
    count, part = requests.isl.size, 0
    sent, ended, now = 0, 0, 0.0
    row, until = totals[part], bounds[1] if bounds.size > 1 else np.inf
    while sent < min(at_once, count):
        send(ranks, batch, sent)
        sent += 1
    while ended < count:
        while until <= now:
            part += 1
            row, until = totals[part], bounds[part + 1] if part + 1 < bounds.size else np.inf
        if not batch.reserves:
            for rank in range(batch.ranks):
                row[PREEMPTIONS] += preempt(batch, requests, ranks, rank)
        has_prompts = compose(batch, requests, ranks, now)
        took = step(times, batch, requests, ranks, has_prompts, (now, until), row)
        if took.passes == 0:
            now = next_arrival(batch, requests, ranks, -1.0, False)
            continue
        now += took.seconds
        before = ended
        for rank in range(batch.ranks):
            ended += advance(batch, requests, ranks, rank, took.passes, now)
        for _ in range(ended - before if batch.is_closed else 0):
            if sent < count:
                requests.sent[sent] = now
                send(ranks, batch, sent)
                sent += 1
