"""The fast form of a closed loop: each request that ends is followed by the next.

Of all requests some run and the rest waits. They start as one burst. All that follow start when others end,
in groups. Answers of one length end together, and those of spread lengths drift apart from cycle to cycle,
until ends are even over a whole cycle. Where prompts share iterations, the burst itself sets requests apart.
A cycle is the prompts of a request's own group, its passes, and what other groups' prompts add to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import Group, Request, group_of, pass_parts, total_of
from fastflow.performance.serving.analytic.queueing import Seen, last_passes, on_rank, running_of, tpot_of
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import longest
from fastflow.performance.serving.simulator.scheduler import Batch

_CYCLES = 12  # that are told apart; the last one stands for all that follow


class _Loop(NamedTuple):
    """A slot's closed loop."""

    running: float  # requests that run
    rank: float  # of them on a rank
    cycles: float  # requests one after the other on a place
    width: float  # passes over which the ends of the first cycle would be even with answers all alike
    drift: float  # and by which a cycle widens that, as a sum of squares
    most: float  # passes of a cycle
    even: float  # how even ends are in the last cycle: 0 all together, 1 over the whole cycle
    decodes: float  # share of those that run, in a pass
    behind: float  # passes that a prompt waits because prompts fill every iteration
    decoding: float  # requests of a rank in a pass, as a request sees it
    every: float  # such a pass without prompts [s]


class _Cycle(NamedTuple):
    """What a request sees in a cycle, mean over all; [s]."""

    ttft: float  # once it has a place
    wait: float  # until its prompt starts
    stall: float  # what prompts add between its first and last tokens
    shared: float  # of it, what its own group adds: the same for short answers
    groups: float  # groups of prompts for each request, no time


@lean_kernel
def closed(
    times: PassTimes, batch: Batch, request: Request, spread: float, at_once: float, requests: float
) -> Seen:
    """Return what a slot's requests see; at_once: those that are sent without waiting for others."""
    loop = _loop(times, batch, request, spread, running_of(batch, request, at_once), requests)
    cycle = _mean_cycle(times, batch, request, loop)
    answer = request.passes * loop.every + cycle.stall
    length = cycle.ttft + answer
    waiting, queued = at_once - loop.running, 0.0
    if waiting > 0.0:  # the first ones wait for whole cycles, all others for those before them
        first = waiting * (0.5 * waiting / loop.running + 0.5) * length
        others = max(0.0, requests - at_once) * waiting * length / loop.running
        queued = (first + others) / requests
    together = 1.0 / cycle.groups
    return Seen(
        ttft=queued + cycle.ttft,
        tpot=tpot_of(request, answer, cycle.shared),
        wait=queued + cycle.wait,
        placed=queued,
        steep=0.0,
        makespan=_makespan(times, batch, request, loop, length, cycle.stall, spread),
        busy=1.0,
        running=loop.decoding,
        together=together,
        group=_group(times, batch, request, loop, together),
    )


@lean_kernel
def _loop(
    times: PassTimes, batch: Batch, request: Request, spread: float, running: float, requests: float
) -> _Loop:
    cycles, rank = requests / running, max(1.0, running / batch.ranks)
    width, decodes, behind = 1.0, 1.0, 0.0
    if batch.mixes:
        width = group_of(times, batch, request, 0.5 * (rank - 1.0), rank).passes
        for _ in range(3):  # a cycle has room for all prompts, whose room depends on how many decode
            passes = group_of(times, batch, request, rank * decodes, rank).passes
            behind = max(0.0, passes - request.passes - 1.0)
            decodes = request.passes / max(request.passes + 1.0, passes)
    drift = spread * longest(request.gaps + 1.0, spread) / batch.per_pass
    most = max(1.0, request.passes)
    span = min(most, np.sqrt(width**2 + cycles * drift**2))
    even = 0.0 if most <= 1.0 else (span - 1.0) / (most - 1.0)
    # the last requests have fewer beside them: a smaller last cohort, or ever fewer
    whole = np.floor(cycles)
    cohorts = running * (whole + (cycles - whole) ** 2) / cycles
    drained = running * (1.0 - min(1.0, cycles) / (6.0 * max(1.0, cycles)))
    decoding = max(1.0, decodes * ((1.0 - even) * cohorts + even * drained) / batch.ranks)
    every = total_of(pass_parts(times, batch, request, decoding, 0.0, 0.0))
    return _Loop(running, rank, cycles, width, drift, most, even, decodes, behind, decoding, every)


