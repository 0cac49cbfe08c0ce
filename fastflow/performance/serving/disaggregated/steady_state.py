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
    tokens_per_s: Floats  # of answers
    decoding: Floats  # requests on servers of decode, mean over time
    queue: Floats  # requests that wait for prefill, mean over time
    transfer_s: Floats  # from a place to the cache's arrival there
    place_s: Floats  # waiting for a place
    prefill_busy: Floats  # share of time in which a unit of prefill has an iteration
    decode_busy: Floats
    prefill_iterations: Floats  # all units
    decode_iterations: Floats
    cache: Floats  # share of decode's caches that requests hold, mean over time
    near: Bools  # the simulation says nearly the same, or would take too long
    long: Bools  # it would take too long


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
    out = np.zeros((len(SteadyApart._fields), loads.isl.size))
    _steady(prefill, decode, pools, loads, out)
    return SteadyApart._make([out[0].astype(np.int64), *out[1:-2], *(out[-2:] > 0.0)])


@kernel
def _steady(prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, out: Floats) -> None:
    for point in range(out.shape[1]):
        steady_apart_point(prefill, decode, pools, loads, point, out[:, point])


@lean_kernel
def steady_apart_point(
    prefill: PassTimes, decode: PassTimes, pools: Pools, loads: Loads, point: int, out: Floats
) -> None:
    """Write what `SteadyApart` has of a point."""
    is_closed = loads.concurrency[point] > 0
    one, two = batch_of(pools.prefill, point, is_closed), batch_of(pools.decode, point, is_closed)
    prompt, answer = request_of(prefill, one, loads, point), request_of(decode, two, loads, point)
    if longest(loads.isl[point], loads.spread[point]) > one.capacity or answer.largest > two.capacity:
        out[0] = TOO_LONG
        return
    units = float(pools.prefills[point] * one.slots), float(pools.decodes[point] * two.slots)
    first = _Pool(prefill, one, prompt, units[0], units[0] * one.ranks)
    second = _Pool(decode, two, answer, units[1], units[1] * two.ranks)
    requests = float(loads.requests[point])
    sends = pools.way_s[point] + pools.way_token_s[point] * loads.isl[point]
    way = (sends if answer.gaps > 0.0 else 0.0), float(pools.prefills[point])
    if is_closed:
        at_once = min(requests, float(loads.concurrency[point]))
        _closed(first, second, way, at_once, requests, loads.spread[point], out)
    else:
        _open(first, second, way, loads.rate[point], requests, out)
    if loads.most[point] > 0 and not is_closed and out[0] == TAKEN:  # goes on until it is stationary
        requests = max(requests, 2.0 * OVERLOAD_SPANS * out[5])
    steps = (out[11] * one.ranks + out[12] * two.ranks) * requests / float(loads.requests[point])
    if out[0] != TAKEN:
        out[14] = out[15] = 1.0 if steps > MOST_STEPS else 0.0
        return
    out[4] = out[3] * loads.osl[point]
    out[13] = min(1.0, out[5] * answer.context / (second.ranks * two.capacity))
    takes_long = steps > MOST_STEPS
    out[14] = 1.0 if takes_long or _is_near(second, loads, point, out) else 0.0
    out[15] = 1.0 if takes_long else 0.0


