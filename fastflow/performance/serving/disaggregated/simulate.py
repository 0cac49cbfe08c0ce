"""Simulation of disaggregated prefill and decoding: every request, event by event.

An open loop at random times is measured in its window, as with servers that do both (window.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.disaggregated.pools import (
    NEVER,
    Decodes,
    PoolRequests,
    Prefills,
    admit_to_decode,
    decodes_of,
    end_decode,
    end_prefill,
    pool_rank_of,
    pool_requests_of,
    prefills_of,
    send_to_prefill,
    start_decode,
    start_prefill,
)
from fastflow.performance.serving.encoder_pool.queue import Encoding, arrival_of, idle_encoders
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import (
    TOO_LONG,
    Loads,
    is_random,
    lengths_sent,
    sent_at,
    trip_share,
)
from fastflow.performance.serving.simulator.latencies import (
    RequestMetrics,
    is_measured,
    no_metrics,
    overlap,
    write_metrics,
)
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of
from fastflow.performance.serving.simulator.window import (
    EndedRequests,
    Window,
    bounds_of,
    longer_run,
    window_of,
)


class Pools(NamedTuple):
    """Servers of prefill and of decode, and transfers of caches between them; shape (points,)."""

    prefill: Servers  # a server of prefill
    decode: Servers  # a server of decode, which reserves all tokens of a request
    prefills: Ints  # number of servers
    decodes: Ints
    transfer_latency_s: Floats  # of a transfer of a cache [s]
    transfer_token_s: Floats  # further time of each token [s]
    transfer_layers: Ints  # parts of a cache, each sent once it is computed; 1: it is sent as a whole
    streams: Bools  # the server that decodes sends the first token, once it has the cache


class DisaggregatedMetrics(NamedTuple):
    """Metrics of requests and of both pools; shape (points,). 0 where they refuse the load.

    Times per output token include the wait for admission to decode, and the transfer of the cache.
    """

    refused: Ints  # load.TAKEN, or why a point has no result: TOO_LONG
    metrics: RequestMetrics
    transfer_s: Floats  # from admission to the cache's arrival, mean of requests with more than one token
    prefill_iterations: Floats  # of all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches in use, mean over time


class _PrefillState(NamedTuple):
    """The prefill pool of a point."""

    times: PassTimes
    batch: Batch
    pool: Prefills
    encoding: Encoding


class _DecodeState(NamedTuple):
    """The decode pool of a point."""

    times: PassTimes
    batch: Batch
    pool: Decodes


class _Transfer(NamedTuple):
    """The time of a cache's transfer of a point."""

    latency_s: float
    token_s: float
    layers: int


class _Caches(NamedTuple):
    """Requests whose caches are on servers of prefill; shape (requests,), the first ones count."""

    ready: Ints  # in the order in which they wait for admission
    moving: Ints  # those in transfer


class _Transfers(NamedTuple):
    """Transfers of caches from prefill to decode."""

    transfer_s: float  # mean
    cached: float  # tokens on servers of decode times their duration [s]


class _Arrivals(NamedTuple):
    """Caches in transfer."""

    num_moving: int
    soonest: float  # when the next one arrives [s]


_PREFILLS, _DECODES = range(2)
"""Totals: numbers of iterations of all units that start in a part of the arrivals."""


def simulate_disaggregated(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads
) -> DisaggregatedMetrics:
    """Simulate every point's pools; prefill, decode: passes of their servers; loads: of all servers."""
    points = loads.isl.size
    out = DisaggregatedMetrics(np.zeros(points, dtype=np.int64), no_metrics(points), *np.zeros((4, points)))
    _simulate(prefill, decode, pools, loads, out)
    return out


@kernel
def _simulate(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: DisaggregatedMetrics
) -> None:
    for point in range(loads.isl.size):
        requests = loads.requests[point]
        while requests > 0:
            requests = _simulate_requests(prefill, decode, pools, loads, point, requests, out)


