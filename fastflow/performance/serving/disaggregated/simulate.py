"""Prefill and decoding on servers of their own, simulated: every request, event by event.

An open loop at random times is measured in its window, as servers that do both are (window.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.disaggregated.pools import (
    NEVER,
    Decodes,
    Moved,
    Prefills,
    decodes_of,
    end_decode,
    end_prefill,
    give_place,
    moved_of,
    prefills_of,
    request_at,
    start_decode,
    start_prefill,
    unit_of,
)
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
from fastflow.performance.serving.simulator.latencies import inside, write_seen
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of
from fastflow.performance.serving.simulator.window import (
    Ended,
    Window,
    bounds_of,
    longer_run,
    stationarity,
    whole_run,
    window_of,
)


class Pools(NamedTuple):
    """Servers of prefill and of decode, and the way between; shape (points,)."""

    prefill: Servers  # one of those of prefill
    decode: Servers  # one of those of decode, which reserve all tokens of a request
    prefills: Ints  # servers
    decodes: Ints
    way_s: Floats  # what sending a cache takes, of none [s]
    way_token_s: Floats  # and of each token [s]


class Apart(NamedTuple):
    """What requests see, and what both pools do; shape (points,). 0 where they do not take the load.

    Times per output token count the wait for a place, and the cache's way to it.
    """

    refused: Ints  # TAKEN, or why it has no result: TOO_LONG
    ttft_s: Floats  # from sending to the first token, which prefill makes: mean
    ttft_median_s: Floats
    ttft_p99_s: Floats
    tpot_s: Floats  # from the first to the last token, for each after the first: mean
    tpot_median_s: Floats
    tpot_p99_s: Floats
    requests_per_s: Floats  # all requests over the time until the last one ends; or ends in the window
    tokens_per_s: Floats  # of answers
    decoding: Floats  # requests on servers of decode, mean over time
    queue: Floats  # requests that wait for prefill, mean over time
    transfer_s: Floats  # from a place to the cache's arrival there, mean of requests with more than one token
    place_s: Floats  # waiting for a place, mean of these
    prefill_busy: Floats  # share of time in which a unit of prefill has an iteration
    decode_busy: Floats
    prefill_iterations: Floats  # all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches that requests hold, mean over time
    stationary: Floats  # 1: an open loop at random times is; 0: it is not; NaN: no such loop
    overload: Floats  # requests a second that are sent, where fewer are served; else 0
    ttft_percentile_s: Floats  # at `load.percentile`, of 0 the least
    tpot_percentile_s: Floats


_PREFILL_S, _DECODE_S, _PREFILLS, _DECODES = range(4)
"""Totals of iterations that start in a part of the arrivals: their time [s] and numbers, of all units."""


def simulate_apart(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads) -> Apart:
    """Simulate every point's pools; prefill, decode: passes of their servers; loads: of all servers."""
    out = np.zeros((len(Apart._fields), loads.isl.size))
    _simulate(prefill, decode, pools, loads, out)
    return Apart(out[0].astype(np.int64), *out[1:])


@kernel
def _simulate(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: Floats) -> None:
    for point in range(out.shape[1]):
        apart_point(prefill, decode, pools, loads, point, out[:, point])


@kernel
def apart_point(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, out: Floats
) -> None:
    """Simulate one point's pools, and write what `Apart` has of them."""
    requests = loads.requests[point]
    while requests > 0:
        requests = _simulate_requests(prefill, decode, pools, loads, point, requests, out)


@kernel
def _simulate_requests(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, count: int, out: Floats
) -> int:
    """Simulate so many requests of a point; returns how many are to be sent instead, or 0."""
    concurrency = loads.concurrency[point]
    isl, osl = lengths_sent(loads, point, count)
    is_closed = concurrency > 0
    first, second = batch_of(pools.prefill, point, is_closed), batch_of(pools.decode, point, is_closed)
    if isl.max() > first.capacity or (isl + osl).max() > second.capacity:
        out[:] = 0.0
        out[0] = TOO_LONG
        return 0
    sent = sent_at(loads, point, count)
    bounds = bounds_of(sent) if is_random(loads, point) else np.zeros(1)
    totals = np.zeros((bounds.size, 4))
    requests = moved_of(isl, osl, sent, loads.prefix[point])
    before = prefills_of(pools.prefills[point], first)
    after = decodes_of(pools.decodes[point], second, count)
    way = pools.way_s[point], pools.way_token_s[point]
    at_once = min(concurrency, count) if is_closed else count
    _run(prefill, decode, first, second, before, after, requests, way, at_once, bounds, totals)
    ended = _ended(requests)
    window = window_of(ended, bounds, loads.rate[point]) if bounds.size > 1 else whole_run(ended, 1)
    out[0] = TAKEN
    out[20], out[21] = write_seen(ended, window, loads.percentile[point], out[1:11])
    _write_moves(requests, window, out)
    lasts, done = window.end - window.start, totals[window.first : window.last].sum(axis=0)
    out[13] = done[_PREFILL_S] / (lasts * before.until.size)
    out[14] = done[_DECODE_S] / (lasts * after.until.size)
    out[15], out[16] = done[_PREFILLS], done[_DECODES]
    out[17] /= lasts * after.taken.size * second.capacity
    out[18], out[19] = stationarity(ended, window, loads.rate[point], is_closed)
    return longer_run(window, count, loads.rate[point], loads.most[point]) if bounds.size > 1 else 0


