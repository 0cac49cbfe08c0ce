"""A server's scheduler: which requests run, and what is in the next iteration.

Requests wait in the order in which they arrive. The next request starts when the batch and the cache have
room for it. Its first token comes with the iteration that ends its prompt. A policy (`policies`) chooses the
prompts of an iteration. Where the cache is full, the request that started last is preempted: it returns to
the front of the queue, and its tokens are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.jit import inlined_kernel, kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.passes.captured_graphs import Graph
from fastflow.performance.serving.passes.step_time import Adapter, Host, Intake, Pipeline, Servers, Swap
from fastflow.performance.serving.requests.load import cached_tokens

TOLERANCE = 1e-9
"""Tolerance of sums of tokens per pass, for rounding [tokens]."""

NEVER = 1 << 62
OUTPUT_WEIGHT = 2.0
"""Weight of a token of an answer, where one of a prompt has 1: the cost function of Sheng et al., Fairness in
Serving Large Language Models (OSDI 2024), section 3.1."""


class Batch(NamedTuple):
    """The batching of a slot of a point's server; as `Servers`."""

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
    intake: Intake
    graph: Graph
    draft_s: float
    swap: Swap
    adapter: Adapter
    pipeline: Pipeline
    is_closed: bool  # loop


class Requests(NamedTuple):
    """The requests of a slot; shape (requests,)."""

    isl: Ints
    osl: Ints
    priority: Floats  # less goes first, with a policy that reads it
    client: Ints  # number of the client, among whom `fair_share` divides a rank
    deadline: Floats  # for the first token, of `deadline` [s]
    cached: Ints  # tokens of the prompt in the cache already
    shared: Ints  # tokens of the prompt that running requests have in the cache too, where it starts
    prompt: Ints  # tokens to have in the cache before the next token, with those lost by preemption
    computed: Ints  # of these, since it was started
    swapped: Ints  # of these, in the host's memory while it waits
    generated: Floats  # tokens of the answer when it last began to decode, or was preempted
    start_pass: Ints  # passes of its rank when it last began to decode
    sent: Floats  # [s]
    admitted: Floats  # [s]; negative: not yet, as `first` and `end`
    first: Floats  # [s]
    end: Floats  # [s]


class Service(NamedTuple):
    """What clients had of the attention ranks; (ranks, clients)."""

    tokens: Floats  # prompts' tokens that started, and weighted ones of answers that ended
    counter: Floats  # room for the policy that reads it
    waits: Ints  # 1: the client had a request in the queue when the policy ended last


class Ranks(NamedTuple):
    """Queues and batches of the attention ranks; arrays with ranks first."""

    queue: Ints  # (ranks, requests) in the order of starting
    head: Ints  # (ranks,) index of the next request of the queue
    tail: Ints  # (ranks,) index behind the last request
    running: Ints  # (ranks, requests) in the order in which they started: decoding ones come first
    end_pass: Ints  # (ranks, requests) passes of the rank with which a request ends; NEVER until it decodes
    chunk: Ints  # (ranks, requests) tokens of its prompt in this iteration
    decoding: Ints  # (ranks,) requests that decode
    started: Ints  # (ranks,) requests that have started
    chunks: Ints  # (ranks,) prompts in this iteration
    pauses: Ints  # (ranks,) 1: no request decodes in this iteration
    passes: Ints  # (ranks,) in which its requests decoded
    next_end: Ints  # (ranks,) passes with which the next request ends
    base: Floats  # (ranks,) contexts of decoding requests, less the tokens that all passes would have added
    prompts: Ints  # (ranks,) tokens of prompts that are being computed
    reserved: Ints  # (ranks,) tokens of started requests, at their ends
    saved: Ints  # (ranks,) tokens of started requests that are in the cache once for several of them
    ended: Ints  # (ranks, requests) those that ended with the last iteration
    swapped: Ints  # (ranks,) tokens of preempted requests in the host's memory
    swap_s: Floats  # (ranks,) time of swaps and loads that the next iteration waits for [s]
    adapters: Ints  # (ranks,) adapters, or models, of started requests
    service: Service