@kernel
def _simulate_requests(
    prefill: PassTimes,
    decode: PassTimes,
    pools: Pools,
    loads: Loads,
    point: int,
    count: int,
    out: DisaggregatedMetrics,
) -> int:
    """Simulate some requests of a point, and write its row of `DisaggregatedMetrics`.

    Returns 0; or how many requests a longer run has, which is needed: then nothing is written.
    """
    concurrency = loads.concurrency[point]
    is_closed = concurrency > 0
    isl, osl = lengths_sent(loads, point, count)
    prefill_batch = batch_of(pools.prefill, point, is_closed)
    decode_batch = batch_of(pools.decode, point, is_closed)
    if isl.max() > prefill_batch.capacity or (isl + osl).max() > decode_batch.capacity:
        out.refused[point] = TOO_LONG
        return 0
    sent = sent_at(loads, point, count)
    bounds = bounds_of(sent, is_random(loads, point))
    totals = np.zeros((bounds.size - 1, 2))
    requests = pool_requests_of(isl, osl, sent, loads.prefix[point])
    prefill_pool = prefills_of(pools.prefills[point], prefill_batch, count)
    encoding = idle_encoders(prefill_batch.intake, count)
    prefill_state = _PrefillState(prefill, prefill_batch, prefill_pool, encoding)
    decode_state = _DecodeState(decode, decode_batch, decodes_of(pools.decodes[point], decode_batch, count))
    transfer = _Transfer(
        pools.transfer_latency_s[point], pools.transfer_token_s[point], pools.transfer_layers[point]
    )
    at_once = min(concurrency, count) if is_closed else count
    caches = _Caches(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64))
    _run(prefill_state, decode_state, requests, transfer, caches, at_once, bounds, totals)
    ended = _ended(requests, encoding.sent, pools.streams[point])
    window = window_of(ended, bounds, loads.rate[point])
    next_run = longer_run(window, loads, point, count)
    if next_run == 0:
        write_metrics(ended, window, loads, point, out.metrics)
        transfers = _window_transfers(requests, encoding.sent, window)
        done = totals[window.first : window.last].sum(axis=0)
        duration = window.end - window.start
        out.transfer_s[point] = transfers.transfer_s
        out.prefill_iterations[point] = done[_PREFILLS]
        out.decode_iterations[point] = done[_DECODES]
        out.cache[point] = transfers.cached / (
            duration * decode_state.pool.num_admitted.size * decode_batch.capacity
        )
    return next_run


@kernel
def _ended(requests: PoolRequests, sent: Floats, streams: bool) -> EndedRequests:
    """Return the requests as those of a simulation that has ended.

    sent: by their clients [s]; streams: as in `Pools`.
    """
    transfers = requests.osl > 1
    first = requests.first.copy()
    if streams:
        first = np.where(transfers, requests.arrive, first)
    return EndedRequests(
        number=np.arange(requests.osl.size),
        osl=requests.osl,
        sent=sent,
        arrived=requests.sent,
        admitted=requests.admitted,
        first=first,
        begin=np.where(transfers, requests.arrive, requests.end),
        end=requests.end,
        service=requests.end
        - requests.admitted
        - np.where(transfers, requests.placed - requests.first, 0.0 * requests.end),
    )


@lean_kernel
def _window_transfers(requests: PoolRequests, sent: Floats, window: Window) -> _Transfers:
    """Return the transfers of caches; means are of requests that clients send in the window."""
    count, transfer_s, cached = 0, 0.0, 0.0
    for i in range(requests.osl.size):
        if requests.osl[i] == 1:
            continue
        if is_measured(window, sent[i]):
            count += 1
            transfer_s += requests.arrive[i] - requests.placed[i]
        context = requests.isl[i] + 0.5 * (1 + requests.osl[i])
        cached += overlap(window, requests.arrive[i], requests.end[i]) * context
    return _Transfers(transfer_s / max(count, 1), cached)


