"""The analytic form of a closed loop: when a request ends, the next one is sent.

Some requests run and the others queue. The first requests start as a burst, later ones when others end, in
groups. Answers of equal length end together. Ends of answers of unequal lengths drift from cycle to cycle,
until they are uniform over a whole cycle. Where prompts share iterations with decoding, the burst itself
spreads the ends. A cycle is the time of the prompts of a request's group, of its passes, and of other groups'
prompts meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.first_tokens import (
    FirstTokens,
    Intervals,
    Prompts,
    add_even_groups,
    add_random_groups,
    first_tokens_of,
    sum_of,
)
from fastflow.performance.serving.analytic.intake import Return, return_of, share_of_waits, trip_passes
from fastflow.performance.serving.analytic.mean_request import (
    Decoding,
    Group,
    Request,
    decoding_of,
    group_of,
    group_of_ranks,
    total_time,
)
from fastflow.performance.serving.analytic.queueing import (
    SlotMetrics,
    last_passes,
    prompts_on_rank,
    running_of,
    share_of_ranks,
    tpot_of,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import longest
from fastflow.performance.serving.simulator.scheduler import Batch

FEW_WAIT = 1.02
"""Requests of a closed loop over those that run, up to which hardly any wait for room in the batch."""
_CYCLES = 12  # with separate terms; the last one stands for all that follow
_WAITS = 4  # intervals of the rest of an iteration after a round trip
_LEAST = 1e-6  # least share of requests with a wait


class _Loop(NamedTuple):
    """The closed loop of a slot."""

    running: float  # running requests
    rank: float  # running requests of a rank
    cycles: float  # requests one after the other
    width: float  # passes over which ends of the first cycle are uniform, with answers of equal length
    drift: float  # passes by which a cycle widens it, as a sum of squares
    most: float  # passes of a cycle
    evenness: float  # of ends in the last cycle: 0: all together; 1: over the whole cycle
    decoding_share: float  # of running requests, in a pass
    delay: float  # passes that a prompt waits because prompts fill every iteration
    decoding: float  # requests of a rank in a pass, mean over requests
    pass_s: float  # such a pass without prompts [s]
    returning: float  # share of requests for which the batch waits: those after the burst, or none
    together: float  # share of requests whose ends leave the slot idle


class _Ends(NamedTuple):
    """Ends of a cycle's requests, which the next ones follow."""

    span: float  # passes over which they are uniform
    drifted: float  # share whose times are random
    group_size: float  # requests that end together, mean over requests


class _Cycle(NamedTuple):
    """Times of a request in a cycle, mean over all [s]."""

    ttft: float  # once it runs
    wait: float  # until its prompt starts
    stall: float  # time of prompts between its first and last tokens
    shared: float  # part of the stall by its group: the same for short answers
    groups: float  # groups of prompts per request (no time)


@lean_kernel
def closed_loop_metrics(
    times: PassTimes, batch: Batch, request: Request, relative_range: float, at_once: float, requests: float
) -> SlotMetrics:
    """Return the metrics of a slot's requests; at_once: requests that are sent at the start."""
    loop = _loop(times, batch, request, relative_range, at_once, requests)
    cycle = _mean_cycle(times, batch, request, loop)
    answer = request.passes * loop.pass_s + cycle.stall
    mean_pass_s = answer / request.passes if request.passes > 0.0 else loop.pass_s
    returns = return_of(batch, mean_pass_s, 1.0 - loop.together)
    away, returned = loop.returning * returns.away, loop.returning * returns.wait
    length = cycle.ttft + answer + away + returned
    waiting, queued = at_once - loop.running, 0.0
    if waiting > 0.0:  # requests of the start wait for whole cycles, others for those before them
        first = waiting * (0.5 * waiting / loop.running + 0.5) * length
        other = max(0.0, waiting * length / loop.running - batch.intake.round_trip_s)
        queued = (first + max(0.0, requests - at_once) * other) / requests
    group_size = 1.0 / cycle.groups
    return SlotMetrics(
        ttft=queued + returned + cycle.ttft,
        tpot=tpot_of(request, answer, cycle.shared),
        answer=answer if request.gaps > 0.0 else 0.0,
        wait=queued + returned + cycle.wait,
        queued=queued,
        behind=0.0,
        sensitivity=0.0,
        makespan=_makespan(times, batch, request, loop, length, cycle.stall, relative_range),
        busy=1.0 - loop.together * away / length,
        running=loop.decoding,
        group_size=group_size,
        group=_group(times, batch, request, loop, group_size),
    )


