"""The analytic form of disaggregated serving: means of requests, fast enough for grids.

By Little's law, as many requests decode as arrive during the decoding of a request, whose time depends on
that number. In a closed loop all concurrent requests are in either pool, in transfer, or wait: for decode
where they exceed its batches, and then for prefill where its memory is full of waiting requests. The first
burst has separate terms. Where lengths are equal, requests whose caches arrive within an iteration of decode
end together, and the next requests arrive together.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.analytic.applicability import (
    FEW_CYCLES,
    FEW_PASSES,
    FEW_REQUESTS,
    are_too_few,
)
from fastflow.performance.serving.analytic.mean_request import (
    Request,
    group_of,
    pass_parts,
    request_of,
    room_of,
    total_time,
)
from fastflow.performance.serving.analytic.queueing import last_passes
from fastflow.performance.serving.disaggregated.simulate import Pools
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of
from fastflow.performance.serving.simulator.window import OVERLOAD_SPANS

_HALVINGS = 30

FULL_PREFILL = 0.8
"""Largest utilization of prefill: beyond it, waits grow fast."""
MOST_WAIT = 0.02
"""Largest share of an answer's time for admission to decode and the transfer of the cache."""
TINY = 1e-300
"""Seconds of answers without decoding."""
MOST_STEPS = 1_000_000
"""Most iterations times ranks of a simulation that no key requests: 0.5 s."""


class SteadyApart(NamedTuple):
    """Metrics of requests and of both pools; shape (points,). As `simulate.Apart`."""

    refused: Ints  # TAKEN, or why there is no result: TOO_LONG, or TOO_MANY, with the highest requests_per_s
    ttft_s: Floats  # from sending to the first token, which prefill makes
    tpot_s: Floats  # time per token after the first
    requests_per_s: Floats  # mean until the last request ends; of an open loop its rate
    decoding: Floats  # requests on servers of decode, mean over time
    queue: Floats  # requests that wait for prefill, mean over time
    transfer_s: Floats  # from admission to the cache's arrival
    prefill_iterations: Floats  # of all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches in use, mean over time
    near: Bools  # near the simulation, or that would take too long
    long: Bools  # the simulation would take too long


class _Iterations(NamedTuple):
    """Iterations of both pools."""

    prefill_busy: float  # utilization of a unit of prefill
    prefills: float  # of all units
    decodes: float


class _Means(NamedTuple):
    """Metrics of a point's requests and of both pools; as `SteadyApart`."""

    refused: int  # TAKEN, or TOO_MANY, with the highest requests_per_s
    ttft: float
    tpot: float
    requests_per_s: float
    decoding: float
    queue: float
    transfer: float
    admission: float  # wait for it
    iterations: _Iterations


class _Transfer(NamedTuple):
    """The transfer of caches from prefill to decode."""

    cache_s: float  # time of each cache [s]
    servers: float  # of prefill, which send one after the other


class _Pool(NamedTuple):
    """A pool of a point."""

    times: PassTimes
    batch: Batch
    request: Request
    units: float
    ranks: float  # of all units


class _PromptTimes(NamedTuple):
    """Times of a prompt at a rate."""

    wait: float  # until its first iteration [s]
    prefill: float  # from there to its first token [s]
    group_size: float  # prompts of a unit that are computed together
    total: float  # time of these prompts [s]
    load: float  # utilization, were iterations full


def steady_disaggregated(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads) -> SteadyApart:
    """Return the metrics of every point's requests; as `simulate.simulate_disaggregated`."""
    points = loads.isl.size
    flags = np.zeros((2, points), dtype=np.bool_)
    out = SteadyApart(np.zeros(points, dtype=np.int64), *np.zeros((9, points)), *flags)
    _steady(prefill, decode, pools, loads, out)
    return out


@kernel
def _steady(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: SteadyApart) -> None:
    for point in range(loads.isl.size):
        steady_disaggregated_point(prefill, decode, pools, loads, point, out)


