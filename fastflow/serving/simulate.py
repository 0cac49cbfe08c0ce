"""A server simulated: every request of a benchmark, from sending to its last token."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.serving.iterations import Servers
from fastflow.serving.load import TAKEN, TOO_LONG, Loads, lengths_sent, sent_at
from fastflow.serving.pass_times import PassTimes
from fastflow.serving.scheduler import (
    Batch,
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
from fastflow.serving.steps import (
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
from fastflow.tables import Floats, Ints


class Simulated(NamedTuple):
    """What requests see, and what iterations are made of; shape (points,).

    All are 0 where the server does not take the load. Shares are of the time of all iterations. Times per
    output token are those of requests with more than one; 0 where there is none.
    """

    refused: Ints  # TAKEN, or why it has no result: a key of `load.REFUSALS`
    ttft_s: Floats  # from sending to the first token: mean
    ttft_median_s: Floats
    ttft_p99_s: Floats
    tpot_s: Floats  # from the first to the last token, for each after the first: mean
    tpot_median_s: Floats
    tpot_p99_s: Floats
    requests_per_s: Floats  # all requests over the time until the last one ends
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
    ttft_percentile_s: Floats  # at `loads.percentile`, of 0 the least
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
    requests, concurrency = loads.requests[point], loads.concurrency[point]
    isl, osl = lengths_sent(loads, point)
    capacity = servers.capacity[point] // servers.slots[point]
    if (isl + osl).max() > capacity:
        out[0] = TOO_LONG
        return
    is_closed = concurrency > 0
    sent = sent_at(loads, point)
    slots = min(servers.slots[point], requests, concurrency if is_closed else requests)
    totals, makespan, wait = np.zeros(TOTALS), 0.0, 0.0
    ttft, tpot, answered = np.empty(requests), np.empty(requests), 0
    decoding = 0.0
    clients = concurrency if is_closed else requests
    number = np.arange(requests)
    for slot in range(slots):
        mine = np.flatnonzero(number % clients % slots == slot)
        batch = batch_of(servers, point, is_closed)
        share = concurrency // slots + (1 if slot < concurrency % slots else 0)
        own = requests_of(isl[mine], osl[mine], sent[mine], loads.prefix[point])
        _run(times, batch, own, share if is_closed else own.isl.size, totals)
        makespan = max(makespan, own.end.max())
        for i in range(own.isl.size):
            ttft[mine[i]] = own.first[i] - own.sent[i]
            wait += own.admitted[i] - own.sent[i]
            decoding += own.end[i] - own.first[i]
            if own.osl[i] > 1:
                tpot[answered] = (own.end[i] - own.first[i]) / (own.osl[i] - 1)
                answered += 1
    out[0] = TAKEN
    out[22] = statistics(ttft, loads.percentile[point], out[1:4])
    out[23] = statistics(tpot[:answered], loads.percentile[point], out[4:7])
    out[7], out[8] = requests / makespan, osl.sum() / makespan
    out[9], out[10] = decoding / makespan, wait / makespan
    out[11] = totals[WITH_PREFILL] / totals[ITERATIONS]
    out[12], out[13], out[14] = totals[ITERATIONS], totals[STEPS], totals[PREEMPTIONS]
    out[15:21] = totals[SHARED : DRAFT + 1] / totals[BUSY]
    out[21] = totals[CACHE] / (makespan * servers.ranks[point] * servers.capacity[point])


@kernel
def statistics(values: Floats, percentile: float, out: Floats) -> float:
    """Write mean, median and 99th percentile, and return another percentile; 0 of nothing."""
    if values.size == 0:
        return 0.0
    ordered = np.sort(values)
    out[0] = ordered.mean()
    out[1], out[2] = percentile_of(ordered, 50.0), percentile_of(ordered, 99.0)
    return percentile_of(ordered, percentile)


@lean_kernel
def percentile_of(ordered: Floats, percentile: float) -> float:
    """Return a percentile of values, the least first; between neighbours as a straight line."""
    place = percentile / 100.0 * (ordered.size - 1)
    low = int(place)
    high = min(low + 1, ordered.size - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


@kernel
def _run(times: PassTimes, batch: Batch, requests: Requests, at_once: int, totals: Floats) -> None:
    """Run a slot until all of its requests have ended; adds to the totals.

    at_once: requests that are sent without waiting for others to end.
    """
    count = requests.isl.size
    ranks = ranks_of(batch.ranks, count, batch.most)
    sent, ended, now = 0, 0, 0.0
    while sent < min(at_once, count):
        send(ranks, batch, sent)
        sent += 1
    while ended < count:
        if not batch.reserves:
            for rank in range(batch.ranks):
                totals[PREEMPTIONS] += preempt(batch, requests, ranks, rank)
        has_prompts = compose(batch, requests, ranks, now)
        took = step(times, batch, requests, ranks, has_prompts, now, totals)
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
