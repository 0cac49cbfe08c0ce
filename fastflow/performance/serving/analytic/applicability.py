"""Where the analytic form is near the simulation: other points are simulated, if that is not too long.

The analytic form models requests that are not preempted and servers that mostly decode. The functions below
detect from its metrics what it does not model: caches that limit the batch, prompts that fill iterations,
prompts that fit none or are held back, queueing, and unequal stages and ranks. Bounds are such that over
20,000 servers and loads that `many_likely` of tests/support/servers.py draws, its time per token is within 8%
of the simulation's: within 7% of seven seeds, of `likely` and `unlikely` ones. Open loops in their stationary
state are within 7% of what three seeds of each draw.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.intake import takes_at_once
from fastflow.performance.serving.analytic.mean_request import Request, pass_parts
from fastflow.performance.serving.analytic.queueing import SlotMetrics, prompts_on_rank
from fastflow.performance.serving.passes.step_time import shared_time
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch
from fastflow.performance.serving.simulator.window import OVERLOAD_SPANS

MAX_WORK = 0.15
"""Largest share of time for prompts: beyond it, their grouping in iterations matters."""
MAX_LATE = 0.06
"""Largest share of time that iterations wait for launches of prompts: as long for one prompt as for many."""
MAX_DECODING = 0.9
"""Largest share of an iteration's tokens for requests that decode: prompts wait for what is left."""
MAX_WAIT = 0.1
"""Largest share of queueing in the time to first token of an open loop."""
MAX_SENSITIVITY = 0.2
"""Largest number of further running requests for each additional one in an open loop: near 1, bursts last."""
MAX_VARIATION = 0.05
"""Largest coefficient of variation of tokens over slots (the slot with most tokens ends last), and of the
round trips of a client over all of its time."""
MIN_REQUESTS, MIN_CYCLES, MIN_PASSES = 128, 5, 32
"""Least requests, requests one after the other (both of a closed loop), and passes of a request: with fewer,
means are not accurate."""
MAX_STEPS = 100_000
"""Most steps of a simulation that no key requests: requests plus iterations that prompts fill; 0.1 s."""
MAX_STEPS_OPEN = 400_000
"""Most steps of a simulated open loop."""
MIN_TRIPS = 2.0
"""Least time in a closed loop's queue, in round trips of requests."""
MIN_RANGE = 0.15
"""Least relative range of lengths of requests that return at different times."""
MIN_SPANS = 10.0
"""Least duration of a load, in times of a request: of shorter loads, ramp and drain are a large part."""


class Slot(NamedTuple):
    """The load of a server's slot."""

    is_uniform: bool  # lengths are uniform; for those of a file, means are not accurate
    relative_range: float  # of lengths, as in `Loads`
    prompt: float  # computed tokens of the longest prompt
    at_once: float  # requests that are sent at the start
    requests: float  # total
    slots: float  # of the server
    is_extended: bool  # the simulation, until it is stationary


@lean_kernel
def is_near(times: PassTimes, batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics) -> bool:
    """Say whether the analytic form of a slot is near its simulation, or that would take too long."""
    if takes_long(batch, slot, metrics):
        return True
    if not slot.is_uniform or request.passes < MIN_PASSES or not takes_at_once(batch):
        return False
    if batch.is_closed and (
        _has_few_requests(batch, request, slot) or _fullest_rank_load(batch, request, slot) > 1.0
    ):
        return False
    if batch.is_closed and not _are_returns_known(batch, slot, metrics):
        return False
    if not batch.is_closed and (
        metrics.queued > MAX_WAIT * metrics.ttft or metrics.sensitivity > MAX_SENSITIVITY
    ):
        return False
    if batch.mixes and batch.is_closed and not _is_room_for_prompts(batch, slot):
        return False
    is_finite = not batch.is_closed and not slot.is_extended
    if is_finite and are_too_few(metrics.makespan, metrics.ttft + metrics.tpot * request.gaps):
        return False
    prefill_budget = batch.budget - (metrics.running * batch.queries if batch.mixes else 0.0)
    if not batch.chunks and slot.prompt > prefill_budget:
        return False
    if _late_s(times, batch, request, metrics) * slot.requests > MAX_LATE * metrics.makespan * metrics.busy:
        return False
    # time that prompts add to iterations, at least that of iterations full of prompts
    budget = float(batch.budget)
    token_s = shared_time(times, batch.times, budget, budget) / budget + request.attention_s / request.prompt
    prefill_s = max(
        metrics.group.total, token_s * request.prompt * prompts_on_rank(batch, metrics.group_size)
    )
    return bool(prefill_s / metrics.group_size * slot.requests <= MAX_WORK * metrics.makespan * metrics.busy)


