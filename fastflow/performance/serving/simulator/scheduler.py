"""A server's scheduler: which requests run, and what is in the next iteration.

Requests wait in the order in which they were sent. One starts when there is a place and room in the cache for
it. Its first token comes with the iteration that ends its prompt. With `mixes`, all decoding requests are in
every iteration, and what is left of its budget goes to prompts, oldest first. Else prompts have iterations of
their own, which go first. Where the cache is full, the request that started last loses its place, goes back
to the front of the queue, and its tokens are computed again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.passes.step_time import Host, Pipeline, Servers
from fastflow.performance.serving.requests.load import found

CLOSE = 1e-9
"""Of a token: rounding of sums of tokens a pass."""

_NEVER = 1 << 62


class Batch(NamedTuple):
    """What a server's slot makes iterations of, and how it does; numbers of one point."""

    times: int
    ranks: int
    slots: int
    budget: int
    most: int  # requests on a rank
    capacity: int  # tokens of a rank
    queries: int
    per_pass: float
    mixes: bool
    chunks: bool
    reserves: bool
    host: Host
    draft_s: float
    pipeline: Pipeline
    is_closed: bool  # loop


class Requests(NamedTuple):
    """The requests of a slot; shape (requests,)."""

    isl: Ints
    osl: Ints
    found: Ints  # tokens of the prompt in the cache already
    prompt: Ints  # tokens to have in the cache before the next token, with those that a lost place forgot
    computed: Ints  # of these, since it started
    made: Floats  # tokens of the answer when it last began to decode, or lost its place
    since: Ints  # passes of its rank then
    sent: Floats  # [s]
    admitted: Floats  # [s]; negative: not yet, as the next two
    first: Floats  # [s]
    end: Floats  # [s]


class Ranks(NamedTuple):
    """What is where; ranks first."""

    queue: Ints  # (ranks, requests) in the order of starting
    head: Ints  # (ranks,) the next one of the queue
    tail: Ints  # (ranks,) behind the last one
    running: Ints  # (ranks, places) in the order in which they started: those that decode come first
    until: (
        Ints  # (ranks, places) passes of the rank with which the request there ends; far off until it decodes
    )
    take: Ints  # (ranks, places) tokens of its prompt in this iteration
    decoding: Ints  # (ranks,)
    started: Ints  # (ranks,) all that run
    chunks: Ints  # (ranks,) prompts in this iteration
    pauses: Ints  # (ranks,) 1: no request of it decodes in this iteration
    passes: Ints  # (ranks,) in which its requests decoded
    soonest: Ints  # (ranks,) passes with which the next one ends
    base: Floats  # (ranks,) contexts of those that decode, less what all passes so far would have added
    prompts: Ints  # (ranks,) tokens of prompts that are being computed
    reserved: Ints  # (ranks,) tokens of those that run, at their ends


