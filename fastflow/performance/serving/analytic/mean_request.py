"""Times of a slot's iterations with mean numbers of requests: terms of the analytic form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import inlined_kernel, lean_kernel
from fastflow.performance.serving.overlap.hidden import hidden_time
from fastflow.performance.serving.passes.captured_graphs import Decoded, decoded
from fastflow.performance.serving.passes.step_time import (
    decode_line,
    head_time,
    prefill_time,
    shared_time,
    stall_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import Loads, cached_tokens, longest
from fastflow.performance.serving.simulator.scheduler import Batch

_EXACT = 16  # prompts whose iterations are counted exactly


class Parts(NamedTuple):
    """Times of the parts of an iteration [s]."""

    shared: float  # with the wait for the slowest pipeline stage
    head: float
    decode: float
    prefill: float
    host: float
    draft: float


class Request(NamedTuple):
    """A point's request of mean lengths."""

    prompt: float  # computed tokens of its prompt
    cached: float  # tokens of its prompt in the cache, once computed
    context: float  # mean tokens in the cache while it decodes
    reserved: float  # mean tokens of running requests at their ends: long ones run for longer
    variance: float  # of reserved tokens, over the square of their mean
    half_range: float  # of lengths, over their mean
    largest: float  # tokens of the longest request
    passes: float  # in which it decodes
    most: float  # passes of the longest request
    gaps: float  # tokens of the answer after the first
    short: float  # factor on shared waits in the mean time per token, since short answers count more
    attention_s: float  # attention of its prompt, in the fewest chunks [s]
    first_chunk_s: float  # additional time of the first such chunk in an iteration [s]


class Decoding(NamedTuple):
    """Requests of a rank that decode together."""

    requests: float
    attention_s: float  # of an iteration, for the core of their attention [s]
    pass_s: float  # of an iteration without prompts [s]


NONE_DECODE = Decoding(0.0, 0.0, 0.0)


class Group(NamedTuple):
    """Prompts that are computed together."""

    wait: float  # from the first iteration of the group until a prompt starts, mean [s]
    completion: float  # until a prompt ends, mean [s]
    total: float  # time that they add to iterations [s]
    passes: float  # iterations with prompts
    parts: Parts  # sums over these iterations


@lean_kernel
def total_time(parts: Parts) -> float:
    """Return the time of an iteration [s]."""
    return parts.shared + parts.head + parts.decode + parts.prefill + parts.host + parts.draft


@lean_kernel
def add_scaled(parts: Parts, other: Parts, factor: float) -> Parts:
    """Return the sum of parts and a factor times others."""
    return Parts(
        parts.shared + factor * other.shared,
        parts.head + factor * other.head,
        parts.decode + factor * other.decode,
        parts.prefill + factor * other.prefill,
        parts.host + factor * other.host,
        parts.draft + factor * other.draft,
    )


