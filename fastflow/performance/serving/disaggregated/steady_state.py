"""What requests see where prefill and decoding have servers of their own: means, fast enough for grids.

By Little's law, requests that decode are as many as come in the time that one decodes, which follows from how
many there are. In a closed loop all that are sent at a time are on one of the pools, on the way between, or
wait: for a place of decode where there are more than places, and then for prefill where its servers have no
room for what waits. The first burst is told apart. Where all lengths are alike, requests whose caches come
within an iteration of decode end together, and their followers come together.
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
    are_brief,
)
from fastflow.performance.serving.analytic.mean_request import (
    Request,
    group_of,
    pass_parts,
    request_of,
    room_of,
    total_of,
)
from fastflow.performance.serving.analytic.queueing import last_passes
from fastflow.performance.serving.disaggregated.simulate import Pools
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.performance.serving.simulator.scheduler import Batch, batch_of
from fastflow.performance.serving.simulator.window import OVERLOAD_SPANS

_HALVINGS = 30

FULL_PREFILL = 0.8
"""Share of its time in which prefill has iterations: beyond it, waits for it grow fast."""
MOST_WAIT = 0.02
"""Share of an answer's time that waiting for a place, and the cache's way to it, may take."""
TINY = 1e-300
"""Seconds: of answers that decode nothing."""
MOST_STEPS = 1_000_000
"""Iterations times ranks of a simulation that nobody asks for: 0.5 s."""


class SteadyApart(NamedTuple):
    """What requests see, and what both pools do; shape (points,). As `simulate.Apart`."""

    refused: Ints  # TAKEN, or why it has no result: TOO_LONG, or TOO_MANY, with requests_per_s of the most
    ttft_s: Floats  # from sending to the first token, which prefill makes
    tpot_s: Floats  # from the first to the last token, for each after the first
    requests_per_s: Floats  # until the last one ends, mean over time; of an open loop all that come
    decoding: Floats  # requests on servers of decode, mean over time
    queue: Floats  # requests that wait for prefill, mean over time
    transfer_s: Floats  # from a place to the cache's arrival there
    prefill_iterations: Floats  # all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches that requests hold, mean over time
    near: Bools  # the simulation says nearly the same, or would take too long
    long: Bools  # it would take too long


class _Iterations(NamedTuple):
    """What iterations both pools have."""

    prefill_busy: float  # share of time in which a unit of prefill has one
    prefills: float  # of all units
    decodes: float


class _Means(NamedTuple):
    """What requests of one point see, and what both pools do; as `SteadyApart`."""

    refused: int  # TAKEN, or TOO_MANY, with requests_per_s of the most
    ttft: float
    tpot: float
    requests_per_s: float
    decoding: float
    queue: float
    transfer: float
    place: float
    iterations: _Iterations


class _Way(NamedTuple):
    """A cache's way from prefill to decode."""

    sends: float  # what each cache takes [s]
    servers: float  # of prefill, which send one after the other


class _Pool(NamedTuple):
    """A pool of one point."""

    times: PassTimes
    batch: Batch
    request: Request
    units: float
    ranks: float  # of all units


class _Prefilled(NamedTuple):
    """What a prompt sees at a rate."""

    wait: float  # until its first iteration [s]
    takes: float  # from there to its first token [s]
    together: float  # prompts of a unit that are computed together
    total: float  # what these take [s]
    load: float  # of prompts that come, in the most that it computes


def steady_apart(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads) -> SteadyApart:
    """Return what requests of every point see; as `simulate.simulate_apart`."""
    points = loads.isl.size
    flags = np.zeros((2, points), dtype=np.bool_)
    out = SteadyApart(np.zeros(points, dtype=np.int64), *np.zeros((9, points)), *flags)
    _steady(prefill, decode, pools, loads, out)
    return out


@kernel
def _steady(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: SteadyApart) -> None:
    for point in range(loads.isl.size):
        steady_apart_point(prefill, decode, pools, loads, point, out)


