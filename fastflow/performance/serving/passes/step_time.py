"""What the parts of an iteration take, interpolated in the tables of passes.

An iteration is one pass of the model over the tokens of every request that takes part: the next ones of those
that decode, and chunks of prompts. Attention ranks advance together. What they share is taken at the most
tokens of any rank, and attention at the slowest one.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.passes.table import PassTimes


class Servers(NamedTuple):
    """How servers make iterations; shape (points,).

    A server with pipeline stages has as many batches in flight, its slots. Each of them takes whole passes,
    and goes on by itself; a pass takes at least what the slowest stage takes of all batches in flight. The
    cache and the most requests are shared out evenly over slots.
    """

    times: Ints  # row of the tables of passes
    ranks: Ints  # attention ranks that advance together, each with requests of its own
    slots: Ints  # pipeline stages: batches in flight, 1 without
    iteration_s: Floats  # what the host adds to every iteration [s]
    row_s: Floats  # and for every request in it, sampling and turning tokens to text [s]
    budget: Ints  # most tokens of an iteration on a rank
    most: Ints  # most requests in flight on a rank
    capacity: Ints  # tokens that the cache of a rank holds
    mixes: Bools  # prompts and decoding requests share iterations; else prompts go first, alone
    chunks: Bools  # prompts are cut where an iteration is full; else one that is too long goes alone
    reserves: Bools  # a request starts when all its tokens will fit the cache; else when its prompt fits
    per_pass: Floats  # tokens that a request gains in a pass, at least 1: more with speculation
    queries: Ints  # tokens of a decoding request in a pass, at least 1: those that are verified
    draft_s: Floats  # what proposing them adds to an iteration that decodes [s]
    in_flight: Floats  # batches in flight on average, at most as many as slots
    widest: Floats  # share of the time of all layers that the slowest stage but the last takes
    last: Floats  # the same of the last stage, which takes the head's time too


@lean_kernel
def piece_of(axis: Ints, value: float) -> int:
    """Return the entry of an axis at which the straight piece around a value starts."""
    low, high = 0, axis.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def share_of(axis: Ints, piece: int, value: float) -> float:
    """Return how far a value is along a piece: 0 at its start, 1 at its end, more beyond the last one."""
    if axis.size == 1:
        return 0.0
    return float((value - axis[piece]) / (axis[piece + 1] - axis[piece]))


@lean_kernel
def _along(table: Floats, piece: int, share: float) -> float:
    """Interpolate in a row of a table."""
    if table.size == 1:
        return float(table[0])
    start, end = table[piece], table[piece + 1]
    return float(start + share * (end - start))


@lean_kernel
def _across(table: Floats, row: int, along_rows: float, piece: int, share: float) -> float:
    """Interpolate in a table of two axes."""
    one = _along(table[row], piece, share)
    if table.shape[0] == 1:
        return one
    return one + along_rows * (_along(table[row + 1], piece, share) - one)


@lean_kernel
def stage_share(
    in_flight: float, widest: float, last: float, layers: float, head: float
) -> tuple[float, float]:
    """Return which shares of the time of layers and of the head set a pass's time.

    Of all stages one after the other, of the slowest stage but the last, or of the last, whichever takes the
    pass of a batch longest where so many are in flight.
    """
    shares, most = (1.0, 1.0), layers + head
    if in_flight * widest * layers > most:
        shares, most = (in_flight * widest, 0.0), in_flight * widest * layers
    if in_flight * (last * layers + head) > most:
        shares = (in_flight * last, in_flight)
    return shares


@lean_kernel
def stall_time(in_flight: float, widest: float, last: float, layers: float, head: float) -> float:
    """Return how long the slowest stage of a pipeline makes a batch wait in a pass [s].

    layers, head: what all layers, attention included, and the head take of the pass [s].
    """
    if in_flight <= 1.0:
        return 0.0
    of_layers, of_head = stage_share(in_flight, widest, last, layers, head)
    return max(0.0, (of_layers - 1.0) * layers + (of_head - 1.0) * head)


@lean_kernel
def shared_time(times: PassTimes, server: int, tokens: float) -> float:
    """Return what all layers but attention's core take [s]."""
    if tokens <= 0.0:
        return 0.0
    piece = piece_of(times.tokens, tokens)
    return _along(times.shared[server], piece, share_of(times.tokens, piece, tokens))


@lean_kernel
def head_time(times: PassTimes, server: int, rows: float) -> float:
    """Return what the logits of so many rows take [s]."""
    if rows <= 0.0:
        return 0.0
    piece = piece_of(times.tokens, rows)
    return _along(times.head[server], piece, share_of(times.tokens, piece, rows))


@lean_kernel
def decode_time(times: PassTimes, server: int, requests: float, context: float) -> float:
    """Return what attention takes of so many decoding requests of a mean context [s]."""
    return decode_line(times, server, requests, context)[0]


@lean_kernel
def decode_line(times: PassTimes, server: int, requests: float, context: float) -> tuple[float, float, float]:
    """Return what decoding requests' attention takes [s], its slope [s a token], and how far it is straight.

    The last is the mean context up to which that slope holds.
    """
    if requests <= 0.0:
        return 0.0, 0.0, 1e300
    row, column = piece_of(times.requests, requests), piece_of(times.context, context)
    along = share_of(times.requests, row, requests)
    table = times.decode[server]
    here = _across(table, row, along, column, share_of(times.context, column, context))
    if times.context.size == 1:
        return here, 0.0, 1e300
    start, end = _across(table, row, along, column, 0.0), _across(table, row, along, column, 1.0)
    slope = (end - start) / (times.context[column + 1] - times.context[column])
    is_last = column + 2 == times.context.size
    return here, slope, 1e300 if is_last else float(times.context[column + 1])


@lean_kernel
def prefill_time(times: PassTimes, server: int, chunk: float, before: float, is_first: bool) -> float:
    """Return what attention takes of a chunk of a prompt [s]; is_first: in its iteration."""
    if chunk <= 0.0:
        return 0.0
    row, column = piece_of(times.chunk, chunk), piece_of(times.before, before)
    along, share = share_of(times.chunk, row, chunk), share_of(times.before, column, before)
    table = times.prefill[server] if is_first else times.prefill_more[server]
    return _across(table, row, along, column, share)