@lean_kernel
def request_of(times: PassTimes, batch: Batch, loads: Loads, point: int) -> Request:
    """Return a point's mean request."""
    isl, osl, relative_range = loads.isl[point], loads.osl[point], loads.relative_range[point]
    cached = cached_tokens(isl, loads.prefix[point])
    gaps = max(0.0, osl - 1.0)
    passes = gaps / batch.per_pass
    if relative_range == 0.0:
        passes = np.ceil(passes - 1e-9)
    elif batch.per_pass > 1.0 and gaps > 0.0:
        passes += 0.5  # the last pass makes more tokens than needed
    top = longest(osl, relative_range)
    low = (1.0 - relative_range) * top
    squared = (top * top + top * low + low * low) / 3.0
    cubed = 0.25 * (top + low) * (top * top + low * low)
    variance = max(0.0, cubed / osl - (squared / osl) ** 2)
    variance += ((top - low) * isl / osl) ** 2 / 12.0
    least, short = max(1.0, low - 1.0), 1.0
    if top - 1.0 > least * (1.0 + 1e-9):
        short = max(1.0, gaps * np.log((top - 1.0) / least) / (top - 1.0 - least))
    prompt = isl - cached
    room = float(batch.budget) if batch.chunks else prompt
    done, attention = 0.0, 0.0
    chunks = np.ceil(prompt / room)
    if chunks > _EXACT:  # its mean over the prompt
        middle = prefill_time(times, batch.times, room, cached + 0.5 * (prompt - room), True)
        attention = middle * prompt / room
    else:
        while done < prompt:
            chunk = min(room, prompt - done)
            attention += prefill_time(times, batch.times, chunk, cached + done, chunks > 1)
            done += chunk
    first = 0.0
    if chunks == 1:
        first = prefill_time(times, batch.times, prompt, float(cached), True) - attention
    return Request(
        prompt=prompt,
        cached=isl,
        context=isl + 0.5 * squared / osl + 0.5,
        reserved=isl + squared / osl,
        variance=variance / (isl + squared / osl) ** 2,
        half_range=0.5 * (top - low) / osl,
        largest=longest(isl, relative_range) + top,
        passes=passes,
        most=passes * top / osl,
        gaps=gaps,
        short=short,
        attention_s=attention,
        first_chunk_s=first,
    )


@inlined_kernel
def decoding_of(times: PassTimes, batch: Batch, request: Request, requests: float) -> Decoding:
    """Return some requests of every rank that decode together."""
    if requests <= 0.0:
        return NONE_DECODE
    parts = decode_parts(times, batch, request, requests)
    return Decoding(requests, parts.decode, total_time(parts))


@inlined_kernel
def decode_parts(times: PassTimes, batch: Batch, request: Request, requests: float) -> Parts:
    """Return the times of an iteration in which some requests of every rank decode."""
    attention_s = decode_line(times, batch.times, requests, request.context).seconds
    decoding = Decoding(requests, attention_s, 0.0)
    return parts_of_ranks(times, batch, request, decoding, 0.0, 0.0, 1.0)


@inlined_kernel
def parts_of_ranks(
    times: PassTimes,
    batch: Batch,
    request: Request,
    decoding: Decoding,
    prompts: float,
    tokens: float,
    share: float,
) -> Parts:
    """Return the times of an iteration with some decoding requests and prompts of every rank.

    prompts, tokens: of the fullest rank; share: those of all ranks, mean, over these.
    """
    requests, decode = decoding.requests, decoding.attention_s
    first, decodes = 0.0, Decoded(requests, requests, 0.0)
    if tokens > 0.0:
        first, decodes = request.first_chunk_s, Decoded(requests, requests, batch.host.eager_s)
    elif requests > 0.0:
        decodes = decoded(batch.graph, batch.ranks, requests, requests)
    rows, mean = decodes.requests * batch.queries, decodes.mean * batch.queries
    shared = shared_time(times, batch.times, rows + tokens, mean + tokens * share)
    head = head_time(times, batch.times, rows + prompts)
    prefill = max(0.0, request.attention_s * tokens / request.prompt + first)
    shared -= hidden_time(times, batch.times, rows + tokens, decode, prefill)
    late = max(0.0, decodes.least_s - shared - head - decode - prefill)
    return Parts(
        shared=shared + stall_time(batch.pipeline, shared + decode + prefill, head),
        head=head,
        decode=decode,
        prefill=prefill,
        host=batch.host.iteration_s + batch.host.row_s * (requests + prompts) + late,
        draft=batch.draft_s if requests > 0.0 else 0.0,
    )


@lean_kernel
def room_of(batch: Batch, request: Request, decoding: float) -> float:
    """Return the tokens of prompts that an iteration takes on a rank, with some decoding requests."""
    room = float(batch.budget)
    if batch.mixes:
        room = max(1.0, room - decoding * batch.queries)
    if not batch.chunks:
        fit = np.floor(room / request.prompt)
        if request.half_range > 0.0:  # as in a renewal process over a long interval
            fit = room / request.prompt - 0.5 * (1.0 - request.half_range**2 / 3.0)
        return float(max(1.0, fit) * request.prompt)
    return room