@lean_kernel
def steady_apart_point(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, out: SteadyApart
) -> None:
    """Write what `SteadyApart` has of a point."""
    is_closed = loads.concurrency[point] > 0
    of_prefill = batch_of(pools.prefill, point, is_closed)
    of_decode = batch_of(pools.decode, point, is_closed)
    prompt = request_of(prefill, of_prefill, loads, point)
    answer = request_of(decode, of_decode, loads, point)
    if (
        longest(loads.isl[point], loads.spread[point]) > of_prefill.capacity
        or answer.largest > of_decode.capacity
    ):
        out.refused[point] = TOO_LONG
        return
    units = float(pools.prefills[point] * of_prefill.slots)
    prefill_pool = _Pool(prefill, of_prefill, prompt, units, units * of_prefill.ranks)
    units = float(pools.decodes[point] * of_decode.slots)
    decode_pool = _Pool(decode, of_decode, answer, units, units * of_decode.ranks)
    requests = float(loads.requests[point])
    sends = pools.way_s[point] + pools.way_token_s[point] * loads.isl[point]
    way = _Way(sends if answer.gaps > 0.0 else 0.0, float(pools.prefills[point]))
    if is_closed:
        at_once = min(requests, float(loads.concurrency[point]))
        means = _closed(prefill_pool, decode_pool, way, at_once, requests, loads.spread[point])
    else:
        means = _open(prefill_pool, decode_pool, way, loads.rate[point], requests)
    made = means.iterations
    if loads.most[point] > 0 and not is_closed and means.refused == TAKEN:  # goes on until it is stationary
        requests = max(requests, 2.0 * OVERLOAD_SPANS * means.decoding)
    passes = made.prefills * of_prefill.ranks + made.decodes * of_decode.ranks
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
    out.prefill_iterations[point] = made.prefills
    out.decode_iterations[point] = made.decodes
    out.cache[point] = min(1.0, means.decoding * answer.context / (decode_pool.ranks * of_decode.capacity))
    out.near[point] = out.long[point] or _is_near(decode_pool, loads, point, means)


@lean_kernel
def _is_near(pool: _Pool, loads: Loads, point: int, means: _Means) -> bool:
    """Say whether means are near the simulation; pool: of decode.

    They are not where caches limit how many decode, where prefill is full, where waits for a place or the way
    to it are much of an answer's time, and where requests are few, or of a file.
    """
    requests, at_once = float(loads.requests[point]), float(loads.concurrency[point])
    if loads.known[point] > 0 or pool.request.passes < FEW_PASSES:
        return False
    is_closed = at_once > 0.0
    if not is_closed and loads.most[point] == 0:  # just so many are sent
        sends = requests / loads.rate[point]
        if are_brief(sends, means.ttft + means.tpot * pool.request.gaps):
            return False
    if is_closed and loads.spread[point] > 0.0 and requests < max(FEW_CYCLES * at_once, float(FEW_REQUESTS)):
        return False
    if loads.spread[point] == 0.0 and at_once > 1.0:  # those that end together follow one another to prefill
        return False
    rank = min(float(pool.batch.most), np.ceil(at_once / pool.ranks))
    if rank * pool.request.largest > pool.batch.capacity:
        return False
    is_brief_wait = means.transfer + means.place <= MOST_WAIT * means.tpot * pool.request.gaps
    return bool(means.iterations.prefill_busy < FULL_PREFILL and is_brief_wait)


@lean_kernel
def _places(pool: _Pool, requests: float) -> float:
    """Return how many requests a rank of decode runs at most, mean: each holds room for all of its tokens."""
    most = min(float(pool.batch.most), requests)
    room = pool.batch.capacity / pool.request.reserved
    room = np.floor(room + 1e-9) if pool.request.variance == 0.0 else room + 0.5 * pool.request.variance - 0.5
    return max(1.0, min(most, room))


@lean_kernel
def _decoding_s(pool: _Pool, requests: float) -> float:
    """Return how long a request decodes where the pool has so many [s]; it joins within an iteration."""
    if pool.request.gaps == 0.0:
        return 0.0
    rank = max(1.0, requests / pool.ranks)
    every = total_of(pass_parts(pool.times, pool.batch, pool.request, rank, 0.0, 0.0))
    beside = min(1.0, max(0.0, requests - 1.0) / pool.ranks)  # an iteration is under way when it comes
    return (pool.request.passes + 0.5 * beside) * every


