"""What the parts of an iteration take, interpolated in the tables of passes.

An iteration is one pass of the model over the tokens of every request that takes part: the next ones of those
that decode, and chunks of prompts. Attention ranks advance together. What they share is taken at the most
tokens of any rank, and attention at the slowest one.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.passes.interpolate import across, along, piece_of, share_of
from fastflow.performance.serving.passes.table import PassTimes


class Hosts(NamedTuple):
    """What the hosts of servers add to iterations [s]; shape (points,)."""

    iteration_s: Floats  # to every one
    row_s: Floats  # for every request in it, sampling and turning tokens to text


class Pipelines(NamedTuple):
    """How the stages of servers set the pace; shape (points,)."""

    in_flight: Floats  # batches in flight on average, at most as many as slots
    widest: Floats  # share of the time of all layers that the slowest stage but the last takes
    last: Floats  # the same of the last stage, which takes the head's time too


class Servers(NamedTuple):
    """How servers make iterations; shape (points,).

    A server with pipeline stages has as many batches in flight, its slots. Each of them takes whole passes,
    and goes on by itself; a pass takes at least what the slowest stage takes of all batches in flight. The
    cache and the most requests are shared out evenly over slots.
    """

    times: Ints  # row of the tables of passes
    ranks: Ints  # attention ranks that advance together, each with requests of its own
    slots: Ints  # pipeline stages: batches in flight, 1 without
    host: Hosts
    budget: Ints  # most tokens of an iteration on a rank
    most: Ints  # most requests in flight on a rank
    capacity: Ints  # tokens that the cache of a rank holds
    mixes: Bools  # prompts and decoding requests share iterations; else prompts go first, alone
    chunks: Bools  # prompts are cut where an iteration is full; else one that is too long goes alone
    reserves: Bools  # a request starts when all its tokens will fit the cache; else when its prompt fits
    per_pass: Floats  # tokens that a request gains in a pass, at least 1: more with speculation
    queries: Ints  # tokens of a decoding request in a pass, at least 1: those that are verified
    draft_s: Floats  # what proposing them adds to an iteration that decodes [s]
    pipeline: Pipelines


class Host(NamedTuple):
    """The hosts' numbers of one point."""

    iteration_s: float
    row_s: float


class Pipeline(NamedTuple):
    """The pipelines' numbers of one point."""

    in_flight: float
    widest: float
    last: float


class StageShares(NamedTuple):
    """Shares of the time of layers and of the head that set a pass's time."""

    layers: float
    head: float


class DecodeLine(NamedTuple):
    """What decoding requests' attention takes, along the mean context."""

    seconds: float
    slope: float  # [s a token]
    end: float  # mean context up to which that slope holds [tokens]


@lean_kernel
def stage_shares(pipeline: Pipeline, layers: float, head: float) -> StageShares:
    """Return which shares of the time of layers and of the head set a pass's time.

    Of all stages one after the other, of the slowest stage but the last, or of the last, whichever takes the
    pass of a batch longest where so many are in flight.
    """
    in_flight, widest, last = pipeline.in_flight, pipeline.widest, pipeline.last
    shares, most = StageShares(1.0, 1.0), layers + head
    if in_flight * widest * layers > most:
        shares, most = StageShares(in_flight * widest, 0.0), in_flight * widest * layers
    if in_flight * (last * layers + head) > most:
        shares = StageShares(in_flight * last, in_flight)
    return shares


@lean_kernel
def stall_time(pipeline: Pipeline, layers: float, head: float) -> float:
    """Return how long the slowest stage of a pipeline makes a batch wait in a pass [s].

    layers, head: what all layers, attention included, and the head take of the pass [s].
    """
    if pipeline.in_flight <= 1.0:
        return 0.0
    shares = stage_shares(pipeline, layers, head)
    return max(0.0, (shares.layers - 1.0) * layers + (shares.head - 1.0) * head)


@lean_kernel
def shared_time(times: PassTimes, server: int, tokens: float) -> float:
    """Return what all layers but attention's core take [s]."""
    if tokens <= 0.0:
        return 0.0
    piece = piece_of(times.tokens, tokens)
    return along(times.shared[server], piece, share_of(times.tokens, piece, tokens))


@lean_kernel
def head_time(times: PassTimes, server: int, rows: float) -> float:
    """Return what the logits of so many rows take [s]."""
    if rows <= 0.0:
        return 0.0
    piece = piece_of(times.tokens, rows)
    return along(times.head[server], piece, share_of(times.tokens, piece, rows))


@lean_kernel
def decode_line(times: PassTimes, server: int, requests: float, context: float) -> DecodeLine:
    """Return what attention takes of so many decoding requests of a mean context."""
    if requests <= 0.0:
        return DecodeLine(0.0, 0.0, 1e300)
    row, column = piece_of(times.requests, requests), piece_of(times.context, context)
    share = share_of(times.requests, row, requests)
    table = times.decode[server]
    here = across(table, row, share, column, share_of(times.context, column, context))
    if times.context.size == 1:
        return DecodeLine(here, 0.0, 1e300)
    start, end = across(table, row, share, column, 0.0), across(table, row, share, column, 1.0)
    slope = (end - start) / (times.context[column + 1] - times.context[column])
    is_last = column + 2 == times.context.size
    return DecodeLine(here, slope, 1e300 if is_last else float(times.context[column + 1]))


@lean_kernel
def prefill_time(times: PassTimes, server: int, chunk: float, before: float, is_first: bool) -> float:
    """Return what attention takes of a chunk of a prompt [s]; is_first: in its iteration."""
    if chunk <= 0.0:
        return 0.0
    row, column = piece_of(times.chunk, chunk), piece_of(times.before, before)
    of_chunk, of_before = share_of(times.chunk, row, chunk), share_of(times.before, column, before)
    table = times.prefill[server] if is_first else times.prefill_more[server]
    return across(table, row, of_chunk, column, of_before)
