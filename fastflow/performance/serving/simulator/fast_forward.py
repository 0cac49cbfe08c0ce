"""What iterations of a simulated server take, in steps of one or of many that are alike.

Between two events all iterations decode the same requests, whose contexts grow evenly: as long as the table
is straight, what they take is an arithmetic series, and summed up in one step.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.passes.step_time import (
    Pipeline,
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stage_shares,
    stall_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import (
    CLOSE,
    Batch,
    Ranks,
    Requests,
    contexts,
    next_arrival,
)

CACHE, ITERATIONS, WITH_PREFILL, PREEMPTIONS = range(4)
"""Totals: the time of iterations times the tokens held meanwhile [s], and counts."""
TOTALS = 4

_NEVER = 1 << 62


class Step(NamedTuple):
    """Iterations that are alike."""

    passes: int
    seconds: float  # all of them


class Span(NamedTuple):
    """When iterations may start [s]."""

    now: float
    until: float  # the last of them at the latest


class _Rest(NamedTuple):
    """What an iteration takes besides attention [s]."""

    shared: float
    head: float
    total: float  # with what the host and proposing tokens add


class _Attention(NamedTuple):
    """What attention takes on the slowest rank [s]."""

    decode: float
    prefill: float


class _Stretch(NamedTuple):
    """Iterations that decode alone and are alike."""

    decode: float  # what attention takes in the first of them [s]
    slope: float  # what each adds to that [s]
    passes: int


class _Sizes(NamedTuple):
    """What sets the time of an iteration besides attention: the most of any rank."""

    tokens: int
    rows: int  # of logits
    requests: int
    decoding: int


@lean_kernel
def _sizes(batch: Batch, ranks: Ranks) -> _Sizes:
    tokens, rows, requests, most_decoding = 0, 0, 0, 0
    for rank in range(batch.ranks):
        decoding = 0 if ranks.pauses[rank] else ranks.decoding[rank]
        prompts, chunks = 0, ranks.chunks[rank]
        for place in range(ranks.decoding[rank], ranks.decoding[rank] + chunks):
            prompts += ranks.take[rank, place]
        tokens = max(tokens, decoding * batch.queries + prompts)
        rows = max(rows, decoding * batch.queries + chunks)
        requests = max(requests, decoding + chunks)
        most_decoding = max(most_decoding, decoding)
    return _Sizes(tokens, rows, requests, most_decoding)


@lean_kernel
def step(
    times: PassTimes,
    batch: Batch,
    requests: Requests,
    ranks: Ranks,
    has_prompts: bool,
    span: Span,
    totals: Floats,
) -> Step:
    """Time the next iteration, and all that follow in which nothing happens; adds to the totals."""
    sizes = _sizes(batch, ranks)
    if sizes.requests == 0:
        return Step(0, 0.0)
    shared = shared_time(times, batch.times, float(sizes.tokens))
    head = head_time(times, batch.times, float(sizes.rows))
    host = batch.host.iteration_s + batch.host.row_s * sizes.requests
    draft = batch.draft_s if sizes.decoding else 0.0
    rest = _Rest(shared, head, shared + head + host + draft)
    if has_prompts:
        attention = _attention(times, batch, requests, ranks)
        stretch = _Stretch(attention.decode, 0.0, 1)
    else:
        attention = _Attention(0.0, 0.0)
        stretch = _stretch(times, batch, requests, ranks, rest, span)
    decode, count = stretch.decode, stretch.passes
    layers = shared + decode + attention.prefill
    stall = stall_time(batch.pipeline, layers, head)
    steep = stretch.slope * _steepness(batch.pipeline, layers, head)
    # the i-th of them takes `steep` more than the one before: sums over i, and over its square
    first, second = 0.5 * count * (count - 1), count * (count - 1) * (2 * count - 1) / 6.0
    one = rest.total + decode + attention.prefill + stall
    held, growth = 0.0, 0.0
    for rank in range(batch.ranks):
        held += contexts(batch, ranks, rank) + ranks.prompts[rank]
        growth += batch.per_pass * ranks.decoding[rank]
    seconds = count * one + steep * first
    totals[CACHE] += held * seconds + growth * (one * first + steep * second)
    totals[ITERATIONS] += count
    totals[WITH_PREFILL] += 1 if has_prompts else 0
    return Step(count, seconds)


@lean_kernel
def _steepness(pipeline: Pipeline, layers: float, head: float) -> float:
    """Return by how much a pass takes longer for each second that its layers take longer."""
    if pipeline.in_flight <= 1.0:
        return 1.0
    return stage_shares(pipeline, layers, head).layers


@lean_kernel
def _attention(times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks) -> _Attention:
    """Return what attention takes on the slowest rank."""
    slowest = _Attention(0.0, 0.0)
    for rank in range(batch.ranks):
        decoding, decode, prefill = ranks.decoding[rank], 0.0, 0.0
        if decoding and not ranks.pauses[rank]:
            mean = contexts(batch, ranks, rank) / decoding
            decode = decode_line(times, batch.times, float(decoding), mean).seconds
        for place in range(decoding, decoding + ranks.chunks[rank]):
            i = ranks.running[rank, place]
            before = float(requests.found[i] + requests.computed[i])
            chunk = float(ranks.take[rank, place])
            prefill += prefill_time(times, batch.times, chunk, before, place == decoding)
        if decode + prefill > slowest.decode + slowest.prefill:
            slowest = _Attention(decode, prefill)
    return slowest


@lean_kernel
def _stretch(
    times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks, rest: _Rest, span: Span
) -> _Stretch:
    """Return the next iterations that are alike.

    No request starts or ends before the last of them ends, the same rank is the slowest on one straight
    piece of the table, and the same stage sets the pace.
    """
    count, slowest, value, slope = _NEVER, 0, -1.0, 0.0
    for rank in range(batch.ranks):
        decoding = ranks.decoding[rank]
        if decoding == 0:
            continue
        count = min(count, ranks.soonest[rank] - ranks.passes[rank])
        total = contexts(batch, ranks, rank)
        if not batch.reserves and ranks.started[rank] > 1:
            room = batch.capacity - total - ranks.prompts[rank] + CLOSE
            count = min(count, int(room / (batch.per_pass * decoding)) + 1)
        mean = total / decoding
        line = decode_line(times, batch.times, float(decoding), mean)
        count = min(count, int(min((line.end - mean) / batch.per_pass, 1e15)) + 1)
        if line.seconds > value:
            slowest, value, slope = rank, line.seconds, line.slope * batch.per_pass
    count = max(count, 1)
    if batch.ranks > 1:
        count = _while_slowest(times, batch, ranks, slowest, count)
    layers = rest.shared + value
    steepness = _steepness(batch.pipeline, layers, rest.head)
    while count > 1 and _steepness(batch.pipeline, layers + slope * (count - 1), rest.head) != steepness:
        count = (count + 1) // 2 if count > 2 else 1
    first = rest.total + value + stall_time(batch.pipeline, layers, rest.head)
    arrival = min(next_arrival(batch, requests, ranks, span.now, True), span.until)
    return _Stretch(value, slope, _until(arrival - span.now, first, slope * steepness, count))


@lean_kernel
def _while_slowest(times: PassTimes, batch: Batch, ranks: Ranks, slowest: int, count: int) -> int:
    """Return for how many of `count` iterations a rank stays the slowest: at both ends of straight lines."""
    while count > 1:
        most, last = -1.0, -1.0
        for rank in range(batch.ranks):
            decoding = ranks.decoding[rank]
            if decoding:
                mean = contexts(batch, ranks, rank) / decoding + batch.per_pass * (count - 1)
                takes = decode_line(times, batch.times, float(decoding), mean).seconds
                most = max(most, takes)
                last = takes if rank == slowest else last
        if last >= most * (1.0 - 1e-13):  # ranks that are alike differ by rounding
            return count
        count = (count + 1) // 2 if count > 2 else 1
    return count


@lean_kernel
def _until(seconds: float, first: float, slope: float, count: int) -> int:
    """Return how many iterations, of `count`, have to end before so many seconds are over.

    first: what the first takes [s]; slope: what each takes more than the one before [s].
    """
    if count * first + 0.5 * slope * count * (count - 1) < seconds:
        return count
    low, high = 0, count  # the sum reaches `seconds` after more than `low` and at most `high`
    while high - low > 1:
        middle = (low + high) // 2
        if middle * first + 0.5 * slope * middle * (middle - 1) < seconds:
            low = middle
        else:
            high = middle
    return high