@lean_kernel
def _prefilled(pool: _Pool, rate: float, varies: float, least: float) -> _Prefilled:
    """Return what a prompt sees where so many come to the pool [1/s]; inf where they are too many.

    varies: squared variation of the gaps between prompts of a unit; least: prompts that come to a rank
    together. What comes during an iteration is in the next one, up to the budget; what does not fit waits as
    where servers work one by one (Kingman).
    """
    of_unit, ranks = rate / pool.units, float(pool.batch.ranks)
    most = ranks * max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    full = group_of(pool.times, pool.batch, pool.request, 0.0, most / ranks)
    load = of_unit * full.total / most
    if load >= 0.999:
        return _Prefilled(np.inf, full.completion, most, full.total, load)
    together = 1.0 if least <= 1.0 else least * ranks
    group = group_of(pool.times, pool.batch, pool.request, 0.0, least)
    if of_unit * group.total > together:
        for _ in range(8):
            together = min(most, max(together, of_unit * group.total))
            group = group_of(pool.times, pool.batch, pool.request, 0.0, max(1.0, together / ranks))
    busy = min(1.0, of_unit * group.total / together)
    service = pool.request.half_range**2 / 3.0
    wait = 0.5 * (varies + service) * busy * group.total
    wait += 0.5 * (varies + service) * load ** sqrt(2.0 * (most + 1.0)) / (1.0 - load) * full.total / most
    return _Prefilled(wait + group.wait, group.completion - group.wait, together, group.total, load)


@lean_kernel
def _moves(way: _Way, rate: float, together: float) -> float:
    """Return how long a cache is on its way, after those that its server sends before [s].

    together: prompts that end together on a server.
    """
    load = min(0.98, rate * way.sends / way.servers)
    return way.sends * (1.0 + 0.5 * load / (1.0 - load) + 0.5 * (together - 1.0))


@lean_kernel
def _closed(
    prefill: _Pool, decode: _Pool, way: _Way, at_once: float, requests: float, spread: float
) -> _Means:
    """Return what requests see where each one that ends is followed by the next."""
    places = decode.ranks * _places(decode, at_once)
    most, varies = min(at_once, places), min(1.0, 2.0 * decode.request.half_range)
    of_rank, least = at_once / prefill.ranks, 1.0
    if spread == 0.0:
        least = _least_together(prefill, decode, way, most, of_rank)
    has_answers = decode.request.gaps > 0.0
    running = _most_decoding(prefill, decode, way.sends, at_once, most, varies, least) if has_answers else 0.0
    decoding_s = _decoding_s(decode, running)
    alone = 0.0 if has_answers else _prompts_alone(prefill, at_once, varies, least)
    rate = running / (decoding_s + way.sends) if has_answers else alone
    prompt = _prefilled(prefill, rate, varies, least)
    moving = _moves(way, rate, prompt.together / prefill.batch.ranks)
    rest = at_once / rate - prompt.takes - moving - decoding_s
    burst = group_of(prefill.times, prefill.batch, prefill.request, 0.0, max(1.0, of_rank))
    share = at_once / requests
    place, room = 0.0, 0.0
    if places < at_once and running > 0.999 * most:
        computing = rate * prompt.takes
        room = max(0.0, prefill.ranks * np.floor(prefill.batch.capacity / prefill.request.held) - computing)
        place = min(max(0.0, rest - prompt.wait), room / rate)
        # the first burst waits for prefill, and moves on from there as fast as prefill is faster than decode
        moved, all_s = place * prompt.load / max(1e-9, 1.0 - prompt.load), requests / rate
        before = 0.5 * moved / all_s if moved < all_s else 1.0 - 0.5 * all_s / moved
        place -= max(0.0, place * before - share * burst.completion)
    queue = max(0.0, rest - place)
    held_up = max(0.0, at_once - places - room) if has_answers else 0.0
    at_first = burst.completion + 0.5 * held_up * held_up / (at_once * rate)
    after = queue + prompt.takes
    makespan = requests / rate + max(0.0, burst.total - queue - prompt.takes)
    if spread > 0.0:
        last = _last(decode, spread, running)
        makespan = (requests - at_once) / rate + after + moving + place + last
    served = requests / makespan
    decoding = served * decoding_s
    return _Means(
        refused=TAKEN,
        ttft=share * at_first + (1.0 - share) * after,
        tpot=_tpot(decode.request, decoding_s, moving + place),
        requests_per_s=served,
        decoding=decoding,
        queue=served * (share * (at_first - prompt.takes) + (1.0 - share) * queue),
        transfer=moving,
        place=place,
        iterations=_iterations(prefill, decode, prompt, served, requests, running),
    )


@lean_kernel
def _tpot(request: Request, decoding_s: float, waits: float) -> float:
    """Return a token's time after the first [s]; waits: for a place, and for the cache [s]."""
    return (decoding_s + waits * request.short) / request.gaps if request.gaps > 0.0 else 0.0