@inlined_kernel
def batch_of(servers: Servers, point: int, is_closed: bool) -> Batch:
    """Return the batching of a slot of a point's server."""
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
        host=Host(
            servers.host.iteration_s[point],
            servers.host.row_s[point],
            servers.host.eager_s[point],
            servers.host.first_use_s[point],
        ),
        intake=Intake(
            servers.intake.ahead[point],
            servers.intake.interval[point],
            servers.intake.balances[point],
            servers.intake.timeout[point],
            servers.intake.wait_iterations[point],
            servers.intake.wait_tokens[point],
            servers.intake.round_trip_s[point],
            servers.intake.encoders[point],
            servers.intake.encode_s[point],
            servers.intake.send_s[point],
        ),
        graph=Graph(
            servers.graph.step[point],
            servers.graph.largest[point],
            servers.graph.pads[point],
            servers.graph.launch_s[point],
        ),
        draft_s=servers.draft_s[point],
        swap=Swap(servers.swap.tokens[point] // slots, servers.swap.token_s[point]),
        adapter=Adapter(servers.adapter.each_s[point], servers.adapter.any_s[point]),
        pipeline=Pipeline(
            servers.pipeline.in_flight[point], servers.pipeline.widest[point], servers.pipeline.last[point]
        ),
        is_closed=is_closed,
    )


@kernel
def requests_of(isl: Ints, osl: Ints, sent: Floats, prefix: float) -> Requests:
    """Return requests that have not started; prefix: share of prompts that is in the cache."""
    count = isl.size
    cached = np.empty(count, dtype=np.int64)
    for i in range(count):
        cached[i] = cached_tokens(float(isl[i]), prefix)
    return Requests(
        isl=isl.copy(),
        osl=osl.copy(),
        priority=np.zeros(count),
        client=np.zeros(count, dtype=np.int64),
        deadline=np.zeros(count),
        cached=cached,
        shared=np.zeros(count, dtype=np.int64),
        prompt=isl.copy(),
        computed=np.zeros(count, dtype=np.int64),
        swapped=np.zeros(count, dtype=np.int64),
        generated=np.zeros(count),
        start_pass=np.zeros(count, dtype=np.int64),
        sent=sent.copy(),
        admitted=np.full(count, -1.0),
        first=np.full(count, -1.0),
        end=np.full(count, -1.0),
    )


@kernel
def ranks_of(ranks: int, requests: int, most: int) -> Ranks:
    """Return idle ranks; requests: how many there will be, most: at once on a rank."""
    length = (requests + ranks - 1) // ranks
    size = min(most, length)
    return Ranks(
        queue=np.empty((ranks, length), dtype=np.int64),
        head=np.zeros(ranks, dtype=np.int64),
        tail=np.zeros(ranks, dtype=np.int64),
        running=np.empty((ranks, size), dtype=np.int64),
        end_pass=np.full((ranks, size), NEVER),
        chunk=np.zeros((ranks, size), dtype=np.int64),
        decoding=np.zeros(ranks, dtype=np.int64),
        started=np.zeros(ranks, dtype=np.int64),
        chunks=np.zeros(ranks, dtype=np.int64),
        pauses=np.zeros(ranks, dtype=np.int64),
        passes=np.zeros(ranks, dtype=np.int64),
        next_end=np.full(ranks, NEVER),
        base=np.zeros(ranks),
        prompts=np.zeros(ranks, dtype=np.int64),
        reserved=np.zeros(ranks, dtype=np.int64),
        saved=np.zeros(ranks, dtype=np.int64),
        ended=np.empty((ranks, size), dtype=np.int64),
        swapped=np.zeros(ranks, dtype=np.int64),
        swap_s=np.zeros(ranks),
        adapters=np.zeros(ranks, dtype=np.int64),
        service=Service(np.zeros((ranks, 1)), np.zeros((ranks, 1)), np.zeros((ranks, 1), dtype=np.int64)),
    )