@lean_kernel
def _mean_cycle(times: PassTimes, batch: Batch, request: Request, loop: _Loop) -> _Cycle:
    """Return what requests see in a cycle: the burst, and those that follow.

    Of the groups beside a request's own, half come after its own group, at the start of its passes, and half
    of those that follow it come before its end.
    """
    ttft, wait, stall, shared, groups = 0.0, 0.0, 0.0, 0.0, 0.0
    group = group_of(times, batch, request, 0.5 * (loop.rank - 1.0), loop.rank)
    span, together = loop.width, loop.running  # passes over which ends are even; prompts in a group
    for cycle in range(min(_CYCLES, int(np.ceil(loop.cycles)))):
        left = loop.cycles - cycle
        weight = (left if cycle == _CYCLES - 1 else min(1.0, left)) / loop.cycles
        own = group.total - group.completion
        if batch.mixes:  # which has what would decode without prompts, too
            own = group.total * max(0.0, 1.0 - group.completion / total_of(group.parts))
        added = own + 0.5 * max(0.0, loop.running / together - 1.0) * group.total
        one, queued = group.total / group.passes, 0.0
        if cycle > 0 and batch.mixes:
            # prompts wait for those before them, the first ones for fewer
            late = loop.behind * (1.0 - 0.5 * min(1.0, loop.behind / loop.width))
            queued = late * total_of(group.parts) / group.passes
            added -= min(added, late * one)
        ttft += weight * (queued + group.completion)
        wait += weight * (queued + group.wait)
        shared += 0.0 if batch.mixes else weight * own
        groups += weight / together
        span = min(loop.most, np.sqrt(loop.width**2 + (cycle + 1) * loop.drift**2))
        drifted = 1.0 - (loop.width / span) ** 2 if span > loop.width else 0.0
        together = min(loop.running, max(1.0, (loop.running - drifted) / span + drifted))
        group = _group(times, batch, request, loop, together)
        if left > 1.0:
            added += 0.5 * max(0.0, loop.running / together - 1.0) * group.total
        stall += weight * (min(added, request.passes * one) if batch.mixes else added)
    return _Cycle(ttft, wait, stall, shared, groups)


@lean_kernel
def _group(times: PassTimes, batch: Batch, request: Request, loop: _Loop, together: float) -> Group:
    """Return what so many prompts of a slot take that are there together, beside all others that decode."""
    own = on_rank(batch, together)
    return group_of(times, batch, request, max(0.0, loop.rank - own) * loop.decodes, own)


@lean_kernel
def _makespan(
    times: PassTimes,
    batch: Batch,
    request: Request,
    loop: _Loop,
    length: float,
    stall: float,
    spread: float,
) -> float:
    """Return how long it takes until all requests have ended [s]: cohort by cohort, or place by place.

    length: of a cycle [s]. Place by place, the first ones end a cycle after the burst and not at once, which
    is half a cycle more. The last ones have half as many beside them.
    """
    last = last_passes(request, spread, loop.running)
    half = total_of(pass_parts(times, batch, request, max(1.0, 0.5 * loop.decoding), 0.0, 0.0))
    by_place = (loop.cycles - 0.5) * length + last * half + 0.5 * stall
    return float((1.0 - loop.even) * np.ceil(loop.cycles - 1e-9) * length + loop.even * by_place)
