"""Times of the parts of an iteration, interpolated in the tables of passes.

An iteration is a pass of the model over tokens of all requests in the batch: the next tokens of decoding
requests, and chunks of prompts. Attention ranks advance together. Shared layers take the time of the rank
with most tokens, and attention that of the slowest rank.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.passes.captured_graphs import Graphs
from fastflow.performance.serving.passes.interpolate import (
    interpolate_1d,
    interpolate_2d,
    interval_of,
    share_of,
)
from fastflow.performance.serving.passes.table import PassTimes


class Hosts(NamedTuple):
    """Times that the hosts of servers add to iterations [s]; shape (points,)."""

    iteration_s: Floats  # to every iteration
    row_s: Floats  # for every request in it: sampling and detokenization
    eager_s: Floats  # least time of an iteration with prompts: its kernels are launched one by one
    first_use_s: Floats  # of the first iteration that prompts fill, in addition


class Intakes(NamedTuple):
    """How requests get into iterations (`simulator.intake`); shape (points,)."""

    ahead: Bools  # an iteration is composed while the one before runs
    interval: Ints  # iterations that decode between looks for new requests, at least 1
    balances: Bools  # attention ranks start prompts together
    timeout: Ints  # most iterations for which they wait for each other
    wait_iterations: Ints  # most iterations for which prompts wait for others
    wait_tokens: Floats  # prompts' tokens that end this wait
    round_trip_s: Floats  # from the end of a request until the client's next one is with the server [s]
    encoders: Ints  # devices that encode images before requests come to the server; 0: none (`encoder_pool`)
    encode_s: Floats  # of the images of a request on one of them [s]
    send_s: Floats  # to send a request's embeddings to the server [s]


class Swaps(NamedTuple):
    """Memory of hosts for the caches of preempted requests; shape (points,)."""

    tokens: Ints  # of a rank; 0: none, preempted requests are computed anew
    token_s: Floats  # to write a token of a rank, or to read it [s]


class Adapters(NamedTuple):
    """Time that adapters, or models that share servers, add to an iteration of requests; shape (points,)."""

    each_s: Floats  # for each of them that a rank uses [s]
    any_s: Floats  # where it uses any; below 0 where the first one adds nothing [s]


class Pipelines(NamedTuple):
    """Pipeline stages of servers, for the time of the bottleneck stage; shape (points,)."""

    in_flight: Floats  # batches in flight on average, at most as many as slots
    widest: Floats  # largest share of all layers' time in a stage but the last
    last: Floats  # share in the last stage, which has the head too


class Servers(NamedTuple):
    """Servers and their batching; shape (points,).

    A server with pipeline stages has as many batches in flight, its slots. Each slot runs its own passes; a
    pass takes at least the time of the slowest stage for all batches in flight. The cache and the most
    requests are divided evenly among slots.
    """

    times: Ints  # row of the tables of passes
    ranks: Ints  # attention ranks that advance together, each with its own requests
    slots: Ints  # pipeline stages: batches in flight, 1 without
    host: Hosts
    intake: Intakes
    graph: Graphs
    budget: Ints  # most tokens of an iteration on a rank
    most: Ints  # most requests in flight on a rank
    capacity: Ints  # tokens that the cache of a rank holds
    mixes: Bools  # prompts and decoding requests share iterations; else iterations of prompts go first
    chunks: Bools  # chunked prefill; else a prompt beyond the budget has an iteration alone
    reserves: Bools  # a request starts when all its tokens fit the cache; else when its prompt fits
    per_pass: Floats  # tokens of a request accepted in a pass, at least 1: more with speculation
    queries: Ints  # tokens of a decoding request in a pass, at least 1: those that are verified
    draft_s: Floats  # time of proposing draft tokens in an iteration that decodes [s]
    swap: Swaps
    adapter: Adapters
    pipeline: Pipelines


class Host(NamedTuple):
    """Times of the host of one point."""

    iteration_s: float
    row_s: float
    eager_s: float
    first_use_s: float


class Swap(NamedTuple):
    """Memory of the host of one point for the caches of preempted requests."""

    tokens: int
    token_s: float


class Adapter(NamedTuple):
    """Time that adapters add to an iteration of one point."""

    each_s: float
    any_s: float


class Intake(NamedTuple):
    """The intake of one point."""

    ahead: bool
    interval: int
    balances: bool
    timeout: int
    wait_iterations: int
    wait_tokens: float
    round_trip_s: float
    encoders: int
    encode_s: float
    send_s: float


class Pipeline(NamedTuple):
    """The pipeline stages of one point."""

    in_flight: float
    widest: float
    last: float


class StageShares(NamedTuple):
    """Shares of the time of layers and of the head that add up to a pass's time."""

    layers: float
    head: float


