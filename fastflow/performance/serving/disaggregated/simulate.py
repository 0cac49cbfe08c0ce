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
    place_of,
    prefills_of,
    request_at,
    start_decode,
    start_prefill,
)
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TOO_LONG, Loads, is_random, lengths_sent, sent_at
from fastflow.performance.serving.simulator.latencies import (
    RequestMetrics,
    inside,
    is_measured,
    no_metrics,
    write_metrics,
)
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of
from fastflow.performance.serving.simulator.window import Ended, Window, bounds_of, longer_run, window_of


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

    refused: Ints  # load.TAKEN, or why it has no result: TOO_LONG
    metrics: RequestMetrics
    transfer_s: Floats  # from a place to the cache's arrival there, mean of requests with more than one token
    prefill_iterations: Floats  # all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches that requests hold, mean over time


class _Prefill(NamedTuple):
    """The pool of prefill of one point."""

    times: PassTimes
    batch: Batch
    pool: Prefills


class _Decode(NamedTuple):
    """The pool of decode of one point."""

    times: PassTimes
    batch: Batch
    pool: Decodes


class _Way(NamedTuple):
    """What sending a cache takes of one point."""

    fixed_s: float
    token_s: float


class _Caches(NamedTuple):
    """Requests whose caches are on servers of prefill; shape (requests,), the first ones count."""

    ready: Ints  # in the order in which they wait for a place
    moving: Ints  # those that are on their way


class _Moves(NamedTuple):
    """Caches that go from prefill to decode."""

    transfer_s: float  # on the way, mean
    held: float  # tokens on servers of decode, each times how long [s]


class _Arrivals(NamedTuple):
    """Caches that are on their way."""

    moves: int
    soonest: float  # when the next one arrives [s]


_PREFILLS, _DECODES = range(2)
"""Totals: numbers of iterations of all units that start in a part of the arrivals."""


def simulate_apart(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads) -> Apart:
    """Simulate every point's pools; prefill, decode: passes of their servers; loads: of all servers."""
    points = loads.isl.size
    out = Apart(np.zeros(points, dtype=np.int64), no_metrics(points), *np.zeros((4, points)))
    _simulate(prefill, decode, pools, loads, out)
    return out


@kernel
def _simulate(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: Apart) -> None:
    for point in range(loads.isl.size):
        requests = loads.requests[point]
        while requests > 0:
            requests = _simulate_requests(prefill, decode, pools, loads, point, requests, out)


@kernel
def _simulate_requests(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, count: int, out: Apart
) -> int:
    """Simulate so many requests of a point, and write what `Apart` has of it.

    Returns how many requests are to be sent instead: then nothing is written. Else 0.
    """
    concurrency = loads.concurrency[point]
    is_closed = concurrency > 0
    isl, osl = lengths_sent(loads, point, count)
    first, second = batch_of(pools.prefill, point, is_closed), batch_of(pools.decode, point, is_closed)
    if isl.max() > first.capacity or (isl + osl).max() > second.capacity:
        out.refused[point] = TOO_LONG
        return 0
    sent = sent_at(loads, point, count)
    bounds = bounds_of(sent, is_random(loads, point))
    totals = np.zeros((bounds.size - 1, 2))
    requests = moved_of(isl, osl, sent, loads.prefix[point])
    before = _Prefill(prefill, first, prefills_of(pools.prefills[point], first))
    after = _Decode(decode, second, decodes_of(pools.decodes[point], second, count))
    way = _Way(pools.way_s[point], pools.way_token_s[point])
    at_once = min(concurrency, count) if is_closed else count
    caches = _Caches(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64))
    _run(before, after, requests, way, caches, at_once, bounds, totals)
    ended = _ended(requests)
    window = window_of(ended, bounds, loads.rate[point])
    more = longer_run(window, loads, point, count)
    if more == 0:
        write_metrics(ended, window, loads, point, out.metrics)
        moves, done = _moves(requests, window), totals[window.first : window.last].sum(axis=0)
        lasts = window.end - window.start
        out.transfer_s[point] = moves.transfer_s
        out.prefill_iterations[point] = done[_PREFILLS]
        out.decode_iterations[point] = done[_DECODES]
        out.cache[point] = moves.held / (lasts * after.pool.taken.size * second.capacity)
    return more


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


