"""What requests of a server see, in a form fast enough for grids: means, without a walk through events.

**Closed loop.** Of C requests n run and the rest waits. They start as one burst. All that follow start when
others end, in groups: answers of one length end together, and those of spread lengths drift apart from cycle
to cycle, until ends are even over a whole cycle. A cycle is the prompts of a request's own group, its passes,
and what the prompts of other groups add to them.

**Open loop.** How many requests decode follows from Little's law. A request waits for the iteration that is
running, and for those that arrive with it.
"""

from __future__ import annotations

from math import erf, exp, pi, sqrt
from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.serving.iterations import Servers
from fastflow.serving.load import TAKEN, TOO_LONG, TOO_MANY, Loads, longest
from fastflow.serving.mean_times import (
    Group,
    Parts,
    Request,
    group_of,
    room_of,
    pass_parts,
    plus,
    request_of,
    total_of,
)
from fastflow.serving.pass_times import PassTimes
from fastflow.serving.scheduler import Batch, batch_of
from fastflow.tables import Floats, Ints

_CYCLES = 12  # that are told apart; the last one stands for all that follow


class Steady(NamedTuple):
    """What requests see, and what iterations are made of; shape (points,). As `simulate.Simulated`."""

    refused: Ints  # TAKEN, or why it has no result: a key of `load.REFUSALS`
    ttft_s: Floats  # from sending to the first token
    tpot_s: Floats  # from the first to the last token, for each after the first
    requests_per_s: Floats  # all requests over the time until the last one ends
    tokens_per_s: Floats  # of answers
    decoding: Floats  # requests between their first and last tokens, mean over time
    queue: Floats  # requests that have not started, mean over time
    prefill_share: Floats  # of iterations: those that compute prompts
    iterations: Floats  # of all slots
    shared: Floats  # share of layers but attention's core
    head: Floats  # of logits
    decode: Floats  # of decoding requests' attention
    prefill: Floats  # of prompts' attention
    host: Floats  # of the host
    draft: Floats  # of proposing tokens
    cache: Floats  # share of the cache that is held, mean over time


class _Seen(NamedTuple):
    """What a slot's requests see."""

    ttft: float  # [s]
    tpot: float  # [s]
    wait: float  # until a request starts [s]
    makespan: float  # [s]
    busy: float  # share of it in which there are requests
    running: float  # requests of a rank that decode together, as a request sees it
    together: float  # prompts of the slot that are computed together, mean of groups
    group: Group  # such prompts


def steady(times: PassTimes, servers: Servers, loads: Loads) -> Steady:
    """Return what every point's requests see."""
    out = np.zeros((len(Steady._fields), loads.isl.size))
    _steady(times, servers, loads, out)
    return Steady(out[0].astype(np.int64), *out[1:])


@kernel
def _steady(times: PassTimes, servers: Servers, loads: Loads, out: Floats) -> None:
    for point in range(out.shape[1]):
        steady_point(times, servers, loads, point, out[:, point])


@lean_kernel
def steady_point(times: PassTimes, servers: Servers, loads: Loads, point: int, out: Floats) -> None:
    """Write what `Steady` has of a point."""
    is_closed = loads.concurrency[point] > 0
    batch = batch_of(servers, point, is_closed)
    request = request_of(times, batch, loads, point)
    if request.largest > batch.capacity:
        out[0] = TOO_LONG
        return
    requests = float(loads.requests[point])
    at_once = min(requests, float(loads.concurrency[point])) if is_closed else requests
    slots = min(float(servers.slots[point]), at_once)
    if is_closed:
        seen = _closed(times, batch, request, loads.spread[point], at_once / slots, requests / slots)
    else:
        seen = _open(times, batch, request, loads.rate[point] / slots, requests / slots)
    if seen.makespan == np.inf:
        out[0] = TOO_MANY
        return
    out[0] = TAKEN
    out[1], out[2] = seen.ttft, seen.tpot
    out[3] = requests / seen.makespan
    out[4] = out[3] * loads.osl[point]
    out[5], out[6] = out[3] * seen.tpot * request.gaps, out[3] * seen.wait
    _write_iterations(times, batch, request, seen, requests / slots, out)
    out[8] *= slots
    prefilling = out[3] * (seen.ttft - seen.wait)
    held = out[5] * request.context + prefilling * request.held
    out[15] = min(1.0, held / (servers.ranks[point] * servers.capacity[point]))