@lean_kernel
def closed_loop_first_tokens(
    times: PassTimes,
    batch: Batch,
    request: Request,
    relative_range: float,
    at_once: float,
    requests: float,
    queued: float,
    intervals: Intervals,
) -> FirstTokens:
    """Return the times to first token of a slot's requests, of the burst and of later cycles.

    queued: until the batch has room, mean [s]: few requests wait. intervals: overwritten.
    """
    loop = _loop(times, batch, request, relative_range, at_once, requests)
    returns = Return(0.0, 0.0, 1.0, 0.0)
    if loop.returning > 0.0:
        returns = return_of(batch, loop.pass_s, 1.0 - loop.together)
    intervals.used[0] = 0
    decoding = _decoding_in_burst(times, batch, request, loop.rank)
    prompts = Prompts(decoding, loop.running - 1.0, 0.0, 0.0)
    add_even_groups(times, batch, request, prompts, min(1.0, loop.cycles), intervals)
    burst, cycle = sum_of(intervals), 1.0
    while cycle < loop.cycles:  # the second and the third one, and those that follow
        stop = cycle + 1.0 if cycle < 3.0 else loop.cycles
        weight = min(stop, loop.cycles) - cycle
        ends = _ends_of(loop, 0.5 * (cycle + stop - 1.0))
        others = loop.rank - prompts_on_rank(batch, ends.group_size)
        if batch.ranks > 1:  # most decode on a rank without prompts
            others = min(loop.rank, loop.running - ends.group_size)
        decoding = decoding_of(times, batch, request, others * loop.decoding_share)
        _add_later(times, batch, request, loop, ends, returns, decoding, weight, intervals)
        cycle = stop
    return first_tokens_of(intervals, queued, burst)


@lean_kernel
def _add_later(
    times: PassTimes,
    batch: Batch,
    request: Request,
    loop: _Loop,
    ends: _Ends,
    returns: Return,
    decoding: Decoding,
    weight: float,
    intervals: Intervals,
) -> None:
    """Add the times of requests that follow others; decoding: requests of a rank that decode meanwhile."""
    ahead = 1.0 if batch.intake.ahead else 0.0
    waits = 0  # intervals of the waits of requests that come while others run
    if returns.wait > 0.0:
        waits = _WAITS if returns.away > 0.0 else 1
    for i in range(waits + 1):
        share, low, high = 1.0, 0.0, 0.0
        if waits > 0:
            share = returns.busy if i < waits else 1.0 - returns.busy
        if i < waits:
            low = high = ahead * returns.pass_s
        if i < waits and returns.away > 0.0:
            share *= share_of_waits(returns, i / waits, (i + 1.0) / waits)
            low, high = low + returns.pass_s * i / waits, high + returns.pass_s * (i + 1.0) / waits
        if share < _LEAST:
            continue
        prompts = Prompts(decoding, ends.group_size - 1.0, low, high)
        add_random_groups(times, batch, request, prompts, weight * share * ends.drifted, intervals)
        together = min(loop.running, max(1.0, loop.running / ends.span))
        prompts = Prompts(decoding, together - 1.0, low, high)
        add_even_groups(times, batch, request, prompts, weight * share * (1.0 - ends.drifted), intervals)


@lean_kernel
def _ends_of(loop: _Loop, cycle: float) -> _Ends:
    """Return how the ends of a cycle's requests are distributed; cycle: 0 is the burst's."""
    span = min(loop.most, np.sqrt(loop.width**2 + cycle * loop.drift**2))
    drifted = 1.0 - (loop.width / span) ** 2 if span > loop.width else 0.0
    return _Ends(span, drifted, min(loop.running, max(1.0, (loop.running - drifted) / span + drifted)))


@lean_kernel
def is_single_iteration(batch: Batch, request: Request, rank: float) -> bool:
    """Say whether all prompts of a burst fit into an iteration; rank: prompts of a rank."""
    return bool(rank * request.prompt * (1.0 + request.half_range) <= batch.budget)


@lean_kernel
def _decoding_in_burst(times: PassTimes, batch: Batch, request: Request, rank: float) -> Decoding:
    """Return the requests of a rank that decode in the iterations of the burst, mean; none if it is one."""
    requests = 0.0 if is_single_iteration(batch, request, rank) else 0.5 * (rank - 1.0)
    return decoding_of(times, batch, request, requests)


@lean_kernel
def _loop(
    times: PassTimes, batch: Batch, request: Request, relative_range: float, at_once: float, requests: float
) -> _Loop:
    running = running_of(batch, request, at_once)
    cycles, rank = requests / running, max(1.0, running / batch.ranks)
    width, decoding_share, delay = 1.0, 1.0, 0.0
    if batch.mixes:
        width = group_of(times, batch, request, _decoding_in_burst(times, batch, request, rank), rank).passes
        # a cycle has iterations for all prompts, whose number depends on decoding requests
        for _ in range(3):
            decoding = decoding_of(times, batch, request, rank * decoding_share)
            passes = group_of(times, batch, request, decoding, rank).passes
            delay = max(0.0, passes - request.passes - 1.0)
            decoding_share = request.passes / max(request.passes + 1.0, passes)
    drift = relative_range * longest(request.gaps + 1.0, relative_range) / batch.per_pass
    most = max(1.0, request.passes)
    returning, together = 0.0, 0.0
    if at_once <= FEW_WAIT * running:  # else others wait for their places
        full_s = decoding_of(times, batch, request, max(1.0, rank * decoding_share)).pass_s
        drift = np.sqrt(drift**2 + trip_passes(batch, full_s) ** 2)
        returning, together = 1.0 - 1.0 / max(1.0, cycles), _together(running, np.sqrt(width**2 + drift**2))
        returns = return_of(batch, full_s, 1.0 - together)
        decoding_share *= most / (most + returning * (returns.away + returns.wait) / full_s)
    span = min(most, np.sqrt(width**2 + cycles * drift**2))
    evenness = 0.0 if most <= 1.0 else (span - 1.0) / (most - 1.0)
    # the last requests run with fewer others: a smaller last cohort, or fewer and fewer
    full_cycles = np.floor(cycles)
    cohorts = running * (full_cycles + (cycles - full_cycles) ** 2) / cycles
    drained = running * (1.0 - min(1.0, cycles) / (6.0 * max(1.0, cycles)))
    running_mean = (1.0 - evenness) * cohorts + evenness * drained
    decoding_mean = max(1.0, decoding_share * running_mean / batch.ranks)
    pass_s = decoding_of(times, batch, request, decoding_mean).pass_s
    return _Loop(
        running,
        rank,
        cycles,
        width,
        drift,
        most,
        evenness,
        decoding_share,
        delay,
        decoding_mean,
        pass_s,
        returning,
        together,
    )


