"""Disaggregated prefill and decoding: the state of both pools, and their next iterations.

Requests are assigned to the prefill ranks in turns, and queue there in the order in which they arrive. An
iteration takes prompts of each rank's queue up to the budget. Then requests wait, in order, for admission: to
the decode rank with fewest requests, of those with room for the request and all of its tokens. Its cache is
sent there, and uses memory at both ends until it arrives; a rank sends one cache after the other. The request
joins with the next iteration (Zhong et al., DistServe, OSDI 2024, section 4.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.overlap.hidden import hidden_time
from fastflow.performance.serving.passes.captured_graphs import decoded
from fastflow.performance.serving.passes.step_time import (
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stall_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import cached_tokens
from fastflow.performance.serving.simulator.scheduler import TOLERANCE, Batch, insert_by_arrival

NEVER = 1e300


class PoolRequests(NamedTuple):
    """Requests of both pools; (requests,). Times are negative until they are known [s]."""

    isl: Ints
    osl: Ints
    cached: Ints  # tokens of the prompt in the cache already
    computed: Ints
    generated: Floats  # tokens of the answer
    sent: Floats
    admitted: Floats  # to a server of prefill
    first: Floats
    placed: Floats  # admission to a server of decode, when its cache is sent
    arrive: Floats  # of its cache there
    end: Floats


class Prefills(NamedTuple):
    """The prefill pool: units (a slot of a server each, with its own iterations) of ranks."""

    until: Floats  # (units,) when its iteration ends; NEVER: it is idle
    queue: Ints  # (units, ranks, requests) in the order in which they arrive
    tail: Ints  # (units, ranks) requests of its queue
    head: Ints  # of these, those that have started
    done: Ints  # of these, requests that have their first token
    cached: Ints  # tokens in its cache
    last: Ints  # requests in the running iteration, behind `done`
    tokens: Ints  # of the last request of these
    link: Floats  # (servers, ranks) when it has sent its caches


class PoolRank(NamedTuple):
    """A rank of the prefill pool."""

    unit: int
    rank: int


class PrefillResult(NamedTuple):
    """Result of an iteration of prefill."""

    tail: int  # end of the queue for decode
    ended: int  # requests with a single output token


class Decodes(NamedTuple):
    """The decode pool."""

    until: Floats  # (units,)
    admitted: Ints  # (units, ranks, requests)
    num_admitted: Ints  # (units, ranks)
    num_running: Ints  # of these, in the running iteration: the first ones
    reserved: Ints  # tokens of admitted requests, at their ends


@kernel
def pool_requests_of(isl: Ints, osl: Ints, sent: Floats, prefix: float) -> PoolRequests:
    """Return requests that have not started; prefix: share of prompts that is in the cache."""
    count = isl.size
    cached = np.empty(count, dtype=np.int64)
    for i in range(count):
        cached[i] = cached_tokens(float(isl[i]), prefix)
    return PoolRequests(
        isl=isl,
        osl=osl,
        cached=cached,
        computed=np.zeros(count, dtype=np.int64),
        generated=np.zeros(count),
        sent=sent.copy(),
        admitted=np.full(count, -1.0),
        first=np.full(count, -1.0),
        placed=np.full(count, -1.0),
        arrive=np.full(count, -1.0),
        end=np.full(count, -1.0),
    )


@kernel
def prefills_of(servers: int, batch: Batch, requests: int) -> Prefills:
    """Return an idle prefill pool; requests: how many there will be."""
    units = servers * batch.slots
    shape = (units, batch.ranks)
    length = (requests + units * batch.ranks - 1) // (units * batch.ranks)
    return Prefills(
        until=np.full(units, NEVER),
        queue=np.empty((*shape, length), dtype=np.int64),
        tail=np.zeros(shape, dtype=np.int64),
        head=np.zeros(shape, dtype=np.int64),
        done=np.zeros(shape, dtype=np.int64),
        cached=np.zeros(shape, dtype=np.int64),
        last=np.zeros(shape, dtype=np.int64),
        tokens=np.zeros(shape, dtype=np.int64),
        link=np.zeros((servers, batch.ranks)),
    )


@kernel
def decodes_of(servers: int, batch: Batch, requests: int) -> Decodes:
    """Return an idle decode pool; requests: how many there will be."""
    units = servers * batch.slots
    shape = (units, batch.ranks)
    return Decodes(
        until=np.full(units, NEVER),
        admitted=np.empty((*shape, min(batch.most, requests)), dtype=np.int64),
        num_admitted=np.zeros(shape, dtype=np.int64),
        num_running=np.zeros(shape, dtype=np.int64),
        reserved=np.zeros(shape, dtype=np.int64),
    )


@lean_kernel
def pool_rank_of(pool: Prefills, request: int) -> PoolRank:
    """Return the prefill rank of a request."""
    units, ranks = pool.head.shape
    return PoolRank(request % units, request // units % ranks)


@lean_kernel
def send_to_prefill(pool: Prefills, requests: PoolRequests, request: int) -> None:
    """Put a request into its rank's queue, in the order of arrival: round trips differ."""
    position = pool_rank_of(pool, request)
    unit, rank = position.unit, position.rank
    insert_by_arrival(
        pool.queue[unit, rank], pool.head[unit, rank], pool.tail[unit, rank], requests.sent, request
    )
    pool.tail[unit, rank] += 1