@lean_kernel
def steady_disaggregated_point(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, out: SteadyApart
) -> None:
    """Write a point's row of `SteadyApart`."""
    is_closed = loads.concurrency[point] > 0
    prefill_batch = batch_of(pools.prefill, point, is_closed)
    decode_batch = batch_of(pools.decode, point, is_closed)
    prompt = request_of(prefill, prefill_batch, loads, point)
    answer = request_of(decode, decode_batch, loads, point)
    if (
        longest(loads.isl[point], loads.spread[point]) > prefill_batch.capacity
        or answer.largest > decode_batch.capacity
    ):
        out.refused[point] = TOO_LONG
        return
    units = float(pools.prefills[point] * prefill_batch.slots)
    prefill_pool = _Pool(prefill, prefill_batch, prompt, units, units * prefill_batch.ranks)
    units = float(pools.decodes[point] * decode_batch.slots)
    decode_pool = _Pool(decode, decode_batch, answer, units, units * decode_batch.ranks)
    requests = float(loads.requests[point])
    cache_s = pools.transfer_latency_s[point] + pools.transfer_token_s[point] * loads.isl[point]
    transfer = _Transfer(cache_s if answer.gaps > 0.0 else 0.0, float(pools.prefills[point]))
    if is_closed:
        at_once = min(requests, float(loads.concurrency[point]))
        means = _closed(prefill_pool, decode_pool, transfer, at_once, requests, loads.spread[point])
    else:
        means = _open(prefill_pool, decode_pool, transfer, loads.rate[point], requests)
    iterations = means.iterations
    # the simulation is extended until it is stationary
    if loads.most[point] > 0 and not is_closed and means.refused == TAKEN:
        requests = max(requests, 2.0 * OVERLOAD_SPANS * means.decoding)
    passes = iterations.prefills * prefill_batch.ranks + iterations.decodes * decode_batch.ranks
    steps = passes * requests / float(loads.requests[point])
    out.refused[point] = means.refused
    out.requests_per_s[point] = means.requests_per_s
    out.long[point] = steps > MOST_STEPS
    if means.refused != TAKEN:
        out.near[point] = out.long[point]
        return
    out.ttft_s[point] = means.ttft
    out.tpot_s[point] = means.tpot
    out.decoding[point] = means.decoding
    out.queue[point] = means.queue
    out.transfer_s[point] = means.transfer
    out.prefill_iterations[point] = iterations.prefills
    out.decode_iterations[point] = iterations.decodes
    out.cache[point] = min(1.0, means.decoding * answer.context / (decode_pool.ranks * decode_batch.capacity))
    out.near[point] = out.long[point] or _is_near(decode_pool, loads, point, means)


@lean_kernel
def _is_near(pool: _Pool, loads: Loads, point: int, means: _Means) -> bool:
    """Say whether means are near the simulation; pool: of decode.

    They are not where caches limit the batch of decode, where prefill is full, where admission or transfers
    are a large part of an answer's time, and where requests are few, or of a file.
    """
    requests, at_once = float(loads.requests[point]), float(loads.concurrency[point])
    if loads.known[point] > 0 or pool.request.passes < FEW_PASSES:
        return False
    is_closed = at_once > 0.0
    if not is_closed and loads.most[point] == 0:  # the simulation is not extended
        sending_s = requests / loads.rate[point]
        if are_too_few(sending_s, means.ttft + means.tpot * pool.request.gaps):
            return False
    if is_closed and loads.spread[point] > 0.0 and requests < max(FEW_CYCLES * at_once, float(FEW_REQUESTS)):
        return False
    # with equal lengths, the requests after those that end together arrive together
    if loads.spread[point] == 0.0 and at_once > 1.0:
        return False
    rank = min(float(pool.batch.most), np.ceil(at_once / pool.ranks))
    if rank * pool.request.largest > pool.batch.capacity:
        return False
    is_brief_wait = means.transfer + means.admission <= MOST_WAIT * means.tpot * pool.request.gaps
    return bool(means.iterations.prefill_busy < FULL_PREFILL and is_brief_wait)


@lean_kernel
def _most_running(pool: _Pool, requests: float) -> float:
    """Return the most requests of a rank of decode, mean: each reserves memory for all of its tokens."""
    most = min(float(pool.batch.most), requests)
    room = pool.batch.capacity / pool.request.reserved
    room = np.floor(room + 1e-9) if pool.request.variance == 0.0 else room + 0.5 * pool.request.variance - 0.5
    return max(1.0, min(most, room))


@lean_kernel
def _decoding_s(pool: _Pool, requests: float) -> float:
    """Return how long a request decodes [s]; requests: of the pool. It joins within an iteration."""
    if pool.request.gaps == 0.0:
        return 0.0
    rank = max(1.0, requests / pool.ranks)
    pass_s = total_time(pass_parts(pool.times, pool.batch, pool.request, rank, 0.0, 0.0))
    busy = min(1.0, max(0.0, requests - 1.0) / pool.ranks)  # an iteration is running when it arrives
    return (pool.request.passes + 0.5 * busy) * pass_s