@lean_kernel
def _run(
    prefill: _PrefillState,
    decode: _DecodeState,
    requests: PoolRequests,
    transfer: _Transfer,
    caches: _Caches,
    at_once: int,
    bounds: Floats,
    totals: Floats,
) -> None:
    """Run both pools until all requests have ended; adds to the totals, a row for each part.

    at_once: requests that are sent at the start; bounds: when parts start, and inf [s].
    """
    count, ready, moving = requests.isl.size, caches.ready, caches.moving
    prefill_pool, decode_pool = prefill.pool, decode.pool
    head, tail, transfers, sent, ended, now, part = 0, 0, 0, 0, 0, 0.0, 0
    arrival = NEVER  # of the next cache at its rank
    while sent < at_once:
        requests.sent[sent] = arrival_of(prefill.encoding, sent, requests.sent[sent])
        send_to_prefill(prefill_pool, requests, sent)
        sent += 1
    while True:
        while bounds[part + 1] <= now < np.inf:
            part += 1
        ends = 0
        for unit in range(prefill_pool.until.size):
            if prefill_pool.until[unit] <= now:
                done = end_prefill(prefill.batch, prefill_pool, requests, ready, tail, unit, now)
                tail, ends = done.tail, ends + done.ended
        for unit in range(decode_pool.until.size):
            if decode_pool.until[unit] <= now:
                ends += end_decode(decode.batch, decode_pool, requests, unit, now)
        ended += ends
        if ended == count:
            return
        for _ in range(min(ends, count - sent)):
            trip_s = trip_share(sent) * prefill.batch.intake.round_trip_s
            requests.sent[sent] = arrival_of(prefill.encoding, sent, now + trip_s)
            send_to_prefill(prefill_pool, requests, sent)
            sent += 1
        while head < tail and admit_to_decode(decode.batch, decode_pool, requests, ready[head]):
            moving[transfers] = ready[head]
            arrival = min(arrival, _send(prefill_pool, requests, moving[transfers], transfer, now))
            head, transfers = head + 1, transfers + 1
        if arrival <= now:
            arrivals = _arrive(prefill_pool, requests, moving, transfers, now)
            transfers, arrival = arrivals.num_moving, arrivals.soonest
        for unit in range(prefill_pool.until.size):
            if prefill_pool.until[unit] == NEVER:
                step_s = start_prefill(prefill.times, prefill.batch, prefill_pool, requests, unit, now)
                totals[part, _PREFILLS] += step_s > 0.0
        for unit in range(decode_pool.until.size):
            if decode_pool.until[unit] == NEVER:
                step_s = start_decode(decode.times, decode.batch, decode_pool, requests, unit, now)
                totals[part, _DECODES] += step_s > 0.0
        now = min(arrival, _next(prefill.batch, prefill_pool, decode_pool, requests, now))


@lean_kernel
def _send(pool: Prefills, requests: PoolRequests, i: int, transfer: _Transfer, now: float) -> float:
    """Send a request's cache, after earlier caches of its rank; returns when it arrives [s].

    Layers that were computed before the prompt's end were sent meanwhile, unless it waited for admission.
    """
    source = pool_rank_of(pool, i)
    unit, rank = source.unit, source.rank
    server = unit % pool.link.shape[0]
    requests.placed[i] = now
    sends_s, layers = transfer.token_s * requests.isl[i], transfer.layers
    computing_s = (requests.first[i] - requests.admitted[i]) * (layers - 1) / layers
    early_s = max(0.0, computing_s - (now - requests.first[i]))
    begin = max(now - early_s, pool.link[server, rank])
    at_last = now + transfer.latency_s + sends_s / layers  # the last layer's
    requests.arrive[i] = max(begin + transfer.latency_s + sends_s, at_last)
    pool.link[server, rank] = requests.arrive[i]
    return float(requests.arrive[i])


@lean_kernel
def _arrive(pool: Prefills, requests: PoolRequests, moving: Ints, transfers: int, now: float) -> _Arrivals:
    """Free the memory of caches that have arrived; returns those still in transfer."""
    kept, soonest = 0, NEVER
    for order in range(transfers):
        i = moving[order]
        if requests.arrive[i] <= now:
            source = pool_rank_of(pool, i)
            pool.cached[source.unit, source.rank] -= requests.isl[i]
        else:
            moving[kept] = i
            kept += 1
            soonest = min(soonest, requests.arrive[i])
    return _Arrivals(kept, soonest)


@lean_kernel
def _next(
    batch: Batch, prefill_pool: Prefills, decode_pool: Decodes, requests: PoolRequests, now: float
) -> float:
    """Return the time of the next event except arrivals of caches [s]."""
    soonest = NEVER
    for unit in range(decode_pool.until.size):
        soonest = min(soonest, decode_pool.until[unit])
    for unit in range(prefill_pool.until.size):
        soonest = min(soonest, prefill_pool.until[unit])
        for rank in range(batch.ranks):
            index = prefill_pool.head[unit, rank]
            if index < prefill_pool.tail[unit, rank]:
                sent = requests.sent[prefill_pool.queue[unit, rank, index]]
                soonest = min(soonest, sent) if sent > now else soonest
    return soonest
