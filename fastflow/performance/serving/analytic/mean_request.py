"""What a slot's iterations take with numbers of requests that are means: the terms of the fast form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.passes.step_time import (
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stall_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import Loads, found, longest
from fastflow.performance.serving.simulator.scheduler import Batch

_EXACT = 16  # prompts whose iterations are counted one by one


class Parts(NamedTuple):
    """What an iteration takes [s]."""

    shared: float  # with what a batch waits for the slowest stage
    head: float
    decode: float
    prefill: float
    host: float
    draft: float


class Request(NamedTuple):
    """A request of mean lengths; numbers of one point."""

    prompt: float  # tokens of its prompt that are computed
    held: float  # tokens of it in the cache
    context: float  # mean tokens in the cache while it decodes
    reserved: float  # mean tokens at their ends of those that run: long ones run for longer
    variance: float  # of these, in squares of their mean
    half_range: float  # of prompts' lengths, in their mean
    largest: float  # tokens of the longest request
    passes: float  # in which it decodes
    most: float  # passes of the longest one
    gaps: float  # tokens of the answer after the first
    short: float  # by how much more a wait that all share adds to a token's time, since short answers count
    whole_s: float  # attention of its prompt, in as few chunks as there can be [s]
    first_s: float  # what the first such chunk in an iteration takes more [s]


class Group(NamedTuple):
    """Prompts that are there together."""

    wait: float  # from the first iteration with them until a prompt of them starts, mean [s]
    completion: float  # and until it ends [s]
    total: float  # what all of them add to the time of iterations [s]
    passes: float  # iterations with them
    parts: Parts  # of these iterations


@lean_kernel
def total_of(parts: Parts) -> float:
    """Return what an iteration takes [s]."""
    return parts.shared + parts.head + parts.decode + parts.prefill + parts.host + parts.draft


@lean_kernel
def plus(one: Parts, other: Parts, times: float) -> Parts:
    """Return the sum of one and so many times the other."""
    return Parts(
        one.shared + times * other.shared,
        one.head + times * other.head,
        one.decode + times * other.decode,
        one.prefill + times * other.prefill,
        one.host + times * other.host,
        one.draft + times * other.draft,
    )


@lean_kernel
def request_of(times: PassTimes, batch: Batch, loads: Loads, point: int) -> Request:
    """Return a point's mean request."""
    isl, osl, spread = loads.isl[point], loads.osl[point], loads.spread[point]
    known = found(isl, loads.prefix[point])
    gaps = max(0.0, osl - 1.0)
    passes = gaps / batch.per_pass
    if spread == 0.0:
        passes = np.ceil(passes - 1e-9)
    elif batch.per_pass > 1.0 and gaps > 0.0:
        passes += 0.5  # the last pass makes more than is asked for
    top = longest(osl, spread)
    low = (1.0 - spread) * top
    squared = (top * top + top * low + low * low) / 3.0
    cubed = 0.25 * (top + low) * (top * top + low * low)
    variance = max(0.0, cubed / osl - (squared / osl) ** 2)
    variance += ((top - low) * isl / osl) ** 2 / 12.0
    least, short = max(1.0, low - 1.0), 1.0
    if top - 1.0 > least * (1.0 + 1e-9):
        short = max(1.0, gaps * np.log((top - 1.0) / least) / (top - 1.0 - least))
    prompt = isl - known
    room = float(batch.budget) if batch.chunks else prompt
    done, attention = 0.0, 0.0
    chunks = np.ceil(prompt / room)
    if chunks > _EXACT:  # the mean over its length
        middle = prefill_time(times, batch.times, room, known + 0.5 * (prompt - room), True)
        attention = middle * prompt / room
    else:
        while done < prompt:
            chunk = min(room, prompt - done)
            attention += prefill_time(times, batch.times, chunk, known + done, chunks > 1)
            done += chunk
    first = 0.0
    if chunks == 1:
        first = prefill_time(times, batch.times, prompt, float(known), True) - attention
    return Request(
        prompt=prompt,
        held=isl,
        context=isl + 0.5 * squared / osl + 0.5,
        reserved=isl + squared / osl,
        variance=variance / (isl + squared / osl) ** 2,
        half_range=0.5 * (top - low) / osl,
        largest=longest(isl, spread) + top,
        passes=passes,
        most=passes * top / osl,
        gaps=gaps,
        short=short,
        whole_s=attention,
        first_s=first,
    )