@kernel
def _ended(requests: Moved) -> Ended:
    """Return requests that have ended."""
    moves = requests.osl > 1
    return Ended(
        number=np.arange(requests.osl.size),
        osl=requests.osl,
        sent=requests.sent,
        admitted=requests.admitted,
        first=requests.first,
        begin=np.where(moves, requests.arrive, requests.end),
        end=requests.end,
        service=requests.end
        - requests.admitted
        - np.where(moves, requests.placed - requests.first, 0.0 * requests.end),
    )


@kernel
def _write_moves(requests: Moved, window: Window, out: Floats) -> None:
    """Write what the way takes and waiting for a place [s], mean of requests of the window, and tokens held,
    each times how long."""
    moved, moving, waiting, held = 0, 0.0, 0.0, 0.0
    for i in range(requests.osl.size):
        if requests.osl[i] == 1:
            continue
        if window.is_whole or window.start <= requests.sent[i] < window.end:
            moved += 1
            moving += requests.arrive[i] - requests.placed[i]
            waiting += requests.placed[i] - requests.first[i]
        context = requests.isl[i] + 0.5 * (1 + requests.osl[i])
        held += inside(window, requests.arrive[i], requests.end[i]) * context
    out[11], out[12], out[17] = moving / max(moved, 1), waiting / max(moved, 1), held


@kernel
def _run(
    prefill: PassTimes,
    decode: PassTimes,
    first: Batch,
    second: Batch,
    before: Prefills,
    after: Decodes,
    requests: Moved,
    way: tuple[float, float],
    at_once: int,
    bounds: Floats,
    totals: Floats,
) -> None:
    """Run both pools until all requests have ended; adds to the totals, a row for each part.

    at_once: requests that are sent without waiting for others to end; bounds: when parts start [s].
    """
    count = requests.isl.size
    ready, moving = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    head, tail, moves, sent, ended, now, part = 0, 0, 0, at_once, 0, 0.0, 0
    arrival = NEVER  # of the next cache at its place
    while True:
        while part + 1 < bounds.size and bounds[part + 1] <= now:
            part += 1
        ends = 0
        for unit in range(before.until.size):
            if before.until[unit] <= now:
                tail, more = end_prefill(first, before, requests, ready, tail, unit, now)
                ends += more
        for unit in range(after.until.size):
            if after.until[unit] <= now:
                ends += end_decode(second, after, requests, unit, now)
        ended += ends
        if ended == count:
            return
        for _ in range(min(ends, count - sent)):
            requests.sent[sent] = now
            sent += 1
        while head < tail and give_place(second, after, requests, ready[head]):
            moving[moves] = ready[head]
            arrival = min(arrival, _send(before, requests, moving[moves], way, now))
            head, moves = head + 1, moves + 1
        if arrival <= now:
            moves, arrival = _arrive(before, requests, moving, moves, now)
        for unit in range(before.until.size):
            if before.until[unit] == NEVER:
                took = start_prefill(prefill, first, before, requests, sent, unit, now)
                totals[part, _PREFILL_S] += took
                totals[part, _PREFILLS] += took > 0.0
        for unit in range(after.until.size):
            if after.until[unit] == NEVER:
                took = start_decode(decode, second, after, requests, unit, now)
                totals[part, _DECODE_S] += took
                totals[part, _DECODES] += took > 0.0
        now = min(arrival, _next(first, before, after, requests, sent, now))


@lean_kernel
def _send(pool: Prefills, requests: Moved, i: int, way: tuple[float, float], now: float) -> float:
    """Send a request's cache, after all that its rank sends before; returns when it arrives [s]."""
    unit, rank = unit_of(pool, i)
    server = unit % pool.link.shape[0]
    requests.placed[i] = now
    requests.arrive[i] = max(now, pool.link[server, rank]) + way[0] + way[1] * requests.isl[i]
    pool.link[server, rank] = requests.arrive[i]
    return float(requests.arrive[i])


@lean_kernel
def _arrive(pool: Prefills, requests: Moved, moving: Ints, moves: int, now: float) -> tuple[int, float]:
    """Give free what has been sent; returns how many are on their way, and when the next one arrives [s]."""
    kept, soonest = 0, NEVER
    for place in range(moves):
        i = moving[place]
        if requests.arrive[i] <= now:
            unit, rank = unit_of(pool, i)
            pool.held[unit, rank] -= requests.isl[i]
        else:
            moving[kept] = i
            kept += 1
            soonest = min(soonest, requests.arrive[i])
    return kept, soonest


@lean_kernel
def _next(batch: Batch, before: Prefills, after: Decodes, requests: Moved, sent: int, now: float) -> float:
    """Return when something happens next but the arrival of a cache [s]."""
    soonest = NEVER
    for unit in range(after.until.size):
        soonest = min(soonest, after.until[unit])
    for unit in range(before.until.size):
        soonest = min(soonest, before.until[unit])
        for rank in range(batch.ranks):
            i = request_at(before, unit, rank, before.head[unit, rank])
            if i < sent and requests.sent[i] > now:
                soonest = min(soonest, requests.sent[i])
    return soonest