@lean_kernel
def _least_together(prefill: _Pool, decode: _Pool, way: _Way, decoding: float, rank: float) -> float:
    """Return how many prompts of equal length come to a rank of prefill together, at least.

    Those whose caches come within an iteration of decode end together. decoding: requests at most; rank: all
    that are sent at a time, on a rank of prefill.
    """
    together = room_of(prefill.batch, prefill.request, 0.0) / prefill.request.prompt
    least = max(1.0, min(rank, np.floor(together)))
    if way.sends > 0.0:
        every = _decoding_s(decode, decoding) / max(1.0, decode.request.passes)
        least = max(1.0, min(least, 0.5 * every / way.sends))
    return float(least)


@lean_kernel
def _most_decoding(
    prefill: _Pool, decode: _Pool, moves_s: float, at_once: float, most: float, varies: float, least: float
) -> float:
    """Return how many requests decode, of so many at a time: the others are in prefill, or on the way."""
    low, high = 0.0, most
    for step in range(_HALVINGS):
        middle = high if step == 0 else 0.5 * (low + high)
        rate = middle / (_decoding_s(decode, middle) + moves_s)
        prompt = _prefilled(prefill, rate, varies, least)
        if middle + rate * (prompt.wait + prompt.takes) > at_once:
            high = middle
        else:
            low = middle
        if low == high:
            break
    return low


@lean_kernel
def _prompts_alone(pool: _Pool, at_once: float, varies: float, least: float) -> float:
    """Return how many requests end where their prompts are all that is computed of them [1/s]."""
    most = max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    low, high = 0.0, pool.ranks * most / group_of(pool.times, pool.batch, pool.request, 0.0, most).total
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        prompt = _prefilled(pool, middle, varies, least)
        if middle * (prompt.wait + prompt.takes) > at_once:
            high = middle
        else:
            low = middle
    return low


@lean_kernel
def _last(pool: _Pool, spread: float, decoding: float) -> float:
    """Return how long the last requests decode [s]: the longest of them, beside half as many."""
    rank = max(1.0, 0.5 * decoding / pool.ranks)
    every = total_of(pass_parts(pool.times, pool.batch, pool.request, rank, 0.0, 0.0))
    return last_passes(pool.request, spread, decoding) * every


@lean_kernel
def _open(prefill: _Pool, decode: _Pool, way: _Way, rate: float, requests: float) -> _Means:
    """Return what requests see that come at random times, to pools in their stationary state.

    requests: that figures count. Of more than the pools take, `requests_per_s` is the most that they do.
    """
    places = decode.ranks * _places(decode, np.inf)
    prompt = _prefilled(prefill, rate, 1.0 / prefill.ranks, 1.0)
    if prompt.wait == np.inf or _decoding_s(decode, places) * rate > places:
        most = min(rate * 0.999 / prompt.load, places / max(_decoding_s(decode, places), TINY))
        made = _iterations(prefill, decode, prompt, most, requests, places)
        return _Means(TOO_MANY, 0.0, 0.0, most, 0.0, 0.0, 0.0, 0.0, made)
    low, high = 0.0, places
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _decoding_s(decode, middle) * rate > middle:
            low = middle
        else:
            high = middle
    decoding_s = _decoding_s(decode, 1.0 + high)  # others are there as at any time (Poisson)
    moving = _moves(way, rate, prompt.together / prefill.batch.ranks)
    busy = min(0.999, high / places)
    place = 0.5 * decoding_s * busy ** (sqrt(2.0 * (places + 1.0)) - 1.0) / (places * (1.0 - busy))
    return _Means(
        refused=TAKEN,
        ttft=prompt.wait + prompt.takes,
        tpot=_tpot(decode.request, decoding_s, moving + place),
        requests_per_s=rate,
        decoding=rate * decoding_s,
        queue=rate * prompt.wait,
        transfer=moving,
        place=place,
        iterations=_iterations(prefill, decode, prompt, rate, requests, high),
    )


@lean_kernel
def _iterations(
    prefill: _Pool, decode: _Pool, prompt: _Prefilled, rate: float, requests: float, decoding: float
) -> _Iterations:
    """Return what iterations both pools have; rate: of requests [1/s]; decoding: requests of the pool."""
    return _Iterations(
        prefill_busy=min(1.0, rate * prompt.total / (prompt.together * prefill.units)),
        prefills=requests / prompt.together,
        decodes=requests * decode.request.passes / max(1.0, decoding / decode.units),
    )