class DecodeLine(NamedTuple):
    """Time of decoding requests' attention, a line along the mean context."""

    seconds: float
    slope: float  # [s a token]
    end: float  # mean context up to which the slope is valid [tokens]


@lean_kernel
def stage_shares(pipeline: Pipeline, layers: float, head: float) -> StageShares:
    """Return which shares of the time of layers and of the head add up to a pass's time.

    The longest of: all stages one after the other, the slowest stage but the last for all batches in flight,
    and the last stage for all of them.
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
    """Return how long a batch waits for the slowest pipeline stage in a pass [s].

    layers, head: times of all layers, attention included, and of the head in the pass [s].
    """
    if pipeline.in_flight <= 1.0:
        return 0.0
    shares = stage_shares(pipeline, layers, head)
    return max(0.0, (shares.layers - 1.0) * layers + (shares.head - 1.0) * head)


@lean_kernel
def shared_time(times: PassTimes, server: int, tokens: float, mean: float) -> float:
    """Return the time of all layers but the core of attention [s].

    tokens: of the rank with most; mean: of all ranks, whose tokens go to the experts of all.
    """
    if tokens <= 0.0:
        return 0.0
    interval = interval_of(times.tokens, tokens)
    share = share_of(times.tokens, interval, tokens)
    seconds = interpolate_1d(times.shared[server], interval, share)
    if mean == tokens:
        return seconds
    experts = interpolate_1d(times.experts[server], interval, share)
    interval = interval_of(times.tokens, mean)
    return (
        seconds
        - experts
        + interpolate_1d(times.experts[server], interval, share_of(times.tokens, interval, mean))
    )


@lean_kernel
def head_time(times: PassTimes, server: int, rows: float) -> float:
    """Return the time of the logits of some rows [s]."""
    if rows <= 0.0:
        return 0.0
    interval = interval_of(times.tokens, rows)
    return interpolate_1d(times.head[server], interval, share_of(times.tokens, interval, rows))


@lean_kernel
def decode_line(times: PassTimes, server: int, requests: float, context: float) -> DecodeLine:
    """Return the time of attention of some decoding requests with a mean context."""
    if requests <= 0.0:
        return DecodeLine(0.0, 0.0, 1e300)
    row, column = interval_of(times.requests, requests), interval_of(times.context, context)
    share = share_of(times.requests, row, requests)
    table = times.decode[server]
    seconds = interpolate_2d(table, row, share, column, share_of(times.context, column, context))
    if times.context.size == 1:
        return DecodeLine(seconds, 0.0, 1e300)
    start = interpolate_2d(table, row, share, column, 0.0)
    end = interpolate_2d(table, row, share, column, 1.0)
    slope = (end - start) / (times.context[column + 1] - times.context[column])
    is_last = column + 2 == times.context.size
    return DecodeLine(seconds, slope, 1e300 if is_last else float(times.context[column + 1]))


@lean_kernel
def prefill_time(times: PassTimes, server: int, chunk: float, before: float, is_first: bool) -> float:
    """Return the time of attention of a chunk of a prompt [s]; is_first: of its iteration."""
    if chunk <= 0.0:
        return 0.0
    row, column = interval_of(times.chunk, chunk), interval_of(times.before, before)
    chunk_share, before_share = share_of(times.chunk, row, chunk), share_of(times.before, column, before)
    table = times.prefill[server] if is_first else times.prefill_more[server]
    return interpolate_2d(table, row, chunk_share, column, before_share)
