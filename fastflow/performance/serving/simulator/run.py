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
from fastflow.performance.serving.requests.load import TOO_LONG, Loads, is_random, lengths_sent, sent_at
from fastflow.performance.serving.simulator.fast_forward import (
    CACHE,
    ITERATIONS,
    PREEMPTIONS,
    TOTALS,
    WITH_PREFILL,
    Span,
    step,
)
from fastflow.performance.serving.simulator.latencies import RequestMetrics, no_metrics, write_metrics
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
from fastflow.performance.serving.simulator.window import Ended, Window, bounds_of, longer_run, window_of


class Simulated(NamedTuple):
    """What requests see, and what iterations are made of; shape (points,).

    All are 0 where the server does not take the load. Of an open loop at random times, what is in its window:
    requests that are sent in it, ends, iterations that start in it.
    """

    refused: Ints  # load.TAKEN, or why it has no result: TOO_LONG
    metrics: RequestMetrics
    prefill_share: Floats  # of iterations: those that compute prompts
    preemptions: Floats  # places lost
    cache: Floats  # share of the cache that is held, mean over time


def simulate(times: PassTimes, servers: Servers, loads: Loads) -> Simulated:
    """Simulate every point's server."""
    points = loads.isl.size
    out = Simulated(np.zeros(points, dtype=np.int64), no_metrics(points), *np.zeros((3, points)))
    _simulate(times, servers, loads, out)
    return out


@kernel
def _simulate(times: PassTimes, servers: Servers, loads: Loads, out: Simulated) -> None:
    for point in range(loads.isl.size):
        requests = loads.requests[point]
        while requests > 0:
            requests = _simulate_requests(times, servers, loads, point, requests, out)


@kernel
def _simulate_requests(
    times: PassTimes, servers: Servers, loads: Loads, point: int, requests: int, out: Simulated
) -> int:
    """Simulate so many requests of a point, slot by slot, and write what `Simulated` has of it.

    Returns how many requests are to be sent instead: then nothing is written. Else 0.
    """
    concurrency = loads.concurrency[point]
    isl, osl = lengths_sent(loads, point, requests)
    capacity = servers.capacity[point] // servers.slots[point]
    if (isl + osl).max() > capacity:
        out.refused[point] = TOO_LONG
        return 0
    is_closed = concurrency > 0
    sent = sent_at(loads, point, requests)
    bounds = bounds_of(sent, is_random(loads, point))
    slots = min(servers.slots[point], requests, concurrency if is_closed else requests)
    totals, ended = np.zeros((bounds.size - 1, TOTALS)), ended_of(requests)
    clients = concurrency if is_closed else requests
    number, done = np.arange(requests), 0
    for slot in range(slots):
        mine = np.flatnonzero(number % clients % slots == slot)
        batch = batch_of(servers, point, is_closed)
        share = concurrency // slots + (1 if slot < concurrency % slots else 0)
        of_slot = requests_of(isl[mine], osl[mine], sent[mine], loads.prefix[point])
        ranks = ranks_of(batch.ranks, mine.size, batch.most)
        _run(times, batch, of_slot, ranks, share if is_closed else mine.size, bounds, totals)
        _keep(ended, of_slot, mine, done)
        done += mine.size
    window = window_of(ended, bounds, loads.rate[point])
    more = longer_run(window, loads, point, requests)
    if more == 0:
        write_metrics(ended, window, loads, point, out.metrics)
        _write_iterations(servers, point, totals[window.first : window.last], window, out)
    return more


@kernel
def ended_of(requests: int) -> Ended:
    """Return room for so many requests."""
    number, osl = np.empty(requests, dtype=np.int64), np.empty(requests, dtype=np.int64)
    sent, admitted, first = np.empty(requests), np.empty(requests), np.empty(requests)
    return Ended(number, osl, sent, admitted, first, first, np.empty(requests), np.empty(requests))


@kernel
def _keep(ended: Ended, requests: Requests, number: Ints, start: int) -> None:
    """Write a slot's requests behind those of the slots before it."""
    stop = start + number.size
    ended.number[start:stop], ended.osl[start:stop] = number, requests.osl
    ended.sent[start:stop], ended.admitted[start:stop] = requests.sent, requests.admitted
    ended.first[start:stop], ended.end[start:stop] = requests.first, requests.end
    ended.service[start:stop] = requests.end - requests.admitted


@kernel
def _write_iterations(servers: Servers, point: int, rows: Floats, window: Window, out: Simulated) -> None:
    """Write what iterations that start in the window are made of; rows: of totals, (parts, TOTALS)."""
    totals, lasts = rows.sum(axis=0), window.end - window.start
    out.prefill_share[point] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out.preemptions[point] = totals[PREEMPTIONS]
    out.cache[point] = totals[CACHE] / (lasts * servers.ranks[point] * servers.capacity[point])


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

    at_once: requests that are sent without waiting for others to end; bounds: when parts start, and inf [s].
    """
    count, part = requests.isl.size, 0
    sent, ended, now = 0, 0, 0.0
    row, until = totals[part], bounds[part + 1]
    while sent < min(at_once, count):
        send(ranks, batch, sent)
        sent += 1
    while ended < count:
        while until <= now < np.inf:
            part += 1
            row, until = totals[part], bounds[part + 1]
        if not batch.reserves:
            for rank in range(batch.ranks):
                row[PREEMPTIONS] += preempt(batch, requests, ranks, rank)
        has_prompts = compose(batch, requests, ranks, now)
        took = step(times, batch, requests, ranks, has_prompts, Span(now, until), row)
        if took.passes == 0:
            now = next_arrival(batch, requests, ranks, -1.0, False)
            continue
        now += took.seconds
        before = ended
        for rank in range(batch.ranks):
            ended += advance(batch, requests, ranks, rank, took.passes, now)
        for _ in range(min(ended - before, count - sent)):  # of an open loop all have been sent
            requests.sent[sent] = now
            send(ranks, batch, sent)
            sent += 1