@lean_kernel
def _moves(requests: Moved, window: Window) -> _Moves:
    """Return what caches do that go from prefill to decode: means are of requests of the window."""
    moved, moving, held = 0, 0.0, 0.0
    for i in range(requests.osl.size):
        if requests.osl[i] == 1:
            continue
        if is_measured(window, requests.sent[i]):
            moved += 1
            moving += requests.arrive[i] - requests.placed[i]
        context = requests.isl[i] + 0.5 * (1 + requests.osl[i])
        held += inside(window, requests.arrive[i], requests.end[i]) * context
    return _Moves(moving / max(moved, 1), held)


@lean_kernel
def _run(
    prefill: _Prefill,
    decode: _Decode,
    requests: Moved,
    way: _Way,
    caches: _Caches,
    at_once: int,
    bounds: Floats,
    totals: Floats,
) -> None:
    """Run both pools until all requests have ended; adds to the totals, a row for each part.

    at_once: requests that are sent without waiting for others to end; bounds: when parts start, and inf [s].
    """
    count, ready, moving = requests.isl.size, caches.ready, caches.moving
    before, after = prefill.pool, decode.pool
    head, tail, moves, sent, ended, now, part = 0, 0, 0, at_once, 0, 0.0, 0
    arrival = NEVER  # of the next cache at its place
    while True:
        while bounds[part + 1] <= now < np.inf:
            part += 1
        ends = 0
        for unit in range(before.until.size):
            if before.until[unit] <= now:
                done = end_prefill(prefill.batch, before, requests, ready, tail, unit, now)
                tail, ends = done.tail, ends + done.ended
        for unit in range(after.until.size):
            if after.until[unit] <= now:
                ends += end_decode(decode.batch, after, requests, unit, now)
        ended += ends
        if ended == count:
            return
        for _ in range(min(ends, count - sent)):
            requests.sent[sent] = now
            sent += 1
        while head < tail and give_place(decode.batch, after, requests, ready[head]):
            moving[moves] = ready[head]
            arrival = min(arrival, _send(before, requests, moving[moves], way, now))
            head, moves = head + 1, moves + 1
        if arrival <= now:
            arrivals = _arrive(before, requests, moving, moves, now)
            moves, arrival = arrivals.moves, arrivals.soonest
        for unit in range(before.until.size):
            if before.until[unit] == NEVER:
                took = start_prefill(prefill.times, prefill.batch, before, requests, sent, unit, now)
                totals[part, _PREFILLS] += took > 0.0
        for unit in range(after.until.size):
            if after.until[unit] == NEVER:
                took = start_decode(decode.times, decode.batch, after, requests, unit, now)
                totals[part, _DECODES] += took > 0.0
        now = min(arrival, _next(prefill.batch, before, after, requests, sent, now))


@lean_kernel
def _send(pool: Prefills, requests: Moved, i: int, way: _Way, now: float) -> float:
    """Send a request's cache, after all that its rank sends before; returns when it arrives [s]."""
    place = place_of(pool, i)
    unit, rank = place.unit, place.rank
    server = unit % pool.link.shape[0]
    requests.placed[i] = now
    requests.arrive[i] = max(now, pool.link[server, rank]) + way.fixed_s + way.token_s * requests.isl[i]
    pool.link[server, rank] = requests.arrive[i]
    return float(requests.arrive[i])


@lean_kernel
def _arrive(pool: Prefills, requests: Moved, moving: Ints, moves: int, now: float) -> _Arrivals:
    """Give free what has been sent; returns what is on its way still."""
    kept, soonest = 0, NEVER
    for order in range(moves):
        i = moving[order]
        if requests.arrive[i] <= now:
            place = place_of(pool, i)
            pool.held[place.unit, place.rank] -= requests.isl[i]
        else:
            moving[kept] = i
            kept += 1
            soonest = min(soonest, requests.arrive[i])
    return _Arrivals(kept, soonest)


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