@lean_kernel
def _prompt_times(pool: _Pool, rate: float, varies: float, least: float) -> _PromptTimes:
    """Return the times of a prompt at a rate of the pool [1/s]; a wait of inf where the rate is too high.

    varies: squared coefficient of variation of the gaps between prompts of a unit; least: prompts that arrive
    at a rank together. Prompts that arrive during an iteration are in the next one, up to the budget; others
    wait as in a queue with servers (Kingman).
    """
    unit_rate, ranks = rate / pool.units, float(pool.batch.ranks)
    most = ranks * max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    full = group_of(pool.times, pool.batch, pool.request, 0.0, most / ranks)
    load = unit_rate * full.total / most
    if load >= 0.999:
        return _PromptTimes(np.inf, full.completion, most, full.total, load)
    group_size = 1.0 if least <= 1.0 else least * ranks
    group = group_of(pool.times, pool.batch, pool.request, 0.0, least)
    if unit_rate * group.total > group_size:
        for _ in range(8):
            group_size = min(most, max(group_size, unit_rate * group.total))
            group = group_of(pool.times, pool.batch, pool.request, 0.0, max(1.0, group_size / ranks))
    busy = min(1.0, unit_rate * group.total / group_size)
    service = pool.request.half_range**2 / 3.0
    wait = 0.5 * (varies + service) * busy * group.total
    wait += 0.5 * (varies + service) * load ** sqrt(2.0 * (most + 1.0)) / (1.0 - load) * full.total / most
    return _PromptTimes(wait + group.wait, group.completion - group.wait, group_size, group.total, load)


@lean_kernel
def _mean_transfer_s(transfer: _Transfer, rate: float, group_size: float) -> float:
    """Return the time of a cache's transfer, with the wait for earlier caches of its server [s].

    together: prompts that end together on a server.
    """
    load = min(0.98, rate * transfer.cache_s / transfer.servers)
    return transfer.cache_s * (1.0 + 0.5 * load / (1.0 - load) + 0.5 * (group_size - 1.0))


@lean_kernel
def _closed(
    prefill: _Pool, decode: _Pool, transfer: _Transfer, at_once: float, requests: float, spread: float
) -> _Means:
    """Return the metrics of a closed loop."""
    places = decode.ranks * _most_running(decode, at_once)
    most, varies = min(at_once, places), min(1.0, 2.0 * decode.request.half_range)
    rank_requests, least = at_once / prefill.ranks, 1.0
    if spread == 0.0:
        least = _least_together(prefill, decode, transfer, most, rank_requests)
    has_answers = decode.request.gaps > 0.0
    running = (
        _most_decoding(prefill, decode, transfer.cache_s, at_once, most, varies, least)
        if has_answers
        else 0.0
    )
    decoding_s = _decoding_s(decode, running)
    prompt_rate = 0.0 if has_answers else _prompts_alone(prefill, at_once, varies, least)
    rate = running / (decoding_s + transfer.cache_s) if has_answers else prompt_rate
    prompt = _prompt_times(prefill, rate, varies, least)
    mean_transfer_s = _mean_transfer_s(transfer, rate, prompt.group_size / prefill.batch.ranks)
    waiting = at_once / rate - prompt.prefill - mean_transfer_s - decoding_s
    burst = group_of(prefill.times, prefill.batch, prefill.request, 0.0, max(1.0, rank_requests))
    share = at_once / requests
    admission, room = 0.0, 0.0
    if places < at_once and running > 0.999 * most:
        computing = rate * prompt.prefill
        room = max(0.0, prefill.ranks * np.floor(prefill.batch.capacity / prefill.request.cached) - computing)
        admission = min(max(0.0, waiting - prompt.wait), room / rate)
        # the first burst waits for prefill first, and then as prefill is faster than decode
        burst_s, run_s = admission * prompt.load / max(1e-9, 1.0 - prompt.load), requests / rate
        before = 0.5 * burst_s / run_s if burst_s < run_s else 1.0 - 0.5 * run_s / burst_s
        admission -= max(0.0, admission * before - share * burst.completion)
    queue = max(0.0, waiting - admission)
    blocked = max(0.0, at_once - places - room) if has_answers else 0.0
    burst_ttft = burst.completion + 0.5 * blocked * blocked / (at_once * rate)
    later_ttft = queue + prompt.prefill
    makespan = requests / rate + max(0.0, burst.total - queue - prompt.prefill)
    if spread > 0.0:
        last = _last_decoding_s(decode, spread, running)
        makespan = (requests - at_once) / rate + later_ttft + mean_transfer_s + admission + last
    served = requests / makespan
    decoding = served * decoding_s
    return _Means(
        refused=TAKEN,
        ttft=share * burst_ttft + (1.0 - share) * later_ttft,
        tpot=_tpot(decode.request, decoding_s, mean_transfer_s + admission),
        requests_per_s=served,
        decoding=decoding,
        queue=served * (share * (burst_ttft - prompt.prefill) + (1.0 - share) * queue),
        transfer=mean_transfer_s,
        admission=admission,
        iterations=_iterations(prefill, decode, prompt, served, requests, running),
    )


@lean_kernel
def _tpot(request: Request, decoding_s: float, waits: float) -> float:
    """Return the time per token after the first [s]; waits: for admission and the cache [s]."""
    return (decoding_s + waits * request.short) / request.gaps if request.gaps > 0.0 else 0.0