@lean_kernel
def _is_near(pool: _Pool, loads: Loads, point: int, out: Floats) -> bool:
    """Say whether what is written is near the simulation; pool: of decode.

    It is not where caches limit how many decode, where prefill is full, where waits for a place or the way to
    it are much of an answer's time, and where requests are few, or of a file: means are not enough then.
    """
    requests, at_once = float(loads.requests[point]), float(loads.concurrency[point])
    if loads.known[point] > 0 or pool.request.passes < FEW_PASSES:
        return False
    is_closed = at_once > 0.0
    if not is_closed and loads.most[point] == 0:  # just so many are sent
        sends = requests / loads.rate[point]
        if are_brief(sends, out[1] + out[2] * pool.request.gaps):
            return False
    if is_closed and loads.spread[point] > 0.0 and requests < max(FEW_CYCLES * at_once, float(FEW_REQUESTS)):
        return False
    if loads.spread[point] == 0.0 and at_once > 1.0:  # those that end together follow one another to prefill
        return False
    rank = min(float(pool.batch.most), np.ceil(at_once / pool.ranks))
    if rank * pool.request.largest > pool.batch.capacity:
        return False
    return bool(out[9] < FULL_PREFILL and out[7] + out[8] <= MOST_WAIT * out[2] * pool.request.gaps)


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

    varies: squared variation of the gaps between prompts of a unit; least: that come
    to a rank together. What comes during an iteration is in the
    next one, up to the budget; what does not fit waits as where servers work one by one (Kingman).
    """
    own, ranks = rate / pool.units, float(pool.batch.ranks)
    most = ranks * max(1.0, room_of(pool.batch, pool.request, 0.0) / pool.request.prompt)
    full = group_of(pool.times, pool.batch, pool.request, 0.0, most / ranks)
    load = own * full.total / most
    if load >= 0.999:
        return _Prefilled(np.inf, full.completion, most, full.total, load)
    together = 1.0 if least <= 1.0 else least * ranks
    group = group_of(pool.times, pool.batch, pool.request, 0.0, least)
    if own * group.total > together:
        for _ in range(8):
            together = min(most, max(together, own * group.total))
            group = group_of(pool.times, pool.batch, pool.request, 0.0, max(1.0, together / ranks))
    busy = min(1.0, own * group.total / together)
    service = pool.request.half_range**2 / 3.0
    wait = 0.5 * (varies + service) * busy * group.total
    wait += 0.5 * (varies + service) * load ** sqrt(2.0 * (most + 1.0)) / (1.0 - load) * full.total / most
    return _Prefilled(wait + group.wait, group.completion - group.wait, together, group.total, load)


@lean_kernel
def _moves(way: tuple[float, float], rate: float, together: float) -> float:
    """Return how long a cache is on its way, after those that its server sends before [s].

    way: what each takes [s], and servers of prefill; together: prompts that end together on a server.
    """
    load = min(0.98, rate * way[0] / way[1])
    return way[0] * (1.0 + 0.5 * load / (1.0 - load) + 0.5 * (together - 1.0))


@lean_kernel
def _closed(
    first: _Pool,
    second: _Pool,
    way: tuple[float, float],
    at_once: float,
    requests: float,
    spread: float,
    out: Floats,
) -> None:
    """Write what requests see where each one that ends is followed by the next."""
    places = second.ranks * _places(second, at_once)
    most, varies = min(at_once, places), min(1.0, 2.0 * second.request.half_range)
    rank, least = at_once / first.ranks, 1.0
    if spread == 0.0:
        together = room_of(first.batch, first.request, 0.0) / first.request.prompt
        least = max(1.0, min(rank, np.floor(together)))
        if way[0] > 0.0:
            every = _decoding_s(second, most) / max(1.0, second.request.passes)
            least = max(1.0, min(least, 0.5 * every / way[0]))
    decodes = second.request.gaps > 0.0
    low = _most_decoding(first, second, way[0], at_once, most, varies, least) if decodes else 0.0
    decoding_s = _decoding_s(second, low)
    rate = low / (decoding_s + way[0]) if decodes else _prompts_alone(first, at_once, varies, least)
    prompt = _prefilled(first, rate, varies, least)
    moving = _moves(way, rate, prompt.together / first.batch.ranks)
    rest = at_once / rate - prompt.takes - moving - decoding_s
    burst = group_of(first.times, first.batch, first.request, 0.0, max(1.0, rank))
    share = at_once / requests
    place, room = 0.0, 0.0
    if places < at_once and low > 0.999 * most:
        computing = rate * prompt.takes
        room = max(0.0, first.ranks * np.floor(first.batch.capacity / first.request.held) - computing)
        place = min(max(0.0, rest - prompt.wait), room / rate)
        # the first burst waits for prefill, and moves on from there as fast as prefill is faster than decode
        moved, all_s = place * prompt.load / max(1e-9, 1.0 - prompt.load), requests / rate
        before = 0.5 * moved / all_s if moved < all_s else 1.0 - 0.5 * all_s / moved
        place -= max(0.0, place * before - share * burst.completion)
    queue = max(0.0, rest - place)
    held_up = max(0.0, at_once - places - room) if decodes else 0.0
    at_first = burst.completion + 0.5 * held_up * held_up / (at_once * rate)
    out[0], out[7], out[8] = TAKEN, moving, place
    after = queue + prompt.takes
    out[1] = share * at_first + (1.0 - share) * after
    if second.request.gaps > 0.0:
        out[2] = (decoding_s + (moving + place) * second.request.short) / second.request.gaps
    makespan = requests / rate + max(0.0, burst.total - queue - prompt.takes)
    if spread > 0.0:
        last = _last(second, spread, low)
        makespan = (requests - at_once) / rate + after + moving + place + last
    out[3] = requests / makespan
    out[5] = out[3] * decoding_s
    out[6] = out[3] * (share * (at_first - prompt.takes) + (1.0 - share) * queue)
    _write_iterations(first, second, prompt, out[3], requests, low, out)


@lean_kernel
def _most_decoding(
    first: _Pool, second: _Pool, moves_s: float, at_once: float, most: float, varies: float, least: float
) -> float:
    """Return how many requests decode, of so many at a time: the others are in prefill, or on the way."""
    low, high = 0.0, most
    for step in range(_HALVINGS):
        middle = high if step == 0 else 0.5 * (low + high)
        rate = middle / (_decoding_s(second, middle) + moves_s)
        prompt = _prefilled(first, rate, varies, least)
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
def _open(
    first: _Pool, second: _Pool, way: tuple[float, float], rate: float, requests: float, out: Floats
) -> None:
    """Write what requests see that come at random times, to pools in their stationary state.

    requests: that figures count. Of more than the pools take, `requests_per_s` is the most that they do.
    """
    places = second.ranks * _places(second, np.inf)
    prompt = _prefilled(first, rate, 1.0 / first.ranks, 1.0)
    if prompt.wait == np.inf or _decoding_s(second, places) * rate > places:
        out[0], out[3] = (
            TOO_MANY,
            min(rate * 0.999 / prompt.load, places / max(_decoding_s(second, places), TINY)),
        )
        _write_iterations(first, second, prompt, out[3], requests, places, out)
        return
    low, high = 0.0, places
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _decoding_s(second, middle) * rate > middle:
            low = middle
        else:
            high = middle
    decoding_s = _decoding_s(second, 1.0 + high)  # others are there as at any time (Poisson)
    moving = _moves(way, rate, prompt.together / first.batch.ranks)
    busy = min(0.999, high / places)
    place = 0.5 * decoding_s * busy ** (sqrt(2.0 * (places + 1.0)) - 1.0) / (places * (1.0 - busy))
    out[0], out[7], out[8] = TAKEN, moving, place
    out[1] = prompt.wait + prompt.takes
    if second.request.gaps > 0.0:
        out[2] = (decoding_s + (moving + place) * second.request.short) / second.request.gaps
    out[3], out[5], out[6] = rate, rate * decoding_s, rate * prompt.wait
    _write_iterations(first, second, prompt, rate, requests, high, out)


@lean_kernel
def _write_iterations(
    first: _Pool,
    second: _Pool,
    prompt: _Prefilled,
    rate: float,
    requests: float,
    decoding: float,
    out: Floats,
) -> None:
    """Write for how much of the time both pools have iterations, and how many."""
    out[9] = min(1.0, rate * prompt.total / (prompt.together * first.units))
    out[10] = min(1.0, out[5] / second.units)
    out[11] = requests / prompt.together
    out[12] = requests * second.request.passes / max(1.0, decoding / second.units)