@lean_kernel
def send(batch: Batch, requests: Requests, ranks: Ranks, request: int) -> None:
    """Put a request into its rank's queue, in the order of arrival: round trips differ."""
    rank = request % batch.ranks
    insert_by_arrival(ranks.queue[rank], ranks.head[rank], ranks.tail[rank], requests.sent, request)
    ranks.tail[rank] += 1


@lean_kernel
def insert_by_arrival(queue: Ints, head: int, tail: int, sent: Floats, request: int) -> None:
    """Put a request into a queue, before those that arrive later; sent: when each request is sent [s]."""
    free = tail
    while free > head and sent[queue[free - 1]] > sent[request]:
        queue[free] = queue[free - 1]
        free -= 1
    queue[free] = request


@lean_kernel
def contexts(batch: Batch, ranks: Ranks, rank: int) -> float:
    """Return the sum of the contexts of decoding requests [tokens]."""
    return float(ranks.base[rank] + batch.per_pass * ranks.passes[rank] * ranks.decoding[rank])


@lean_kernel
def used_tokens(batch: Batch, ranks: Ranks, rank: int) -> float:
    """Return the tokens in the cache of started requests: texts that several of them share count once."""
    return float(contexts(batch, ranks, rank) + ranks.prompts[rank] - ranks.saved[rank])


@lean_kernel
def next_arrival(batch: Batch, requests: Requests, ranks: Ranks, now: float) -> float:
    """Return when the next request arrives after `now` that may change an iteration [s].

    That is the first one of a queue whose rank's batch is not full. Prompts that wait for others wait for any
    of them, and where a server rarely looks for requests, it sees all that have come.
    """
    soonest, rarely_looks = 1e300, batch.intake.interval > 1
    for rank in range(batch.ranks):
        if ranks.head[rank] == ranks.tail[rank] or (ranks.started[rank] >= batch.most and not rarely_looks):
            continue
        index = ranks.head[rank]
        if rarely_looks or batch.intake.wait_iterations > 0:
            index = _first_after(requests, ranks, rank, now)
        if index < ranks.tail[rank]:
            sent = requests.sent[ranks.queue[rank, index]]
            soonest = min(soonest, sent) if sent > now else soonest
    return soonest


@lean_kernel
def _first_after(requests: Requests, ranks: Ranks, rank: int, when: float) -> int:
    """Return the index of the first request of a queue that arrives after a time [s]: all behind it do, too.

    when: not before the time until which the server has seen requests.
    """
    low, high = ranks.head[rank], ranks.tail[rank]
    while low < high:
        middle = (low + high) // 2
        if requests.sent[ranks.queue[rank, middle]] > when:
            high = middle
        else:
            low = middle + 1
    return int(low)


@lean_kernel
def next_sent(batch: Batch, requests: Requests, ranks: Ranks, now: float) -> float:
    """Return when the next request arrives after `now` [s], 1e300 if none does."""
    soonest = 1e300
    for rank in range(batch.ranks):
        index = _first_after(requests, ranks, rank, now)
        if index < ranks.tail[rank]:
            soonest = min(soonest, requests.sent[ranks.queue[rank, index]])
    return soonest