@lean_kernel
def _write_iterations(
    times: PassTimes, batch: Batch, request: Request, seen: _Seen, requests: float, out: Floats
) -> None:
    """Write how many iterations there are, and shares of their time; requests: of a slot."""
    every = pass_parts(times, batch, request, seen.running, 0.0, 0.0)
    with_prompts = seen.group.passes / seen.together  # for each request, as the next two
    added = seen.group.total / seen.together
    passes = max(0.0, seen.makespan * seen.busy / requests - added) / total_of(every)
    alone = max(0.0, passes - with_prompts) if batch.mixes else passes
    parts = plus(Parts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), seen.group.parts, 1.0 / seen.together)
    parts = plus(parts, every, alone)
    total = total_of(parts)
    out[7] = with_prompts / (with_prompts + alone)
    out[8] = requests * (with_prompts + alone)
    out[9], out[10], out[11] = parts.shared / total, parts.head / total, parts.decode / total
    out[12], out[13], out[14] = parts.prefill / total, parts.host / total, parts.draft / total


@lean_kernel
def _running(batch: Batch, request: Request, asked: float) -> float:
    """Return how many requests of a slot run at once, mean, where so many are there."""
    rank = min(float(batch.most), asked / batch.ranks)
    places = batch.capacity / (request.reserved if batch.reserves else request.context)
    if request.variance == 0.0:
        return batch.ranks * max(min(rank, 1.0), min(rank, np.floor(places + 1e-9)))
    places += 0.5 * (request.variance - 1.0)  # of a renewal process, for long intervals
    sigma = np.sqrt(request.variance * max(1.0, places))
    z = (rank - places) / sigma
    over = (rank - places) * 0.5 * (1.0 + erf(z / sqrt(2.0))) + sigma * exp(-0.5 * z * z) / sqrt(2.0 * pi)
    return batch.ranks * max(min(rank, 1.0), rank - over)


@lean_kernel
def _on_rank(batch: Batch, prompts: float) -> float:
    """Return how many of a slot's prompts are on its fullest rank, mean: they are dealt in turns."""
    return max(1.0, (prompts + 0.5 * (batch.ranks - 1)) / batch.ranks)


