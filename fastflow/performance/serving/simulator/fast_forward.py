"""Times of a simulated server's iterations, in steps of a single iteration or of many.

Between two events all iterations decode the same requests, whose contexts grow evenly. Within a linear
interval of the table their times are an arithmetic series, which is summed in a single step.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import inlined_kernel, lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.overlap.hidden import hidden_line, hidden_time
from fastflow.performance.serving.passes.captured_graphs import decoded
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
    TOLERANCE,
    Batch,
    Ranks,
    Requests,
    contexts,
    next_arrival,
    used_tokens,
)

CACHE, ITERATIONS, WITH_PREFILL, PREEMPTIONS = range(4)
"""Totals: the time of iterations times the tokens in the cache [s], and counts."""
TOTALS = 4


class Step(NamedTuple):
    """Iterations with the same requests, whose times are an arithmetic series."""

    passes: int
    first: float  # time of the first one [s]
    increase: float  # from each to the next [s]


class Span(NamedTuple):
    """When iterations may start [s]."""

    now: float
    until: float  # latest start
    most: int  # iterations


class _FixedTimes(NamedTuple):
    """Time of an iteration without attention [s]."""

    shared: float
    head: float
    tokens: float  # of the rank with most
    total: float  # with the host and draft tokens
    least_s: float  # that launches of its kernels take, attention included; 0 with a captured graph [s]


class _Attention(NamedTuple):
    """Time of attention on the slowest rank [s]."""

    decode: float
    prefill: float


class _DecodeSteps(NamedTuple):
    """Iterations without prompts that decode the same requests."""

    decode: float  # attention's time in the first iteration [s]
    hidden: float  # of the first iteration's time, by overlap inside a device [s]
    increase: float  # of an iteration's time in each further one [s]
    passes: int


class _Sizes(NamedTuple):
    """Sizes that set the time of an iteration without attention: each the largest of any rank."""

    tokens: int
    mean: float  # tokens of all ranks
    rows: int  # of logits
    requests: int
    decoding: int


@lean_kernel
def _sizes(batch: Batch, ranks: Ranks) -> _Sizes:
    tokens, total, rows, requests, most_decoding = 0, 0, 0, 0, 0
    for rank in range(batch.ranks):
        decoding = 0 if ranks.pauses[rank] else ranks.decoding[rank]
        prompts, chunks = 0, ranks.chunks[rank]
        for index in range(ranks.decoding[rank], ranks.decoding[rank] + chunks):
            prompts += ranks.chunk[rank, index]
        tokens = max(tokens, decoding * batch.queries + prompts)
        total += decoding * batch.queries + prompts
        rows = max(rows, decoding * batch.queries + chunks)
        requests = max(requests, decoding + chunks)
        most_decoding = max(most_decoding, decoding)
    return _Sizes(tokens, total / batch.ranks, rows, requests, most_decoding)


@inlined_kernel
def step(
    times: PassTimes,
    batch: Batch,
    requests: Requests,
    ranks: Ranks,
    has_prompts: bool,
    span: Span,
) -> Step:
    """Time the next iteration, and those after it up to the next event."""
    sizes = _sizes(batch, ranks)
    if sizes.tokens == 0:
        return Step(0, 0.0, 0.0)
    swap_s = _take_swaps(batch, ranks)
    if swap_s > 0.0:
        span = Span(span.now, span.until, 1)
    added_s = swap_s + _time_of_adapters(batch, ranks)
    tokens, mean, rows = float(sizes.tokens), sizes.mean, float(sizes.rows)
    least_s = batch.host.eager_s
    if not has_prompts:
        decodes = decoded(batch.graph, batch.ranks, float(sizes.decoding), mean / batch.queries)
        tokens = rows = decodes.requests * batch.queries
        mean, least_s = decodes.mean * batch.queries, decodes.least_s
    shared = shared_time(times, batch.times, tokens, mean)
    head = head_time(times, batch.times, rows)
    host = batch.host.iteration_s + batch.host.row_s * sizes.requests
    draft = batch.draft_s if sizes.decoding else 0.0
    fixed = _FixedTimes(shared, head, tokens, shared + head + host + draft + added_s, least_s)
    if has_prompts:
        attention = _attention(times, batch, requests, ranks)
        hidden = hidden_time(times, batch.times, tokens, attention.decode, attention.prefill)
        steps = _DecodeSteps(attention.decode, hidden, 0.0, 1)
    else:
        attention = _Attention(0.0, 0.0)
        steps = _decode_steps(times, batch, requests, ranks, fixed, span)
    layers = shared + steps.decode + attention.prefill - steps.hidden
    late = max(0.0, least_s - layers - head)
    stall = stall_time(batch.pipeline, layers, head)
    first_s = fixed.total + steps.decode + attention.prefill - steps.hidden + stall + late
    return Step(steps.passes, first_s, steps.increase)


@lean_kernel
def _take_swaps(batch: Batch, ranks: Ranks) -> float:
    """Return the time of swaps that an iteration waits for [s]: of the rank with most. They are done then."""
    longest = 0.0
    for rank in range(batch.ranks):
        longest = max(longest, ranks.swap_s[rank])
        ranks.swap_s[rank] = 0.0
    return float(longest)


@lean_kernel
def _time_of_adapters(batch: Batch, ranks: Ranks) -> float:
    """Return the time that adapters add to an iteration [s]: of the rank with most."""
    most = 0
    for rank in range(batch.ranks):
        most = max(most, ranks.adapters[rank])
    return float(most * batch.adapter.each_s + batch.adapter.any_s) if most > 0 else 0.0


@lean_kernel
def seconds_of(steps: Step) -> float:
    """Return the time of all iterations of a step [s]."""
    return steps.passes * steps.first + steps.increase * (0.5 * steps.passes * (steps.passes - 1))


@lean_kernel
def last_of(steps: Step) -> float:
    """Return the time of the last iteration of a step [s]."""
    return steps.first + steps.increase * (steps.passes - 1)


@lean_kernel
def add_totals(batch: Batch, ranks: Ranks, steps: Step, has_prompts: bool, totals: Floats) -> None:
    """Add a step to the totals, before the requests of its ranks advance."""
    count, cached, growth = steps.passes, 0.0, 0.0
    for rank in range(batch.ranks):
        cached += used_tokens(batch, ranks, rank)
        growth += batch.per_pass * ranks.decoding[rank]
    # iteration i takes `i * increase` more than the first: sums over i, and over its square
    sum_i, sum_squares = 0.5 * count * (count - 1), count * (count - 1) * (2 * count - 1) / 6.0
    totals[CACHE] += cached * seconds_of(steps) + growth * (
        steps.first * sum_i + steps.increase * sum_squares
    )
    totals[ITERATIONS] += count
    totals[WITH_PREFILL] += 1 if has_prompts else 0


@lean_kernel
def _steepness(pipeline: Pipeline, layers: float, head: float) -> float:
    """Return the derivative of a pass's time by the time of its layers."""
    if pipeline.in_flight <= 1.0:
        return 1.0
    return stage_shares(pipeline, layers, head).layers


