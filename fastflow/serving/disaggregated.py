"""Prefill and decoding on servers of their own, simulated: every request, event by event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.serving.iterations import Servers
from fastflow.serving.load import TAKEN, TOO_LONG, Loads, lengths_sent, sent_at
from fastflow.serving.pass_times import PassTimes
from fastflow.serving.pools import (
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
from fastflow.serving.scheduler import Batch, batch_of
from fastflow.serving.simulate import statistics
from fastflow.tables import Floats, Ints


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

    refused: Ints  # TAKEN, or why it has no result: a key of `load.REFUSALS`
    ttft_s: Floats  # from sending to the first token, which prefill makes: mean
    ttft_median_s: Floats
    ttft_p99_s: Floats
    tpot_s: Floats  # from the first to the last token, for each after the first: mean
    tpot_median_s: Floats
    tpot_p99_s: Floats
    requests_per_s: Floats  # all requests over the time until the last one ends
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
    ttft_percentile_s: Floats  # at `loads.percentile`, of 0 the least
    tpot_percentile_s: Floats


class _Done(NamedTuple):
    """What the units of both pools did."""

    prefill_s: float
    decode_s: float
    prefills: int
    decodes: int


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
    count, concurrency = loads.requests[point], loads.concurrency[point]
    isl, osl = lengths_sent(loads, point)
    is_closed = concurrency > 0
    first, second = batch_of(pools.prefill, point, is_closed), batch_of(pools.decode, point, is_closed)
    if isl.max() > first.capacity or (isl + osl).max() > second.capacity:
        out[0] = TOO_LONG
        return
    sent = sent_at(loads, point)
    requests = moved_of(isl, osl, sent, loads.prefix[point])
    before = prefills_of(pools.prefills[point], first)
    after = decodes_of(pools.decodes[point], second, count)
    way = pools.way_s[point], pools.way_token_s[point]
    at_once = min(concurrency, count) if is_closed else count
    done = _run(prefill, decode, first, second, before, after, requests, way, at_once)
    out[0] = TAKEN
    makespan = requests.end.max()
    out[18] = statistics(requests.first - requests.sent, loads.percentile[point], out[1:4])
    tpot, answered, moving, waiting, decoding, held = np.empty(count), 0, 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        if osl[i] > 1:
            tpot[answered] = (requests.end[i] - requests.first[i]) / (osl[i] - 1)
            answered += 1
            moving += requests.arrive[i] - requests.placed[i]
            waiting += requests.placed[i] - requests.first[i]
            decoding += requests.end[i] - requests.arrive[i]
            held += (requests.end[i] - requests.arrive[i]) * (isl[i] + 0.5 * (1 + osl[i]))
    out[19] = statistics(tpot[:answered], loads.percentile[point], out[4:7])
    out[7], out[8] = count / makespan, osl.sum() / makespan
    out[9], out[10] = decoding / makespan, (requests.admitted - requests.sent).sum() / makespan
    out[11], out[12] = moving / max(answered, 1), waiting / max(answered, 1)
    out[13] = done.prefill_s / (makespan * before.until.size)
    out[14] = done.decode_s / (makespan * after.until.size)
    out[15], out[16] = done.prefills, done.decodes
    out[17] = held / (makespan * after.taken.size * second.capacity)


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
) -> _Done:
    """Run both pools until all requests have ended.

    at_once: requests that are sent without waiting for others to end.
    """
    count = requests.isl.size
    ready, moving = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    head, tail, moves, sent, ended, now = 0, 0, 0, at_once, 0, 0.0
    prefill_s, decode_s, prefills, decodes = 0.0, 0.0, 0, 0
    while True:
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
            return _Done(prefill_s, decode_s, prefills, decodes)
        for _ in range(min(ends, count - sent)):
            requests.sent[sent] = now
            sent += 1
        while head < tail and give_place(second, after, requests, ready[head]):
            moving[moves] = ready[head]
            _send(before, requests, moving[moves], way, now)
            head, moves = head + 1, moves + 1
        moves = _arrive(before, requests, moving, moves, now)
        for unit in range(before.until.size):
            if before.until[unit] == NEVER:
                took = start_prefill(prefill, first, before, requests, sent, unit, now)
                prefill_s += took
                prefills += took > 0.0
        for unit in range(after.until.size):
            if after.until[unit] == NEVER:
                took = start_decode(decode, second, after, requests, unit, now)
                decode_s += took
                decodes += took > 0.0
        now = _next(first, before, after, requests, moving[:moves], sent, now)


@lean_kernel
def _send(pool: Prefills, requests: Moved, i: int, way: tuple[float, float], now: float) -> None:
    """Send a request's cache, after all that its rank sends before."""
    unit, rank = unit_of(pool, i)
    server = unit % pool.link.shape[0]
    requests.placed[i] = now
    requests.arrive[i] = max(now, pool.link[server, rank]) + way[0] + way[1] * requests.isl[i]
    pool.link[server, rank] = requests.arrive[i]


@lean_kernel
def _arrive(pool: Prefills, requests: Moved, moving: Ints, moves: int, now: float) -> int:
    """Give free what has been sent; returns how many are still on their way."""
    kept = 0
    for place in range(moves):
        i = moving[place]
        if requests.arrive[i] <= now:
            unit, rank = unit_of(pool, i)
            pool.held[unit, rank] -= requests.isl[i]
        else:
            moving[kept] = i
            kept += 1
    return kept


@lean_kernel
def _next(
    batch: Batch, before: Prefills, after: Decodes, requests: Moved, moving: Ints, sent: int, now: float
) -> float:
    """Return when something happens next [s]."""
    soonest = NEVER
    for i in moving:
        soonest = min(soonest, requests.arrive[i])
    for unit in range(after.until.size):
        soonest = min(soonest, after.until[unit])
    for unit in range(before.until.size):
        soonest = min(soonest, before.until[unit])
        for rank in range(batch.ranks):
            i = request_at(before, unit, rank, before.head[unit, rank])
            if i < sent and requests.sent[i] > now:
                soonest = min(soonest, requests.sent[i])
    return soonest