@lean_kernel
def start_prefill(
    times: PassTimes, batch: Batch, pool: Prefills, requests: PoolRequests, unit: int, now: float
) -> float:
    """Start the next iteration of a unit of prefill and return its time [s]; 0 where it has none."""
    most_tokens, all_tokens, most_rows, attention = 0, 0, 0, 0.0
    for rank in range(batch.ranks):
        left, rank_attention = batch.budget, 0.0
        pool.last[unit, rank] = 0
        while left > 0:
            index = pool.done[unit, rank] + pool.last[unit, rank]
            if index == pool.tail[unit, rank]:
                break
            i, is_new = pool.queue[unit, rank, index], index == pool.head[unit, rank]
            if is_new and (
                requests.sent[i] > now or pool.cached[unit, rank] + requests.isl[i] > batch.capacity
            ):
                break
            tokens = requests.isl[i] - requests.cached[i] - requests.computed[i]
            if tokens > left:
                if batch.chunks:
                    tokens = left
                elif pool.last[unit, rank] > 0:
                    break
            if is_new:
                pool.head[unit, rank] += 1
                pool.cached[unit, rank] += requests.isl[i]
                requests.admitted[i] = now
            before = float(requests.cached[i] + requests.computed[i])
            rank_attention += prefill_time(
                times, batch.times, float(tokens), before, pool.last[unit, rank] == 0
            )
            pool.last[unit, rank] += 1
            pool.tokens[unit, rank] = tokens
            left -= tokens
        most_tokens = max(most_tokens, batch.budget - left)
        all_tokens += batch.budget - left
        most_rows = max(most_rows, pool.last[unit, rank])
        attention = max(attention, rank_attention)
    if most_rows == 0:
        return 0.0
    host_s = batch.host.iteration_s + batch.host.row_s * most_rows
    shared = shared_time(times, batch.times, float(most_tokens), all_tokens / batch.ranks)
    shared -= hidden_time(times, batch.times, float(most_tokens), 0.0, attention)
    head = head_time(times, batch.times, float(most_rows))
    stall = stall_time(batch.pipeline, shared + attention, head)
    duration = max(shared + head + attention, batch.host.eager_s) + host_s + stall
    pool.until[unit] = now + duration
    return duration