@lean_kernel
def _closed(
    times: PassTimes, batch: Batch, request: Request, spread: float, at_once: float, requests: float
) -> _Seen:
    """Return what requests see where each one that ends is followed by the next."""
    running = _running(batch, request, at_once)
    waiting = at_once - running
    cycles = requests / running
    rank = max(1.0, running / batch.ranks)
    burst = group_of(times, batch, request, 0.5 * rank, rank)
    width, drift = 1.0, spread * longest(request.gaps + 1.0, spread) / batch.per_pass
    decodes = 1.0  # share of those that run, in a pass
    behind = 0.0  # passes that a prompt waits for others before it
    if batch.mixes:
        width = burst.passes
        for _ in range(3):
            full = group_of(times, batch, request, rank * decodes, rank)
            behind = max(0.0, full.passes - request.passes - 1.0)
            decodes = request.passes / max(request.passes + 1.0, full.passes)
            if request.passes <= 0.0:
                decodes = 0.0
    most = max(1.0, request.passes)
    spans = min(most, np.sqrt(width**2 + cycles * drift**2))
    even = 0.0 if most <= 1.0 else (spans - 1.0) / (most - 1.0)
    last = running * (cycles - np.floor(cycles))
    together = (np.floor(cycles) * running**2 + last**2) / requests
    drained = running * (1.0 - min(1.0, cycles) / (6.0 * max(1.0, cycles)))
    decoding = max(1.0, decodes * ((1.0 - even) * together + even * drained) / batch.ranks)
    every = total_of(pass_parts(times, batch, request, decoding, 0.0, 0.0))
    ttft, stall, groups, wait = 0.0, 0.0, 0.0, 0.0
    group, span, started, shared = burst, width, running, 0.0
    size = request.prompt / room_of(batch, request, rank * decodes)
    for cycle in range(min(_CYCLES, int(np.ceil(cycles)))):
        left = cycles - cycle
        weight = (left if cycle == _CYCLES - 1 else min(1.0, left)) / cycles
        ready = batch.request_s
        if cycle > 0 and span > 1.0 and running > 1.0:
            ready = every * np.ceil(batch.request_s / every)
        own = 0.5 * group.total if batch.mixes else group.total - group.completion
        added = own + 0.5 * max(0.0, running / started - 1.0) * group.total
        one = group.total / group.passes
        shared += weight * (0.0 if batch.mixes else own)
        queued = 0.0
        if cycle > 0 and batch.mixes:
            late = behind + _backlog(np.ceil(batch.request_s / every), size, rank, span)
            late *= 1.0 - 0.5 * min(1.0, late / width)  # the first of them wait for fewer
            queued = max(0.0, late * total_of(group.parts) / group.passes - ready)
            added -= min(added, late * one)
        ttft += weight * (ready + queued + group.completion)
        wait += weight * (ready + queued + group.wait)
        groups += weight / started
        span = min(most, np.sqrt(width**2 + (cycle + 1) * drift**2))
        started = min(running, 1.0 + (running - 1.0) / span)
        group = group_of(times, batch, request, rank * decodes, _on_rank(batch, started))
        if left > 1.0:
            added += 0.5 * max(0.0, running / started - 1.0) * group.total
        stall += weight * (min(added, request.passes * one) if batch.mixes else added)
    answer = request.passes * every + stall
    length = ttft + answer
    rate = running / length
    if waiting > 0.0:
        before = waiting * (0.5 * waiting / running + 0.5) * length
        queued = (before + max(0.0, requests - at_once) * waiting / rate) / requests
        ttft, wait = ttft + queued, wait + queued
    shortest = (1.0 - spread) * request.most
    tail = request.most - np.sqrt(2.0 * request.passes * (request.most - shortest) / running)
    half = total_of(pass_parts(times, batch, request, max(1.0, 0.5 * decoding), 0.0, 0.0))
    apart = (requests - running) / rate + max(request.passes, tail) * half + 0.5 * stall
    makespan = (1.0 - even) * np.ceil(cycles - 1e-9) * length + even * apart
    tpot = 0.0
    if request.gaps > 0.0:
        tpot = (answer + (request.short - 1.0) * shared) / request.gaps
    mean = 1.0 / groups
    group = group_of(times, batch, request, rank * decodes, _on_rank(batch, mean))
    return _Seen(ttft, tpot, wait, makespan, 1.0, decoding, mean, group)


@lean_kernel
def _backlog(gap: float, size: float, prompts: float, span: float) -> float:
    """Return for how many iterations a prompt waits for those before it, where prompts share iterations.

    The ends of requests are even over a span of passes. The prompts that follow fill `size` iterations each,
    and come `gap` passes after ends. In the gap, passes have no prompts, are short, and more
    requests end.
    """
    width = prompts * size
    load = min(1.0, width / span)
    late = min(gap - max(0.0, size - 1.0), width * (1.0 - 1.0 / prompts)) * load
    if late <= 0.0:
        return 0.0
    if late < (1.0 - load) * span:
        return 0.5 * late * late / ((1.0 - load) * span)
    return late - 0.5 * (1.0 - load) * span


@lean_kernel
def _wait_for_place(batch: Batch, request: Request, rate: float, service: float, places: float) -> float:
    """Return how long a request waits for a place on its rank [s].

    rate: of the slot [1/s]; service: how long a place is taken [s]; places: of the slot. Requests are dealt
    to ranks in turns, so each rank's come more evenly than at random.
    """
    arrivals, services = 1.0 / (batch.ranks * batch.slots), request.half_range**2 / 3.0
    return _wait(places / batch.ranks, rate * service / places, arrivals, services, service)