@lean_kernel
def _together(running: float, span: float) -> float:
    """Return the share of requests whose ends leave the slot idle: all others ended in the same pass.

    span: passes over which ends are uniform. A fraction of the slots has one request more.
    """
    low = np.floor(running)
    more, alone = running - low, span ** (1.0 - low)
    return float((low * (1.0 - more) * alone + (low + 1.0) * more * alone / span) / running)


@lean_kernel
def _mean_cycle(times: PassTimes, batch: Batch, request: Request, loop: _Loop) -> _Cycle:
    """Return the times of requests in a cycle: of the burst, and of later requests.

    Of the other groups, half come after the request's group, at the start of its passes, and half of those
    that follow the request come before its end.
    """
    ttft, wait, stall, shared, groups = 0.0, 0.0, 0.0, 0.0, 0.0
    decoding = _decoding_in_burst(times, batch, request, loop.rank)
    group = group_of(times, batch, request, decoding, loop.rank)
    group_size = loop.running  # prompts in a group
    for cycle in range(min(_CYCLES, int(np.ceil(loop.cycles)))):
        cycles_left = loop.cycles - cycle
        weight = (cycles_left if cycle == _CYCLES - 1 else min(1.0, cycles_left)) / loop.cycles
        stall_of_group = group.total - group.completion
        if batch.mixes:  # its iterations decode, too
            stall_of_group = group.total * max(0.0, 1.0 - group.completion / total_time(group.parts))
        added = stall_of_group + 0.5 * max(0.0, loop.running / group_size - 1.0) * group.total
        pass_stall, queued = group.total / group.passes, 0.0
        if cycle > 0 and batch.mixes:
            # prompts wait for those before them, the first prompts for fewer
            delay = loop.delay * (1.0 - 0.5 * min(1.0, loop.delay / loop.width))
            queued = delay * total_time(group.parts) / group.passes
            added -= min(added, delay * pass_stall)
        ttft += weight * (queued + group.completion)
        wait += weight * (queued + group.wait)
        shared += 0.0 if batch.mixes else weight * stall_of_group
        groups += weight / group_size
        group_size = _ends_of(loop, cycle + 1.0).group_size
        group = _group(times, batch, request, loop, group_size)
        if cycles_left > 1.0:
            added += 0.5 * max(0.0, loop.running / group_size - 1.0) * group.total
        stall += weight * (min(added, request.passes * pass_stall) if batch.mixes else added)
    return _Cycle(ttft, wait, stall, shared, groups)


@lean_kernel
def _group(times: PassTimes, batch: Batch, request: Request, loop: _Loop, group_size: float) -> Group:
    """Return the times of some prompts of a slot that are computed together, while all others decode."""
    prompts = prompts_on_rank(batch, group_size)
    # of several ranks, some have no prompt: all of their requests decode
    others = loop.rank - prompts if batch.ranks == 1 else min(loop.rank, loop.running - group_size)
    decoding = decoding_of(times, batch, request, others * loop.decoding_share)
    return group_of_ranks(times, batch, request, decoding, prompts, share_of_ranks(batch, group_size))


@lean_kernel
def _makespan(
    times: PassTimes,
    batch: Batch,
    request: Request,
    loop: _Loop,
    length: float,
    stall: float,
    relative_range: float,
) -> float:
    """Return the time until all requests have ended [s]: cohort by cohort, or with uniform ends.

    length: of a cycle [s]. With uniform ends, the first requests end over a cycle after the burst, which is
    half a cycle more. The last requests run with half as many others.
    """
    last = last_passes(request, relative_range, loop.running)
    half_s = decoding_of(times, batch, request, max(1.0, 0.5 * loop.decoding)).pass_s
    uniform_s = (loop.cycles - 0.5) * length + last * half_s + 0.5 * stall
    return float((1.0 - loop.evenness) * np.ceil(loop.cycles - 1e-9) * length + loop.evenness * uniform_s)