@lean_kernel
def _are_returns_known(batch: Batch, slot: Slot, metrics: SlotMetrics) -> bool:
    """Say whether it is known how many requests of a closed loop are back from their round trips together.

    Others of like lengths come back while prompts of the first ones are computed, and then stay with them.
    Where a burst of them takes several iterations that decode, composed ahead, they wait for prompts of the
    others. Where few queue, places of the batch wait for requests now and then. Trips of few requests vary.
    """
    trip_s, is_alike = batch.intake.round_trip_s, slot.relative_range < MIN_RANGE
    burst = np.ceil(slot.at_once / batch.ranks) * slot.prompt
    if is_alike and batch.intake.ahead and batch.mixes and burst > batch.budget:
        return False
    if trip_s == 0.0:
        return True
    if metrics.queued > 0.01 * metrics.ttft:
        are_many = not is_alike or slot.at_once >= 2.0 * batch.most * batch.ranks
        return bool(are_many and metrics.queued > MIN_TRIPS * trip_s)
    if trip_s * np.sqrt(slot.requests / slot.at_once) > MAX_VARIATION * metrics.makespan:
        return False
    return bool(slot.at_once <= 1.0 or not is_alike)


@lean_kernel
def _late_s(times: PassTimes, batch: Batch, request: Request, metrics: SlotMetrics) -> float:
    """Return how long an iteration waits for launches of its prompts, for each prompt [s]."""
    parts = pass_parts(times, batch, request, metrics.running, 0.0, 0.0)
    device_s = parts.shared + parts.head + parts.decode if batch.mixes else 0.0
    return max(0.0, batch.host.eager_s - device_s) / metrics.group_size


@lean_kernel
def _is_room_for_prompts(batch: Batch, slot: Slot) -> bool:
    """Say whether iterations have room for prompts where as many requests decode as run."""
    rank = min(float(batch.most), slot.at_once / batch.ranks)
    return bool(rank * batch.queries <= MAX_DECODING * batch.budget)


@lean_kernel
def takes_long(batch: Batch, slot: Slot, metrics: SlotMetrics) -> bool:
    """Say whether the simulation of a slot would take too long, where no key requests it."""
    most = MAX_STEPS if batch.is_closed else MAX_STEPS_OPEN
    return bool(steps_of(batch, slot, metrics.running * batch.ranks) > most)


@lean_kernel
def are_too_few(sending_s: float, request_s: float) -> bool:
    """Say whether requests of an open loop are too few for a stationary state.

    sending_s: duration of their arrivals [s]; request_s: from sending to the last token [s].
    """
    return bool(sending_s < MIN_SPANS * request_s)


@lean_kernel
def steps_of(batch: Batch, slot: Slot, decoding: float) -> float:
    """Return the steps of a simulation, as `MAX_STEPS` counts them; decoding: requests of the slot."""
    requests = slot.slots * slot.requests
    if slot.is_extended:
        requests = max(requests, 2.0 * OVERLOAD_SPANS * slot.slots * decoding)
    return float(requests * (1.0 + slot.prompt / batch.budget))


@lean_kernel
def _has_few_requests(batch: Batch, request: Request, slot: Slot) -> bool:
    """Say whether the requests of a closed loop are too few for accurate means."""
    if batch.ranks > 1 and slot.slots * slot.requests < MIN_REQUESTS:
        return True
    has_few_cycles = slot.requests < MIN_CYCLES * slot.at_once
    if has_few_cycles and (slot.relative_range > 0.0 or slot.at_once > batch.most * batch.ranks):
        return True
    return bool(slot.slots > 1.0 and request.half_range > MAX_VARIATION * np.sqrt(3.0 * slot.requests))


@lean_kernel
def _fullest_rank_load(batch: Batch, request: Request, slot: Slot) -> float:
    """Return the load of a closed loop's fullest rank over its cache, or over its batch where ranks differ.

    Requests are assigned to ranks round-robin, and those of unequal lengths end at random: two standard
    deviations more.
    """
    rank = min(float(batch.most), np.ceil(slot.at_once / batch.ranks))
    if batch.ranks == 1:
        return float(rank * request.largest / batch.capacity)
    if slot.relative_range > 0.0:
        rank = slot.at_once / batch.ranks
        rank = min(float(batch.most), rank) + 2.0 * np.sqrt(rank)
    return float(max(rank * request.largest / batch.capacity, rank / (batch.most + 0.5)))