@kernel
def batch_of(servers: Servers, point: int, is_closed: bool) -> Batch:
    """Return the numbers of one slot of a point's server."""
    slots = servers.slots[point]
    most = max(1, servers.most[point] // slots)
    if servers.mixes[point]:
        most = min(most, max(1, servers.budget[point] // servers.queries[point]))
    return Batch(
        times=servers.times[point],
        ranks=servers.ranks[point],
        slots=slots,
        budget=servers.budget[point],
        most=most,
        capacity=servers.capacity[point] // slots,
        queries=servers.queries[point],
        per_pass=servers.per_pass[point],
        mixes=servers.mixes[point],
        chunks=servers.chunks[point],
        reserves=servers.reserves[point],
        host=Host(servers.host.iteration_s[point], servers.host.row_s[point]),
        draft_s=servers.draft_s[point],
        pipeline=Pipeline(
            servers.pipeline.in_flight[point], servers.pipeline.widest[point], servers.pipeline.last[point]
        ),
        is_closed=is_closed,
    )


@kernel
def requests_of(isl: Ints, osl: Ints, sent: Floats, prefix: float) -> Requests:
    """Return requests that have not started; prefix: share of prompts that is in the cache."""
    count = isl.size
    known = np.empty(count, dtype=np.int64)
    for i in range(count):
        known[i] = found(float(isl[i]), prefix)
    return Requests(
        isl=isl.copy(),
        osl=osl.copy(),
        found=known,
        prompt=isl.copy(),
        computed=np.zeros(count, dtype=np.int64),
        made=np.zeros(count),
        since=np.zeros(count, dtype=np.int64),
        sent=sent.copy(),
        admitted=np.full(count, -1.0),
        first=np.full(count, -1.0),
        end=np.full(count, -1.0),
    )


@kernel
def ranks_of(ranks: int, requests: int, most: int) -> Ranks:
    """Return ranks without any requests; requests: how many there will be, most: at once on a rank."""
    length = (requests + ranks - 1) // ranks
    places = min(most, length)
    return Ranks(
        queue=np.empty((ranks, length), dtype=np.int64),
        head=np.zeros(ranks, dtype=np.int64),
        tail=np.zeros(ranks, dtype=np.int64),
        running=np.empty((ranks, places), dtype=np.int64),
        until=np.full((ranks, places), _NEVER),
        take=np.zeros((ranks, places), dtype=np.int64),
        decoding=np.zeros(ranks, dtype=np.int64),
        started=np.zeros(ranks, dtype=np.int64),
        chunks=np.zeros(ranks, dtype=np.int64),
        pauses=np.zeros(ranks, dtype=np.int64),
        passes=np.zeros(ranks, dtype=np.int64),
        soonest=np.full(ranks, _NEVER),
        base=np.zeros(ranks),
        prompts=np.zeros(ranks, dtype=np.int64),
        reserved=np.zeros(ranks, dtype=np.int64),
    )


@lean_kernel
def send(ranks: Ranks, batch: Batch, request: int) -> None:
    """Put a request at the end of its rank's queue."""
    rank = request % batch.ranks
    ranks.queue[rank, ranks.tail[rank]] = request
    ranks.tail[rank] += 1


@lean_kernel
def contexts(batch: Batch, ranks: Ranks, rank: int) -> float:
    """Return the sum of the contexts of those that decode [tokens]."""
    return float(ranks.base[rank] + batch.per_pass * ranks.passes[rank] * ranks.decoding[rank])


@lean_kernel
def next_arrival(batch: Batch, requests: Requests, ranks: Ranks, now: float, needs_place: bool) -> float:
    """Return when the next request after `now` queues [s]; needs_place: where a rank has a place for it."""
    soonest = 1e300
    for rank in range(batch.ranks):
        if ranks.head[rank] == ranks.tail[rank] or (needs_place and ranks.started[rank] >= batch.most):
            continue
        sent = requests.sent[ranks.queue[rank, ranks.head[rank]]]
        if sent > now:
            soonest = min(soonest, sent)
    return soonest


@lean_kernel
def preempt(batch: Batch, requests: Requests, ranks: Ranks, rank: int) -> int:
    """Take places away until the cache holds the rest; returns how many."""
    lost = 0
    while (
        ranks.started[rank] > 1
        and contexts(batch, ranks, rank) + ranks.prompts[rank] > batch.capacity + CLOSE
    ):
        ranks.started[rank] -= 1
        i = ranks.running[rank, ranks.started[rank]]
        if ranks.started[rank] < ranks.decoding[rank]:
            made = requests.made[i] + batch.per_pass * (ranks.passes[rank] - requests.since[i])
            ranks.base[rank] -= requests.isl[i] + requests.made[i] - batch.per_pass * requests.since[i]
            ranks.decoding[rank] -= 1
            requests.made[i] = np.floor(made + CLOSE)
            requests.prompt[i] = requests.isl[i] + int(requests.made[i])
            _find_soonest(ranks, rank)
        else:
            ranks.prompts[rank] -= requests.prompt[i]
        requests.computed[i] = 0
        ranks.reserved[rank] -= requests.isl[i] + requests.osl[i]
        ranks.head[rank] -= 1
        ranks.queue[rank, ranks.head[rank]] = i
        lost += 1
    return lost


@lean_kernel
def _find_soonest(ranks: Ranks, rank: int) -> None:
    soonest = _NEVER
    for place in range(ranks.decoding[rank]):
        soonest = min(soonest, ranks.until[rank, place])
    ranks.soonest[rank] = soonest


@lean_kernel
def _may_start(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> bool:
    """Say whether the next request of a queue is there, has a place and fits the cache."""
    if ranks.head[rank] == ranks.tail[rank] or ranks.started[rank] >= batch.most:
        return False
    i = ranks.queue[rank, ranks.head[rank]]
    if requests.sent[i] > now:
        return False
    if batch.reserves:
        return bool(ranks.reserved[rank] + requests.isl[i] + requests.osl[i] <= batch.capacity)
    held = contexts(batch, ranks, rank) + ranks.prompts[rank]
    return bool(held + requests.prompt[i] <= batch.capacity + CLOSE)


@lean_kernel
def compose(batch: Batch, requests: Requests, ranks: Ranks, now: float) -> bool:
    """Choose the prompts of the next iteration and start requests; returns whether there are any."""
    has_prompts = False
    for rank in range(batch.ranks):
        ranks.chunks[rank], ranks.pauses[rank] = 0, 0
        left, place = batch.budget, ranks.decoding[rank]
        if batch.mixes:
            left -= place * batch.queries
        while left > 0:
            is_new = place == ranks.started[rank]
            if is_new and not _may_start(batch, requests, ranks, rank, now):
                break
            i = ranks.queue[rank, ranks.head[rank]] if is_new else ranks.running[rank, place]
            tokens = requests.prompt[i] - requests.found[i] - requests.computed[i]
            if tokens > left:
                if batch.chunks:
                    tokens = left
                elif tokens > batch.budget and ranks.chunks[rank] == 0:
                    ranks.pauses[rank] = 1
                else:
                    break
            if is_new:
                _start(requests, ranks, rank, now)
            ranks.take[rank, place] = tokens
            ranks.chunks[rank] += 1
            left -= tokens
            place += 1
        has_prompts = has_prompts or ranks.chunks[rank] > 0
    for rank in range(batch.ranks):
        if has_prompts and not batch.mixes:
            ranks.pauses[rank] = 1
    return has_prompts


@lean_kernel
def _start(requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give the next request of a queue a place."""
    i = ranks.queue[rank, ranks.head[rank]]
    ranks.head[rank] += 1
    ranks.running[rank, ranks.started[rank]] = i
    ranks.until[rank, ranks.started[rank]] = _NEVER
    ranks.started[rank] += 1
    ranks.prompts[rank] += requests.prompt[i]
    ranks.reserved[rank] += requests.isl[i] + requests.osl[i]
    if requests.admitted[i] < 0.0:
        requests.admitted[i] = now


@lean_kernel
def advance(batch: Batch, requests: Requests, ranks: Ranks, rank: int, passes: int, now: float) -> int:
    """Move a rank's requests on by an iteration, or several that decode alone; returns how many ended."""
    if ranks.decoding[rank] and not ranks.pauses[rank]:
        ranks.passes[rank] += passes
    done = ranks.passes[rank]
    begin = ranks.decoding[rank]
    for place in range(begin, begin + ranks.chunks[rank]):
        i = ranks.running[rank, place]
        requests.computed[i] += ranks.take[rank, place]
        if requests.found[i] + requests.computed[i] < requests.prompt[i]:
            continue
        requests.made[i] += 1.0
        requests.since[i] = done
        if requests.first[i] < 0.0:
            requests.first[i] = now
        missing = (requests.osl[i] - requests.made[i]) / batch.per_pass
        ranks.until[rank, place] = done + max(0, int(np.ceil(missing - CLOSE)))
        ranks.soonest[rank] = min(ranks.soonest[rank], ranks.until[rank, place])
        ranks.prompts[rank] -= requests.prompt[i]
        ranks.base[rank] += requests.isl[i] + requests.made[i] - batch.per_pass * done
        ranks.decoding[rank] += 1
    return _end(batch, requests, ranks, rank, now) if ranks.soonest[rank] <= done else 0


@lean_kernel
def _end(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> int:
    """Take away the requests of a rank that have all their tokens; returns how many."""
    kept, done, soonest = 0, ranks.passes[rank], _NEVER
    for place in range(ranks.started[rank]):
        until = ranks.until[rank, place]
        if until <= done:
            i = ranks.running[rank, place]
            requests.end[i] = now
            ranks.base[rank] -= requests.isl[i] + requests.made[i] - batch.per_pass * requests.since[i]
            ranks.reserved[rank] -= requests.isl[i] + requests.osl[i]
            continue
        soonest = min(soonest, until)
        if kept < place:
            ranks.running[rank, kept] = ranks.running[rank, place]
            ranks.until[rank, kept] = until
        kept += 1
    ranks.soonest[rank] = soonest
    ended = ranks.started[rank] - kept
    ranks.started[rank] = kept
    ranks.decoding[rank] -= ended
    if ranks.decoding[rank] == 0:
        ranks.base[rank] = 0.0  # without what rounding left
    return int(ended)