@lean_kernel
def _least_together(
    prefill: _Pool, decode: _Pool, transfer: _Transfer, decoding: float, rank: float
) -> float:
    """Return how many prompts of equal length arrive at a rank of prefill together, at least.

    Requests whose caches arrive within an iteration of decode end together. decoding: most requests; rank:
    concurrent requests per rank of prefill.
    """
    group_size = room_of(prefill.batch, prefill.request, 0.0) / prefill.request.prompt
    least = max(1.0, min(rank, np.floor(group_size)))
    if transfer.cache_s > 0.0:
        pass_s = _decoding_s(decode, decoding) / max(1.0, decode.request.passes)
        least = max(1.0, min(least, 0.5 * pass_s / transfer.cache_s))
    return float(least)


@lean_kernel
def _most_decoding(
    prefill: _Pool, decode: _Pool, transfer_s: float, at_once: float, most: float, varies: float, least: float
) -> float:
    """Return how many of the concurrent requests decode: the others are in prefill, or in transfer."""
    low, high = 0.0, most
    for step in range(_HALVINGS):
        middle = high if step == 0 else 0.5 * (low + high)
        rate = middle / (_decoding_s(decode, middle) + transfer_s)
        prompt = _prompt_times(prefill, rate, varies, least)
        if middle + rate * (prompt.wait + prompt.prefill) > at_once:
            high = middle
        else:
            low = middle
        if low == high:
            break
    return low


@lean_kernel
def _prompts_alone(pool: _Pool, at_once: float, varies: float, least: float) -> float:
    """Return the rate of requests whose prompts only are computed [1/s]."""
    most = max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    low, high = 0.0, pool.ranks * most / group_of(pool.times, pool.batch, pool.request, 0.0, most).total
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        prompt = _prompt_times(pool, middle, varies, least)
        if middle * (prompt.wait + prompt.prefill) > at_once:
            high = middle
        else:
            low = middle
    return low


@lean_kernel
def _last_decoding_s(pool: _Pool, spread: float, decoding: float) -> float:
    """Return how long the last requests decode [s]: the longest of them, with half as many others."""
    rank = max(1.0, 0.5 * decoding / pool.ranks)
    pass_s = total_time(pass_parts(pool.times, pool.batch, pool.request, rank, 0.0, 0.0))
    return last_passes(pool.request, spread, decoding) * pass_s


@lean_kernel
def _open(prefill: _Pool, decode: _Pool, transfer: _Transfer, rate: float, requests: float) -> _Means:
    """Return the metrics of requests that arrive at random times, at pools in their stationary state.

    requests: total. Where the rate is too high, `requests_per_s` is the highest that the pools carry.
    """
    places = decode.ranks * _most_running(decode, np.inf)
    prompt = _prompt_times(prefill, rate, 1.0 / prefill.ranks, 1.0)
    if prompt.wait == np.inf or _decoding_s(decode, places) * rate > places:
        most = min(rate * 0.999 / prompt.load, places / max(_decoding_s(decode, places), TINY))
        iterations = _iterations(prefill, decode, prompt, most, requests, places)
        return _Means(TOO_MANY, 0.0, 0.0, most, 0.0, 0.0, 0.0, 0.0, iterations)
    low, high = 0.0, places
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _decoding_s(decode, middle) * rate > middle:
            low = middle
        else:
            high = middle
    decoding_s = _decoding_s(decode, 1.0 + high)  # other requests as at a random time (Poisson)
    mean_transfer_s = _mean_transfer_s(transfer, rate, prompt.group_size / prefill.batch.ranks)
    busy = min(0.999, high / places)
    admission = 0.5 * decoding_s * busy ** (sqrt(2.0 * (places + 1.0)) - 1.0) / (places * (1.0 - busy))
    return _Means(
        refused=TAKEN,
        ttft=prompt.wait + prompt.prefill,
        tpot=_tpot(decode.request, decoding_s, mean_transfer_s + admission),
        requests_per_s=rate,
        decoding=rate * decoding_s,
        queue=rate * prompt.wait,
        transfer=mean_transfer_s,
        admission=admission,
        iterations=_iterations(prefill, decode, prompt, rate, requests, high),
    )


@lean_kernel
def _iterations(
    prefill: _Pool, decode: _Pool, prompt: _PromptTimes, rate: float, requests: float, decoding: float
) -> _Iterations:
    """Return the iterations of both pools; rate: of requests [1/s]; decoding: requests of the pool."""
    return _Iterations(
        prefill_busy=min(1.0, rate * prompt.total / (prompt.group_size * prefill.units)),
        prefills=requests / prompt.group_size,
        decodes=requests * decode.request.passes / max(1.0, decoding / decode.units),
    )