@lean_kernel
def is_next(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> bool:
    """Say whether the first request of a queue has arrived, and the batch has a place for it.

    Requests that have arrived are in the queue before those that have not, whatever their order.
    """
    if ranks.head[rank] == ranks.tail[rank] or ranks.started[rank] >= batch.most:
        return False
    return bool(requests.sent[ranks.queue[rank, ranks.head[rank]]] <= now)


@lean_kernel
def has_prompts(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> bool:
    """Say whether a prompt of a rank has started, or can start if the cache has room."""
    return ranks.started[rank] > ranks.decoding[rank] or is_next(batch, requests, ranks, rank, now)


@lean_kernel
def compose(
    batch: Batch,
    requests: Requests,
    ranks: Ranks,
    now: float,
    visible: float,
    is_held: bool,
    schedule: Callable[..., Any],
) -> bool:
    """Choose the prompts of the next iteration and start requests; returns whether it has prompts.

    now: when it starts [s]; visible: until when requests were sent that may start [s]; is_held: no prompt
    may; schedule: of a policy.
    """
    any_prompts = False
    for rank in range(batch.ranks):
        ranks.chunks[rank], ranks.pauses[rank] = 0, 0
        if not is_held and has_prompts(batch, requests, ranks, rank, visible):
            started = ranks.started[rank]
            schedule(batch, requests, ranks, rank, visible)
            for index in range(started, ranks.started[rank]):
                i = ranks.running[rank, index]
                requests.admitted[i] = now if requests.admitted[i] < 0.0 else requests.admitted[i]
        any_prompts = any_prompts or ranks.chunks[rank] > 0
    for rank in range(batch.ranks):
        if any_prompts and not batch.mixes:
            ranks.pauses[rank] = 1
    return any_prompts


@lean_kernel
def is_full(batch: Batch, ranks: Ranks) -> bool:
    """Say whether prompts fill the iteration of a rank."""
    for rank in range(batch.ranks):
        tokens = 0
        for index in range(ranks.decoding[rank], ranks.decoding[rank] + ranks.chunks[rank]):
            tokens += ranks.chunk[rank, index]
        if tokens >= batch.budget:
            return True
    return False


@lean_kernel
def advance(batch: Batch, requests: Requests, ranks: Ranks, rank: int, passes: int, now: float) -> int:
    """Advance a rank's requests by an iteration, or several that only decode; returns how many ended."""
    if ranks.decoding[rank] and not ranks.pauses[rank]:
        ranks.passes[rank] += passes
    done = ranks.passes[rank]
    begin = ranks.decoding[rank]
    for index in range(begin, begin + ranks.chunks[rank]):
        i = ranks.running[rank, index]
        requests.computed[i] += ranks.chunk[rank, index]
        if requests.cached[i] + requests.computed[i] < requests.prompt[i]:
            continue
        requests.generated[i] += 1.0
        requests.start_pass[i] = done
        if requests.first[i] < 0.0:
            requests.first[i] = now
        passes_left = (requests.osl[i] - requests.generated[i]) / batch.per_pass
        ranks.end_pass[rank, index] = done + max(0, int(np.ceil(passes_left - TOLERANCE)))
        ranks.next_end[rank] = min(ranks.next_end[rank], ranks.end_pass[rank, index])
        ranks.prompts[rank] -= requests.prompt[i]
        ranks.base[rank] += requests.isl[i] + requests.generated[i] - batch.per_pass * done
        ranks.decoding[rank] += 1
    return _end(batch, requests, ranks, rank, now) if ranks.next_end[rank] <= done else 0


@lean_kernel
def _end(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> int:
    """Remove the requests of a rank that have all their tokens; returns how many."""
    kept, done, next_end = 0, ranks.passes[rank], NEVER
    for index in range(ranks.started[rank]):
        end_pass = ranks.end_pass[rank, index]
        if end_pass <= done:
            i = ranks.running[rank, index]
            requests.end[i] = now
            ranks.ended[rank, index - kept] = i
            ranks.base[rank] -= (
                requests.isl[i] + requests.generated[i] - batch.per_pass * requests.start_pass[i]
            )
            ranks.reserved[rank] -= requests.isl[i] + requests.osl[i]
            ranks.service.tokens[rank, requests.client[i]] += OUTPUT_WEIGHT * requests.osl[i]
            continue
        next_end = min(next_end, end_pass)
        if kept < index:
            ranks.running[rank, kept] = ranks.running[rank, index]
            ranks.end_pass[rank, kept] = end_pass
        kept += 1
    ranks.next_end[rank] = next_end
    ended = ranks.started[rank] - kept
    ranks.started[rank] = kept
    ranks.decoding[rank] -= ended
    if ranks.decoding[rank] == 0:
        ranks.base[rank] = 0.0  # drops rounding errors
    return int(ended)
