"""Prefill and decoding on servers of their own: what runs where, and what each pool does next.

Requests are dealt to the ranks of prefill in turns, as they are sent. An iteration takes prompts of each
rank's queue up to the budget. Then a request waits, in order, for a place: on the rank of decode that has
fewest requests, of those with a place and room for all of its tokens. Its cache is sent there, and holds
memory at both ends until it has come; a rank sends one cache after the other. The request joins with the
next iteration (Zhong et al., DistServe, OSDI 2024, section 4.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.passes.step_time import (
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stall_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import found
from fastflow.performance.serving.simulator.scheduler import CLOSE, Batch

NEVER = 1e300


class Moved(NamedTuple):
    """Requests; (requests,). Times are negative until they are known [s]."""

    isl: Ints
    osl: Ints
    found: Ints  # tokens of the prompt in the cache already
    computed: Ints
    made: Floats  # tokens of the answer
    sent: Floats
    admitted: Floats  # to a server of prefill
    first: Floats
    placed: Floats  # on a server of decode
    arrive: Floats  # there
    end: Floats


class Prefills(NamedTuple):
    """The pool of prefill: units, batches that go on by themselves, of ranks each."""

    until: Floats  # (units,) when its iteration ends; NEVER: it is idle
    head: Ints  # (units, ranks) requests of its queue that have started
    done: Ints  # and of these, those that have their first token
    held: Ints  # tokens in its cache
    last: Ints  # requests in the iteration under way, behind `done`
    tokens: Ints  # of the last of them
    link: Floats  # (servers, ranks) when what it sends has been sent


class Place(NamedTuple):
    """A rank of a pool."""

    unit: int
    rank: int


class Prefilled(NamedTuple):
    """What an iteration of prefill leaves when it ends."""

    tail: int  # end of the queue for places of decode
    ended: int  # requests that ask for one token alone


class Decodes(NamedTuple):
    """The pool of decode."""

    until: Floats  # (units,)
    place: Ints  # (units, ranks, places) requests
    taken: Ints  # (units, ranks) places
    runs: Ints  # of these, those in the iteration under way: the first ones
    reserved: Ints  # tokens of those with a place, at their ends


@kernel
def moved_of(isl: Ints, osl: Ints, sent: Floats, prefix: float) -> Moved:
    """Return requests that have not started; prefix: share of prompts that is in the cache."""
    count = isl.size
    known = np.empty(count, dtype=np.int64)
    for i in range(count):
        known[i] = found(float(isl[i]), prefix)
    return Moved(
        isl=isl,
        osl=osl,
        found=known,
        computed=np.zeros(count, dtype=np.int64),
        made=np.zeros(count),
        sent=sent.copy(),
        admitted=np.full(count, -1.0),
        first=np.full(count, -1.0),
        placed=np.full(count, -1.0),
        arrive=np.full(count, -1.0),
        end=np.full(count, -1.0),
    )


@kernel
def prefills_of(servers: int, batch: Batch) -> Prefills:
    """Return an idle pool of prefill."""
    units = servers * batch.slots
    shape = (units, batch.ranks)
    return Prefills(
        until=np.full(units, NEVER),
        head=np.zeros(shape, dtype=np.int64),
        done=np.zeros(shape, dtype=np.int64),
        held=np.zeros(shape, dtype=np.int64),
        last=np.zeros(shape, dtype=np.int64),
        tokens=np.zeros(shape, dtype=np.int64),
        link=np.zeros((servers, batch.ranks)),
    )


@kernel
def decodes_of(servers: int, batch: Batch, requests: int) -> Decodes:
    """Return an idle pool of decode; requests: how many there will be."""
    units = servers * batch.slots
    shape = (units, batch.ranks)
    return Decodes(
        until=np.full(units, NEVER),
        place=np.empty((*shape, min(batch.most, requests)), dtype=np.int64),
        taken=np.zeros(shape, dtype=np.int64),
        runs=np.zeros(shape, dtype=np.int64),
        reserved=np.zeros(shape, dtype=np.int64),
    )


@lean_kernel
def request_at(pool: Prefills, unit: int, rank: int, index: int) -> int:
    """Return the request that is so far behind the first one of a rank."""
    units, ranks = pool.head.shape
    return int(unit + units * (rank + ranks * index))


@lean_kernel
def place_of(pool: Prefills, request: int) -> Place:
    """Return where in the pool of prefill a request is dealt to."""
    units, ranks = pool.head.shape
    return Place(request % units, request // units % ranks)


@lean_kernel
def start_prefill(
    times: PassTimes, batch: Batch, pool: Prefills, requests: Moved, sent: int, unit: int, now: float
) -> float:
    """Start the next iteration of a unit of prefill and return what it takes [s]; 0 where it has none.

    sent: requests that have been sent.
    """
    most_tokens, most_rows, attention = 0, 0, 0.0
    for rank in range(batch.ranks):
        left, own = batch.budget, 0.0
        pool.last[unit, rank] = 0
        while left > 0:
            index = pool.done[unit, rank] + pool.last[unit, rank]
            i = request_at(pool, unit, rank, index)
            is_new = index == pool.head[unit, rank]
            if is_new and (
                i >= sent
                or requests.sent[i] > now
                or pool.held[unit, rank] + requests.isl[i] > batch.capacity
            ):
                break
            tokens = requests.isl[i] - requests.found[i] - requests.computed[i]
            if tokens > left:
                if batch.chunks:
                    tokens = left
                elif pool.last[unit, rank] > 0:
                    break
            if is_new:
                pool.head[unit, rank] += 1
                pool.held[unit, rank] += requests.isl[i]
                requests.admitted[i] = now
            before = float(requests.found[i] + requests.computed[i])
            own += prefill_time(times, batch.times, float(tokens), before, pool.last[unit, rank] == 0)
            pool.last[unit, rank] += 1
            pool.tokens[unit, rank] = tokens
            left -= tokens
        most_tokens = max(most_tokens, batch.budget - left)
        most_rows = max(most_rows, pool.last[unit, rank])
        attention = max(attention, own)
    if most_rows == 0:
        return 0.0
    rest = batch.host.iteration_s + batch.host.row_s * most_rows
    shared = shared_time(times, batch.times, float(most_tokens))
    head = head_time(times, batch.times, float(most_rows))
    stall = stall_time(batch.pipeline, shared + attention, head)
    took = shared + head + attention + rest + stall
    pool.until[unit] = now + took
    return took


@lean_kernel
def end_prefill(
    batch: Batch, pool: Prefills, requests: Moved, ready: Ints, tail: int, unit: int, now: float
) -> Prefilled:
    """End the iteration of a unit."""
    ended = 0
    pool.until[unit] = NEVER
    for rank in range(batch.ranks):
        for order in range(pool.last[unit, rank]):
            i = request_at(pool, unit, rank, pool.done[unit, rank])
            is_last = order == pool.last[unit, rank] - 1
            rest = requests.isl[i] - requests.found[i] - requests.computed[i]
            requests.computed[i] += pool.tokens[unit, rank] if is_last else rest
            if requests.found[i] + requests.computed[i] < requests.isl[i]:
                continue
            pool.done[unit, rank] += 1
            requests.made[i], requests.first[i] = 1.0, now
            if requests.osl[i] == 1:
                requests.end[i] = now
                pool.held[unit, rank] -= requests.isl[i]
                ended += 1
            else:
                ready[tail] = i
                tail += 1
    return Prefilled(tail, ended)


@lean_kernel
def give_place(batch: Batch, pool: Decodes, requests: Moved, i: int) -> bool:
    """Give a request a place on the rank with fewest; returns whether there is one."""
    fewest, best, whole = pool.place.shape[2], -1, requests.isl[i] + requests.osl[i]
    units = pool.until.size
    for rank in range(batch.ranks):
        for unit in range(units):
            if (
                pool.taken[unit, rank] < fewest
                and pool.reserved[unit, rank] + whole <= batch.capacity
            ):  # fmt: skip
                fewest, best = pool.taken[unit, rank], rank * units + unit
    if best < 0:
        return False
    unit, rank = best % units, best // units
    pool.place[unit, rank, pool.taken[unit, rank]] = i
    pool.taken[unit, rank] += 1
    pool.reserved[unit, rank] += whole
    return True


@lean_kernel
def start_decode(
    times: PassTimes, batch: Batch, pool: Decodes, requests: Moved, unit: int, now: float
) -> float:
    """Start the next iteration of a unit of decode and return what it takes [s]; 0 where it has none."""
    most, attention = 0, 0.0
    for rank in range(batch.ranks):
        runs, context = 0, 0.0
        for place in range(pool.taken[unit, rank]):
            i = pool.place[unit, rank, place]
            if requests.arrive[i] <= now:  # those that run come first
                pool.place[unit, rank, place] = pool.place[unit, rank, runs]
                pool.place[unit, rank, runs] = i
                context += requests.isl[i] + requests.made[i]
                runs += 1
        pool.runs[unit, rank] = runs
        most = max(most, runs)
        if runs:
            attention = max(attention, decode_line(times, batch.times, float(runs), context / runs).seconds)
    if most == 0:
        return 0.0
    rows = float(most * batch.queries)
    rest = batch.host.iteration_s + batch.host.row_s * most + batch.draft_s
    shared = shared_time(times, batch.times, rows)
    head = head_time(times, batch.times, rows)
    stall = stall_time(batch.pipeline, shared + attention, head)
    took = shared + head + attention + rest + stall
    pool.until[unit] = now + took
    return took


@lean_kernel
def end_decode(batch: Batch, pool: Decodes, requests: Moved, unit: int, now: float) -> int:
    """End the iteration of a unit; returns how many requests ended."""
    ended = 0
    pool.until[unit] = NEVER
    for rank in range(batch.ranks):
        kept = 0
        for place in range(pool.taken[unit, rank]):
            i = pool.place[unit, rank, place]
            if place < pool.runs[unit, rank]:
                requests.made[i] += batch.per_pass
                if requests.made[i] >= requests.osl[i] - CLOSE:
                    requests.end[i] = now
                    pool.reserved[unit, rank] -= requests.isl[i] + requests.osl[i]
                    ended += 1
                    continue
            pool.place[unit, rank, kept] = i
            kept += 1
        pool.taken[unit, rank] = kept
    return ended
