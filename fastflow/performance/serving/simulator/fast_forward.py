"""What iterations of a simulated server take, in steps of one or of many that are alike.

Between two events all iterations decode the same requests, whose contexts grow evenly: as long as the table
is straight, what they take is an arithmetic series, and summed up in one step.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.passes.step_time import (
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stage_share,
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

SHARED, HEAD, DECODE, PREFILL, HOST, DRAFT = range(6)
"""Parts of an iteration's time."""
BUSY, CACHE, ITERATIONS, WITH_PREFILL, STEPS, PREEMPTIONS = range(6, 12)
"""Further totals: time of iterations [s], its product with tokens held [s], and counts."""
TOTALS = 12

_NEVER = 1 << 62


class Step(NamedTuple):
    """Iterations that are alike."""

    passes: int
    seconds: float  # all of them


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
    span: tuple[float, float],
    totals: Floats,
) -> Step:
    """Time the next iteration, and all that follow in which nothing happens; adds to the totals.

    span: now, and when the last of them has started at the latest [s].
    """
    sizes = _sizes(batch, ranks)
    if sizes.requests == 0:
        return Step(0, 0.0)
    shared = shared_time(times, batch.times, float(sizes.tokens))
    head = head_time(times, batch.times, float(sizes.rows))
    host = batch.iteration_s + batch.row_s * sizes.requests
    draft = batch.draft_s if sizes.decoding else 0.0
    rest = shared + head + host + draft
    if has_prompts:
        count, slope = 1, 0.0
        decode, prefill = _attention(times, batch, requests, ranks)
    else:
        prefill = 0.0
        decode, slope, count = _stretch(times, batch, requests, ranks, rest, (shared, head), span)
    layers = shared + decode + prefill
    stall = stall_time(batch.in_flight, batch.widest, batch.last, layers, head)
    steep = slope * _steepness(batch, layers, head)
    # the i-th of them takes `slope` more than the one before: sums over i, and over its square
    first, second = 0.5 * count * (count - 1), count * (count - 1) * (2 * count - 1) / 6.0
    one = rest + decode + prefill + stall
    held, growth = 0.0, 0.0
    for rank in range(batch.ranks):
        held += contexts(batch, ranks, rank) + ranks.prompts[rank]
        growth += batch.per_pass * ranks.decoding[rank]
    seconds = count * one + steep * first
    totals[SHARED] += count * (shared + stall) + (steep - slope) * first
    totals[HEAD] += count * head
    totals[HOST] += count * host
    totals[DRAFT] += count * draft
    totals[DECODE] += count * decode + slope * first
    totals[PREFILL] += prefill
    totals[BUSY] += seconds
    totals[CACHE] += held * seconds + growth * (one * first + steep * second)
    totals[ITERATIONS] += count
    totals[WITH_PREFILL] += 1 if has_prompts else 0
    totals[STEPS] += 1
    return Step(count, seconds)


@lean_kernel
def _steepness(batch: Batch, layers: float, head: float) -> float:
    """Return by how much a pass takes longer for each second that its layers take longer."""
    if batch.in_flight <= 1.0:
        return 1.0
    return stage_share(batch.in_flight, batch.widest, batch.last, layers, head)[0]


@lean_kernel
def _attention(times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks) -> tuple[float, float]:
    """Return what attention takes on the slowest rank: decoding requests', and prompts' [s]."""
    slowest = (0.0, 0.0)
    for rank in range(batch.ranks):
        decoding, decode, prefill = ranks.decoding[rank], 0.0, 0.0
        if decoding and not ranks.pauses[rank]:
            mean = contexts(batch, ranks, rank) / decoding
            decode = decode_line(times, batch.times, float(decoding), mean)[0]
        for place in range(decoding, decoding + ranks.chunks[rank]):
            i = ranks.running[rank, place]
            before = float(requests.found[i] + requests.computed[i])
            chunk = float(ranks.take[rank, place])
            prefill += prefill_time(times, batch.times, chunk, before, place == decoding)
        if decode + prefill > slowest[0] + slowest[1]:
            slowest = (decode, prefill)
    return slowest


@lean_kernel
def _stretch(
    times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks, rest: float, parts: tuple[float, float],
    span: tuple[float, float],
) -> tuple[float, float, int]:  # fmt: skip
    """Return what attention takes in the first of the next iterations, what each adds, and how many they are.

    No request starts or ends before the last of them ends, the same rank is the slowest on one straight
    piece of the table, and the same stage sets the pace. rest: what an iteration takes besides; parts: of it,
    layers and head; span: now, and when the last one has started at the latest [s].
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
        here, steep, end = decode_line(times, batch.times, float(decoding), mean)
        count = min(count, int(min((end - mean) / batch.per_pass, 1e15)) + 1)
        if here > value:
            slowest, value, slope = rank, here, steep * batch.per_pass
    count = max(count, 1)
    if batch.ranks > 1:
        count = _while_slowest(times, batch, ranks, slowest, count)
    layers, head = parts[0] + value, parts[1]
    steepness = _steepness(batch, layers, head)
    while count > 1 and _steepness(batch, layers + slope * (count - 1), head) != steepness:
        count = (count + 1) // 2 if count > 2 else 1
    one = rest + value + stall_time(batch.in_flight, batch.widest, batch.last, layers, head)
    arrival = min(next_arrival(batch, requests, ranks, span[0], True), span[1])
    return value, slope, _until(arrival - span[0], one, slope * steepness, count)


@lean_kernel
def _while_slowest(times: PassTimes, batch: Batch, ranks: Ranks, slowest: int, count: int) -> int:
    """Return for how many of `count` iterations a rank stays the slowest: at both ends of straight lines."""
    while count > 1:
        most, last = -1.0, -1.0
        for rank in range(batch.ranks):
            decoding = ranks.decoding[rank]
            if decoding:
                mean = contexts(batch, ranks, rank) / decoding + batch.per_pass * (count - 1)
                takes = decode_line(times, batch.times, float(decoding), mean)[0]
                most = max(most, takes)
                last = takes if rank == slowest else last
        if last >= most * (1.0 - 1e-13):  # ranks that are alike differ by rounding
            return count
        count = (count + 1) // 2 if count > 2 else 1
    return count


@lean_kernel
def _until(seconds: float, one: float, slope: float, count: int) -> int:
    """Return how many iterations, of `count`, have to end before so many seconds are over.

    one: what the first takes [s]; slope: what each takes more than the one before [s].
    """
    if count * one + 0.5 * slope * count * (count - 1) < seconds:
        return count
    low, high = 0, count  # the sum reaches `seconds` after more than `low` and at most `high`
    while high - low > 1:
        middle = (low + high) // 2
        if middle * one + 0.5 * slope * middle * (middle - 1) < seconds:
            low = middle
        else:
            high = middle
    return high