@lean_kernel
def _attention(times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks) -> _Attention:
    """Return the time of attention on the slowest rank."""
    slowest = _Attention(0.0, 0.0)
    for rank in range(batch.ranks):
        decoding, decode, prefill = ranks.decoding[rank], 0.0, 0.0
        if decoding and not ranks.pauses[rank]:
            mean = contexts(batch, ranks, rank) / decoding
            decode = decode_line(times, batch.times, float(decoding), mean).seconds
        for index in range(decoding, decoding + ranks.chunks[rank]):
            i = ranks.running[rank, index]
            before = float(requests.cached[i] + requests.computed[i])
            chunk = float(ranks.chunk[rank, index])
            prefill += prefill_time(times, batch.times, chunk, before, index == decoding)
        if decode + prefill > slowest.decode + slowest.prefill:
            slowest = _Attention(decode, prefill)
    return slowest


@inlined_kernel
def _decode_steps(
    times: PassTimes, batch: Batch, requests: Requests, ranks: Ranks, fixed: _FixedTimes, span: Span
) -> _DecodeSteps:
    """Return the next iterations whose times are an arithmetic series.

    No request starts or ends before the last iteration ends, the same rank is the slowest within a linear
    interval of the table, and the same stage is the bottleneck.
    """
    count, slowest, value, slope = span.most, 0, -1.0, 0.0
    for rank in range(batch.ranks):
        decoding = ranks.decoding[rank]
        if decoding == 0:
            continue
        count = min(count, ranks.next_end[rank] - ranks.passes[rank])
        total = contexts(batch, ranks, rank)
        if not batch.reserves and ranks.started[rank] > 1:
            room = batch.capacity - used_tokens(batch, ranks, rank) + TOLERANCE
            count = min(count, int(room / (batch.per_pass * decoding)) + 1)
        mean = total / decoding
        line = decode_line(times, batch.times, float(decoding), mean)
        count = min(count, int(min((line.end - mean) / batch.per_pass, 1e15)) + 1)
        if line.seconds > value:
            slowest, value, slope = rank, line.seconds, line.slope * batch.per_pass
    count = max(count, 1)
    if batch.ranks > 1:
        count = _steps_while_slowest(times, batch, ranks, slowest, count)
    hidden = hidden_line(times, batch.times, fixed.tokens, value, 0.0)
    if slope > 0.0:
        count = min(count, int(min((hidden.end - value) / slope, 1e15)) + 1)
    if hidden.slope != 0.0:
        slope -= slope * hidden.slope
    layers = fixed.shared + value - hidden.seconds
    steepness = _steepness(batch.pipeline, layers, fixed.head)
    while count > 1 and _steepness(batch.pipeline, layers + slope * (count - 1), fixed.head) != steepness:
        count = (count + 1) // 2 if count > 2 else 1
    late = max(0.0, fixed.least_s - layers - fixed.head)
    increase = slope * steepness
    if late > 0.0:  # launches take the time of all kernels, until attention takes longer
        if slope > 0.0:
            count = min(count, int(min(late / slope, 1e15)) + 1)
        increase -= slope
    first = fixed.total + value - hidden.seconds + stall_time(batch.pipeline, layers, fixed.head) + late
    arrival = min(next_arrival(batch, requests, ranks, span.now), span.until)
    return _DecodeSteps(
        value, hidden.seconds, increase, steps_before(arrival - span.now, first, increase, count)
    )


@lean_kernel
def _steps_while_slowest(times: PassTimes, batch: Batch, ranks: Ranks, slowest: int, count: int) -> int:
    """Return for how many of `count` iterations a rank stays the slowest: checked at both ends of lines."""
    while count > 1:
        most, last = -1.0, -1.0
        for rank in range(batch.ranks):
            decoding = ranks.decoding[rank]
            if decoding:
                mean = contexts(batch, ranks, rank) / decoding + batch.per_pass * (count - 1)
                seconds = decode_line(times, batch.times, float(decoding), mean).seconds
                most = max(most, seconds)
                last = seconds if rank == slowest else last
        if last >= most * (1.0 - 1e-13):  # equal ranks differ by rounding
            return count
        count = (count + 1) // 2 if count > 2 else 1
    return count


@lean_kernel
def steps_before(seconds: float, first: float, slope: float, count: int) -> int:
    """Return how many iterations, of `count`, start before a time is over [s], at least one.

    first: time of the first iteration [s]; slope: increase from each iteration to the next [s].
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
