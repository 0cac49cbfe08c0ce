"""Where the fast form is near the simulation: elsewhere a point is simulated, if that is not too long.

The fast form knows requests that keep their places and servers that mostly decode. What it does not know is
told here by its own figures: caches that limit how many run, prompts that fill iterations, prompts that fit
none, waits for a place, and stages and ranks that are not alike. Bounds are such that over 20,000 servers and
loads that `many_likely` of tests/support/servers.py draws, its time per token is within 8% of the
simulation's: within 7% of seven seeds, of `likely` and `unlikely` ones. Open loops in their stationary state
are within 7% of what three seeds of each draw.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import Request
from fastflow.performance.serving.analytic.queueing import Seen, on_rank
from fastflow.performance.serving.passes.step_time import shared_time
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch
from fastflow.performance.serving.simulator.window import OVERLOAD_SPANS

MOST_WORK = 0.15
"""Share of time that prompts take: beyond it how they meet in iterations matters."""
MOST_WAIT = 0.1
"""Share of a first token's time in an open loop that is waiting for a place."""
MOST_STEEP = 0.2
"""Further requests that run for each one more in an open loop: near 1 a burst stays for long."""
MOST_UNEVEN = 0.05
"""Standard deviation of the tokens of stages' requests, in their mean: the stage with most ends last."""
FEW_REQUESTS, FEW_CYCLES, FEW_PASSES = 128, 5, 32
"""Requests in all and one after the other on a place, both of a closed loop, and passes of each: of fewer,
means are not enough."""
MOST_STEPS = 100_000
"""Of a simulation that nobody asks for: requests, each with the iterations that its prompt fills; 0.1 s."""
MOST_STEPS_OPEN = 400_000
"""The same of an open loop."""
FEW_SPANS = 10.0
"""Times that as many requests as are asked for last as long as one: of fewer, ramp and drain are much."""


class Slot(NamedTuple):
    """What is asked of one of a server's slots."""

    is_uniform: bool  # lengths are; those of a file are not, and means are not enough
    spread: float
    prompt: float  # tokens of the longest prompt that are computed
    at_once: float  # requests that are sent without waiting for others
    requests: float  # in all
    slots: float  # of the server
    goes_on: bool  # a simulation does, until it is stationary


@lean_kernel
def is_near(times: PassTimes, batch: Batch, request: Request, slot: Slot, seen: Seen) -> bool:
    """Say whether the fast form of a slot is near its simulation, or that would take too long."""
    if takes_long(batch, slot, seen):
        return True
    if not slot.is_uniform or request.passes < FEW_PASSES:
        return False
    if batch.is_closed and (_are_few(batch, request, slot) or _fullest(batch, request, slot) > 1.0):
        return False
    if not batch.is_closed and (seen.placed > MOST_WAIT * seen.ttft or seen.steep > MOST_STEEP):
        return False
    is_finite = not batch.is_closed and not slot.goes_on
    if is_finite and are_brief(seen.makespan, seen.ttft + seen.tpot * request.gaps):
        return False
    room = batch.budget - (seen.running * batch.queries if batch.mixes else 0.0)
    if not batch.chunks and slot.prompt > room:
        return False
    # what prompts add to iterations; and would if iterations were never free for them
    budget = float(batch.budget)
    token_s = shared_time(times, batch.times, budget) / budget + request.whole_s / request.prompt
    work = max(seen.group.total, token_s * request.prompt * on_rank(batch, seen.together))
    return bool(work / seen.together * slot.requests <= MOST_WORK * seen.makespan * seen.busy)


@lean_kernel
def takes_long(batch: Batch, slot: Slot, seen: Seen) -> bool:
    """Say whether the simulation of a slot would take too long, where nobody asks for it."""
    most = MOST_STEPS if batch.is_closed else MOST_STEPS_OPEN
    return bool(steps_of(batch, slot, seen.running * batch.ranks) > most)


@lean_kernel
def are_brief(sends: float, whole: float) -> bool:
    """Say whether requests of an open loop are too few for a stationary state.

    sends: for how long they are sent [s]; whole: from sending to the last token [s].
    """
    return bool(sends < FEW_SPANS * whole)


@lean_kernel
def steps_of(batch: Batch, slot: Slot, decoding: float) -> float:
    """Return how long a simulation would be, as `MOST_STEPS` counts it; decoding: requests of the slot."""
    requests = slot.slots * slot.requests
    if slot.goes_on:
        requests = max(requests, 2.0 * OVERLOAD_SPANS * slot.slots * decoding)
    return float(requests * (1.0 + slot.prompt / batch.budget))


@lean_kernel
def _are_few(batch: Batch, request: Request, slot: Slot) -> bool:
    """Say whether the requests of a closed loop are too few for means."""
    if batch.ranks > 1 and slot.slots * slot.requests < FEW_REQUESTS:
        return True
    if slot.spread > 0.0 and slot.requests < FEW_CYCLES * slot.at_once:
        return True
    return bool(slot.slots > 1.0 and request.half_range > MOST_UNEVEN * np.sqrt(3.0 * slot.requests))


@lean_kernel
def _fullest(batch: Batch, request: Request, slot: Slot) -> float:
    """Return what a closed loop wants of its fullest rank's room for tokens, or places where ranks differ.

    Requests come to ranks in turns, and those of unlike lengths end at random: two standard deviations more.
    """
    rank = min(float(batch.most), np.ceil(slot.at_once / batch.ranks))
    if batch.ranks == 1:
        return float(rank * request.largest / batch.capacity)
    if slot.spread > 0.0:
        rank = slot.at_once / batch.ranks
        rank = min(float(batch.most), rank) + 2.0 * np.sqrt(rank)
    return float(max(rank * request.largest / batch.capacity, rank / (batch.most + 0.5)))