@lean_kernel
def end_prefill(
    batch: Batch, pool: Prefills, requests: PoolRequests, ready: Ints, tail: int, unit: int, now: float
) -> PrefillResult:
    """End the iteration of a unit."""
    ended = 0
    pool.until[unit] = NEVER
    for rank in range(batch.ranks):
        for order in range(pool.last[unit, rank]):
            i = pool.queue[unit, rank, pool.done[unit, rank]]
            is_last = order == pool.last[unit, rank] - 1
            tokens_left = requests.isl[i] - requests.cached[i] - requests.computed[i]
            requests.computed[i] += pool.tokens[unit, rank] if is_last else tokens_left
            if requests.cached[i] + requests.computed[i] < requests.isl[i]:
                continue
            pool.done[unit, rank] += 1
            requests.generated[i], requests.first[i] = 1.0, now
            if requests.osl[i] == 1:
                requests.end[i] = now
                pool.cached[unit, rank] -= requests.isl[i]
                ended += 1
            else:
                ready[tail] = i
                tail += 1
    return PrefillResult(tail, ended)


@lean_kernel
def admit_to_decode(batch: Batch, pool: Decodes, requests: PoolRequests, i: int) -> bool:
    """Admit a request to the rank with fewest requests; returns whether a rank has room."""
    fewest, best, tokens = pool.admitted.shape[2], -1, requests.isl[i] + requests.osl[i]
    units = pool.until.size
    for rank in range(batch.ranks):
        for unit in range(units):
            if (
                pool.num_admitted[unit, rank] < fewest
                and pool.reserved[unit, rank] + tokens <= batch.capacity
            ):  # fmt: skip
                fewest, best = pool.num_admitted[unit, rank], rank * units + unit
    if best < 0:
        return False
    unit, rank = best % units, best // units
    pool.admitted[unit, rank, pool.num_admitted[unit, rank]] = i
    pool.num_admitted[unit, rank] += 1
    pool.reserved[unit, rank] += tokens
    return True


@lean_kernel
def start_decode(
    times: PassTimes, batch: Batch, pool: Decodes, requests: PoolRequests, unit: int, now: float
) -> float:
    """Start the next iteration of a unit of decode and return its time [s]; 0 where it has none."""
    most, total, attention = 0, 0, 0.0
    for rank in range(batch.ranks):
        running, context = 0, 0.0
        for index in range(pool.num_admitted[unit, rank]):
            i = pool.admitted[unit, rank, index]
            if requests.arrive[i] <= now:  # running requests come first
                pool.admitted[unit, rank, index] = pool.admitted[unit, rank, running]
                pool.admitted[unit, rank, running] = i
                context += requests.isl[i] + requests.generated[i]
                running += 1
        pool.num_running[unit, rank] = running
        most, total = max(most, running), total + running
        if running:
            attention = max(
                attention, decode_line(times, batch.times, float(running), context / running).seconds
            )
    if most == 0:
        return 0.0
    decodes = decoded(batch.graph, batch.ranks, float(most), total / batch.ranks)
    rows = decodes.requests * batch.queries
    host_s = batch.host.iteration_s + batch.host.row_s * most + batch.draft_s
    shared = shared_time(times, batch.times, rows, decodes.mean * batch.queries)
    shared -= hidden_time(times, batch.times, rows, attention, 0.0)
    head = head_time(times, batch.times, rows)
    stall = stall_time(batch.pipeline, shared + attention, head)
    duration = max(shared + head + attention, decodes.least_s) + host_s + stall
    pool.until[unit] = now + duration
    return duration


@lean_kernel
def end_decode(batch: Batch, pool: Decodes, requests: PoolRequests, unit: int, now: float) -> int:
    """End the iteration of a unit; returns how many requests ended."""
    ended = 0
    pool.until[unit] = NEVER
    for rank in range(batch.ranks):
        kept = 0
        for index in range(pool.num_admitted[unit, rank]):
            i = pool.admitted[unit, rank, index]
            if index < pool.num_running[unit, rank]:
                requests.generated[i] += batch.per_pass
                if requests.generated[i] >= requests.osl[i] - TOLERANCE:
                    requests.end[i] = now
                    pool.reserved[unit, rank] -= requests.isl[i] + requests.osl[i]
                    ended += 1
                    continue
            pool.admitted[unit, rank, kept] = i
            kept += 1
        pool.num_admitted[unit, rank] = kept
    return ended