@lean_kernel
def mixed_with_prompts(batch: Batch, decoding: Decoding) -> Decoding:
    """Return the requests that decode in iterations with prompts: none where prompts have their own."""
    return decoding if batch.mixes else NONE_DECODE


@lean_kernel
def group_of(times: PassTimes, batch: Batch, request: Request, decoding: Decoding, prompts: float) -> Group:
    """Return the times of prompts of every rank that are computed together, while some requests decode."""
    return group_of_ranks(times, batch, request, decoding, prompts, 1.0)


@inlined_kernel
def group_of_ranks(
    times: PassTimes, batch: Batch, request: Request, decoding: Decoding, prompts: float, share: float
) -> Group:
    """Return the times of prompts that are computed together, while some requests of every rank decode.

    prompts: of the fullest rank; share: those of all ranks, mean, over these. A fractional number of prompts
    is interpolated between the integers around it.
    """
    low = np.floor(prompts)
    group = _integer_group(times, batch, request, decoding, low, share)
    if low == prompts or low >= _EXACT:
        return group
    next_group, part = _integer_group(times, batch, request, decoding, low + 1.0, share), prompts - low
    return Group(
        group.wait + part * (next_group.wait - group.wait),
        group.completion + part * (next_group.completion - group.completion),
        group.total + part * (next_group.total - group.total),
        group.passes + part * (next_group.passes - group.passes),
        add_scaled(group.parts, add_scaled(next_group.parts, group.parts, -1.0), part),
    )


@inlined_kernel
def _integer_group(
    times: PassTimes, batch: Batch, request: Request, decoding: Decoding, prompts: float, share: float
) -> Group:
    mixed = mixed_with_prompts(batch, decoding)
    room = room_of(batch, request, mixed.requests)
    tokens = prompts * request.prompt
    passes = _mean_ceiling(tokens / room, request.half_range * request.prompt / room * np.sqrt(prompts))
    last_tokens = tokens - (passes - 1.0) * room
    last_prompts = max(1.0, last_tokens / request.prompt)
    last = parts_of_ranks(times, batch, request, mixed, last_prompts, last_tokens, share)
    full_s, last_s, parts = 0.0, total_time(last), last
    if passes > 1.0:
        full = parts_of_ranks(times, batch, request, mixed, max(1.0, room / request.prompt), room, share)
        full_s, parts = total_time(full), add_scaled(last, full, passes - 1.0)
    in_last = min(1.0, max(1.0, np.floor(last_tokens / request.prompt)) / prompts)
    ends = min(passes, _mean_end(prompts, request.prompt / room, request.half_range))
    size = max(1.0, request.prompt / room)
    return Group(
        wait=max(0.0, ends - size) * full_s,
        completion=(ends - in_last) * full_s + in_last * last_s,
        total=(passes - 1.0) * full_s + last_s - passes * mixed.pass_s,
        passes=passes,
        parts=parts,
    )


@lean_kernel
def _mean_ceiling(value: float, half_range: float) -> float:
    """Return the mean ceiling of numbers that are uniform in a range around a value; at least 1."""
    if half_range < 1e-6:
        return float(max(1.0, np.ceil(value - 1e-9)))
    low, high = max(0.0, value - half_range), value + half_range
    return float(max(1.0, (_ceilings(high) - _ceilings(low)) / (high - low)))


@lean_kernel
def _ceilings(value: float) -> float:
    """Return the integral of the ceiling, from 0."""
    floor = np.floor(value)
    return float((floor + 1.0) * (0.5 * floor + value - floor))


@lean_kernel
def _mean_end(prompts: float, size: float, half_range: float) -> float:
    """Return the mean number of the iteration that ends a prompt; size: of a prompt, in iterations."""
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