@lean_kernel
def pass_parts(
    times: PassTimes, batch: Batch, request: Request, decoding: float, prompts: float, tokens: float
) -> Parts:
    """Return what an iteration takes in which so many requests of a rank decode, beside tokens of prompts."""
    rows = decoding * batch.queries
    decode = decode_line(times, batch.times, decoding, request.context).seconds if decoding > 0.0 else 0.0
    first = request.first_s if tokens > 0.0 else 0.0
    shared, head = (
        shared_time(times, batch.times, rows + tokens),
        head_time(times, batch.times, rows + prompts),
    )
    prefill = max(0.0, request.whole_s * tokens / request.prompt + first)
    return Parts(
        shared=shared + stall_time(batch.pipeline, shared + decode + prefill, head),
        head=head,
        decode=decode,
        prefill=prefill,
        host=batch.host.iteration_s + batch.host.row_s * (decoding + prompts),
        draft=batch.draft_s if decoding > 0.0 else 0.0,
    )


@lean_kernel
def room_of(batch: Batch, request: Request, decoding: float) -> float:
    """Return how many tokens of prompts an iteration takes on a rank beside requests that decode."""
    room = float(batch.budget)
    if batch.mixes:
        room = max(1.0, room - decoding * batch.queries)
    if not batch.chunks:
        whole = np.floor(room / request.prompt)
        if request.half_range > 0.0:  # as many as a renewal process has in a long interval
            whole = room / request.prompt - 0.5 * (1.0 - request.half_range**2 / 3.0)
        return float(max(1.0, whole) * request.prompt)
    return room


@lean_kernel
def group_of(times: PassTimes, batch: Batch, request: Request, decoding: float, prompts: float) -> Group:
    """Return what prompts of a rank that are there together take; decoding: requests of it beside them.

    Where their number is a mean, it is now the whole number below and now the one above.
    """
    low = np.floor(prompts)
    group = _whole_group(times, batch, request, decoding, low)
    if low == prompts or low >= _EXACT:
        return group
    more, share = _whole_group(times, batch, request, decoding, low + 1.0), prompts - low
    return Group(
        group.wait + share * (more.wait - group.wait),
        group.completion + share * (more.completion - group.completion),
        group.total + share * (more.total - group.total),
        group.passes + share * (more.passes - group.passes),
        plus(group.parts, plus(more.parts, group.parts, -1.0), share),
    )


@lean_kernel
def _whole_group(times: PassTimes, batch: Batch, request: Request, decoding: float, prompts: float) -> Group:
    beside = decoding if batch.mixes else 0.0
    room = room_of(batch, request, beside)
    alone = total_of(pass_parts(times, batch, request, beside, 0.0, 0.0)) if beside > 0.0 else 0.0
    tokens = prompts * request.prompt
    passes = _mean_ceiling(tokens / room, request.half_range * request.prompt / room * np.sqrt(prompts))
    rest = tokens - (passes - 1.0) * room
    last = pass_parts(times, batch, request, beside, max(1.0, rest / request.prompt), rest)
    full_s, last_s, parts = 0.0, total_of(last), last
    if passes > 1.0:
        full = pass_parts(times, batch, request, beside, max(1.0, room / request.prompt), room)
        full_s, parts = total_of(full), plus(last, full, passes - 1.0)
    in_last = min(1.0, max(1.0, np.floor(rest / request.prompt)) / prompts)
    ends = min(passes, _mean_end(prompts, request.prompt / room, request.half_range))
    size = max(1.0, request.prompt / room)
    return Group(
        wait=max(0.0, ends - size) * full_s,
        completion=(ends - in_last) * full_s + in_last * last_s,
        total=(passes - 1.0) * full_s + last_s - passes * alone,
        passes=passes,
        parts=parts,
    )


@lean_kernel
def _mean_ceiling(value: float, half_range: float) -> float:
    """Return the mean of numbers rounded up that are even over a range around a value; at least 1."""
    if half_range < 1e-6:
        return float(max(1.0, np.ceil(value - 1e-9)))
    low, high = max(0.0, value - half_range), value + half_range
    return float(max(1.0, (_ceilings(high) - _ceilings(low)) / (high - low)))


@lean_kernel
def _ceilings(value: float) -> float:
    """Return the integral of numbers rounded up, from 0."""
    whole = np.floor(value)
    return float((whole + 1.0) * (0.5 * whole + value - whole))


@lean_kernel
def _mean_end(prompts: float, size: float, half_range: float) -> float:
    """Return the number of the iteration that ends a prompt, mean; size: of a prompt, in iterations."""
    if prompts > _EXACT and size * _EXACT < 1.0:
        return _ceilings(prompts * size) / (prompts * size)
    count = int(min(max(1.0, np.floor(prompts + 0.5)), _EXACT))
    total, over = 0.0, 0.0
    for i in range(count):
        end = _mean_ceiling((i + 1) * size, half_range * size * np.sqrt(i + 1.0))
        total += end
        over += end - (i + 1) * size
    if count < _EXACT:
        return total / count
    return 0.5 * (prompts + 1.0) * size + over / count
