"""Times of both pools at mean numbers of requests: terms of the analytic form of disaggregated serving."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import (
    NONE_DECODE,
    Group,
    Request,
    decoding_of,
    group_of,
    group_of_ranks,
    room_of,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch

HALVINGS = 30
"""Halvings of a range of rates or of requests, to find where as many requests end as arrive."""


class IterationCounts(NamedTuple):
    """Iterations of both pools."""

    prefill_busy: float  # utilization of a unit of prefill
    prefills: float  # of all units
    decodes: float


class PoolMeans(NamedTuple):
    """Metrics of a point's requests and of both pools; as `SteadyDisaggregatedMetrics`."""

    refused: int  # TAKEN, or TOO_MANY, with the highest requests_per_s
    ttft: float
    tpot: float
    answer: float  # from the first to the last token [s]
    requests_per_s: float
    decoding: float
    queue: float
    transfer: float
    admission: float  # wait for it
    queued: float  # until earlier prompts are computed
    group_size: float  # prompts of a unit that are computed together (no time)
    iterations: IterationCounts


class Transfer(NamedTuple):
    """The transfer of caches from prefill to decode."""

    cache_s: float  # time of each cache [s]
    servers: float  # of prefill, which send one after the other


class Pool(NamedTuple):
    """A pool of a point."""

    times: PassTimes
    batch: Batch
    request: Request
    units: float
    ranks: float  # of all units


class PromptTimes(NamedTuple):
    """Times of a prompt at a rate."""

    wait: float  # until its first iteration [s]
    queued: float  # of the wait, until its group's first iteration [s]
    prefill: float  # from there to its first token [s]
    group_size: float  # prompts of a unit that are computed together
    total: float  # time of these prompts [s]
    load: float  # utilization, were iterations full


@lean_kernel
def max_running(pool: Pool, requests: float) -> float:
    """Return the most requests of a rank of decode, mean: each reserves memory for all of its tokens."""
    most = min(float(pool.batch.most), requests)
    room = pool.batch.capacity / pool.request.reserved
    room = np.floor(room + 1e-9) if pool.request.variance == 0.0 else room + 0.5 * pool.request.variance - 0.5
    return max(1.0, min(most, room))


@lean_kernel
def decoding_time(pool: Pool, requests: float) -> float:
    """Return how long a request decodes [s]; requests: of the pool. It joins within an iteration."""
    if pool.request.gaps == 0.0:
        return 0.0
    rank = max(1.0, requests / pool.ranks)
    pass_s = decoding_of(pool.times, pool.batch, pool.request, rank).pass_s
    busy = min(1.0, max(0.0, requests - 1.0) / pool.ranks)  # an iteration is running when it arrives
    return (pool.request.passes + 0.5 * busy) * pass_s


@lean_kernel
def prompt_times(pool: Pool, rate: float, varies: float, least: float) -> PromptTimes:
    """Return the times of a prompt at a rate of the pool [1/s]; a wait of inf where the rate is too high.

    varies: squared coefficient of variation of the gaps between prompts of a unit; least: prompts that arrive
    at a rank together. Prompts that arrive during an iteration are in the next one, up to the budget; others
    wait as in a queue with servers (Kingman).
    """
    unit_rate, ranks = rate / pool.units, float(pool.batch.ranks)
    most = ranks * max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    full = group_of(pool.times, pool.batch, pool.request, NONE_DECODE, most / ranks)
    load = unit_rate * full.total / most
    if load >= 0.999:
        return PromptTimes(np.inf, np.inf, full.completion, most, full.total, load)
    group_size = 1.0 if least <= 1.0 else least * ranks
    group = _group(pool, group_size)
    if unit_rate * group.total > group_size:
        for _ in range(8):
            group_size = min(most, max(group_size, unit_rate * group.total))
            group = _group(pool, group_size)
    busy = min(1.0, unit_rate * group.total / group_size)
    service = pool.request.half_range**2 / 3.0
    wait = 0.5 * (varies + service) * busy * group.total
    wait += 0.5 * (varies + service) * load ** sqrt(2.0 * (most + 1.0)) / (1.0 - load) * full.total / most
    return PromptTimes(wait + group.wait, wait, group.completion - group.wait, group_size, group.total, load)


@lean_kernel
def _group(pool: Pool, group_size: float) -> Group:
    """Return the times of prompts of a unit that are computed together."""
    rank = max(1.0, group_size / pool.batch.ranks)
    share = group_size / (rank * pool.batch.ranks)
    return group_of_ranks(pool.times, pool.batch, pool.request, NONE_DECODE, rank, share)


@lean_kernel
def mean_transfer_time(transfer: Transfer, rate: float, group_size: float) -> float:
    """Return the time of a cache's transfer, with the wait for earlier caches of its server [s].

    group_size: prompts that end together on a server.
    """
    load = min(0.98, rate * transfer.cache_s / transfer.servers)
    return transfer.cache_s * (1.0 + 0.5 * load / (1.0 - load) + 0.5 * (group_size - 1.0))


@lean_kernel
def tpot_of(request: Request, decoding_s: float, waits: float) -> float:
    """Return the time per token after the first [s]; waits: for admission and the cache [s]."""
    return (decoding_s + waits * request.short) / request.gaps if request.gaps > 0.0 else 0.0


@lean_kernel
def iterations_of(
    prefill: Pool, decode: Pool, prompt: PromptTimes, rate: float, requests: float, decoding: float
) -> IterationCounts:
    """Return the iterations of both pools; rate: of requests [1/s]; decoding: requests of the pool."""
    return IterationCounts(
        prefill_busy=min(1.0, rate * prompt.total / (prompt.group_size * prefill.units)),
        prefills=requests / prompt.group_size,
        decodes=requests * decode.request.passes / max(1.0, decoding / decode.units),
    )