@lean_kernel
def _open(times: PassTimes, batch: Batch, request: Request, rate: float, requests: float) -> _Seen:
    """Return what requests see that come at random times; the makespan is inf where they are too many."""
    places = _running(batch, request, requests)
    low, high = 0.0, places
    if _residence(times, batch, request, rate, high)[0] * rate > high:
        nothing = group_of(times, batch, request, 1.0, 1.0)
        return _Seen(0.0, 0.0, 0.0, np.inf, 1.0, 1.0, 1.0, nothing)
    for _ in range(25):
        middle = 0.5 * (low + high)
        if _residence(times, batch, request, rate, middle)[0] * rate > middle:
            low = middle
        else:
            high = middle
    length = _residence(times, batch, request, rate, high)[0]
    sends = requests / rate
    if sends > length:
        others = length / sends - (length / sends) ** 2 / 3.0
    else:
        others = 1.0 - sends / (3.0 * length)
    seen = (requests - 1.0) * others
    answer, window, at_first, together = _residence(times, batch, request, rate, seen)
    decoding = 1.0 + seen / batch.ranks
    group = group_of(times, batch, request, decoding, _on_rank(batch, together))
    start = batch.request_s + window + _wait_for_place(batch, request, rate, length, places)
    wait = start + group.wait
    ttft = start + group.completion
    tpot = 0.0
    if request.gaps > 0.0:
        tpot = (answer + (request.short - 1.0) * at_first) / request.gaps
    busy = 1.0 - np.exp(-rate * (answer + group.completion))
    return _Seen(ttft, tpot, wait, sends + answer, busy, decoding, together, group)


@lean_kernel
def _residence(
    times: PassTimes, batch: Batch, request: Request, rate: float, others: float
) -> tuple[float, float, float, float]:
    """Return how long a request decodes beside so many others [s], and waits for iterations before [s].

    The third is the part of the first that prompts take right after its own [s], and the last how many
    prompts are computed together. All are inf where prompts take all the time.
    """
    decoding = 1.0 + others / batch.ranks
    every = total_of(pass_parts(times, batch, request, decoding, 0.0, 0.0))
    one = group_of(times, batch, request, decoding, 1.0)
    group, together, share, window = one, 1.0, 0.0, every
    fit = max(1.0, room_of(batch, request, decoding) / request.prompt) * batch.ranks  # in an iteration
    alone = total_of(one.parts)
    queue = rate * alone / fit
    if queue >= 0.999:
        return np.inf, np.inf, np.inf, np.inf
    busy = 1.0 - np.exp(-others - 1e-12)
    for _ in range(3):
        share = rate * group.total / together
        if share >= 0.999:
            return np.inf, np.inf, np.inf, np.inf
        mixed = total_of(group.parts)
        part = min(1.0, rate * mixed / together)
        window = part * mixed / group.passes * (1.0 - 1.0 / fit) + (1.0 - part) * busy * every
        together = min(fit, 1.0 + rate * window)
        group = group_of(times, batch, request, decoding, _on_rank(batch, together))
    services = request.half_range**2 / 3.0
    wait = 0.5 * window + _wait(fit, rate * alone / fit, 1.0, services, alone)
    at_first = share * group.total
    if not batch.mixes:
        at_first += group.total - group.completion
    at_first /= 1.0 - share
    return request.passes * every / (1.0 - share) + at_first, wait, at_first, together


@lean_kernel
def _wait(places: float, busy: float, arrivals: float, services: float, service: float) -> float:
    """Return how long one waits for one of some places [s]: Sakasegawa's approximation (1977).

    busy: share of places that are taken; arrivals, services: squared coefficients of variation; service: how
    long a place is taken [s]. Where arrivals are more even than at random, that counts as so many more places
    (Hayward's approximation; Fredericks, 1980).
    """
    busy = min(0.999, busy)
    peaks = 1.0 + (arrivals - 1.0) * (1.0 - services)
    waits = busy ** (sqrt(2.0 * (places / peaks + 1.0)) - 1.0) / (places * (1.0 - busy))
    return 0.5 * (arrivals + services) * service * waits
