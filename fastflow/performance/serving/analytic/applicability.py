"""Where the analytic form is near the simulation: other points are simulated, if that is not too long.

The analytic form models requests that are not preempted and servers that mostly decode. The functions below
detect from its metrics what it does not model: caches that limit the batch, prompts that fill iterations,
prompts that fit none or are held back, queueing, requests of like lengths that come back together, first uses
of kernels, and unequal stages and ranks. Bounds are such that over 7,000 servers and loads that `many_likely`
of tests/support/servers.py draws with `likely`, of which 1,360 are near, means and medians of times to first
token and per token are within 8% of the simulation's; with `unlikely`, all but a value (10%) of 89 servers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.closed_loop import is_single_iteration
from fastflow.performance.serving.analytic.first_tokens import FirstTokens
from fastflow.performance.serving.analytic.intake import takes_at_once
from fastflow.performance.serving.analytic.mean_request import Request, decode_parts, total_time
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
MAX_WAIT = 0.04
"""Largest share of queueing in the time to first token: for room in the batch, and for other prompts."""
MAX_WIDTH = 0.1
"""Largest relative distance of the quantiles next to the median time to first token: beyond it, whether a
prompt takes an iteration more decides on the median."""
MAX_BURST_ERROR = 0.07
"""Largest error of the mean time to first token by chance, at two standard deviations: by the lengths of the
few prompts of a closed loop's first burst."""
MAX_BURST = 0.75
"""Largest part of the mean time to first token that a burst is, whose prompts share iterations with decoding
requests."""
MAX_UNEVENNESS = 0.08
"""Largest share of an iteration that attention takes longer on the rank with the longest contexts."""
MAX_SENSITIVITY = 0.2
"""Largest number of further running requests for each additional one in an open loop: near 1, bursts last."""
MAX_VARIATION = 0.05
"""Largest coefficient of variation of tokens over slots (the slot with most tokens ends last), and of the
round trips of a client over all of its time."""
MIN_REQUESTS, MIN_CYCLES, MIN_PASSES = 128, 5, 32
"""Least requests, requests one after the other (both of a closed loop), and passes of a request: with fewer,
means are not accurate."""
MIN_WAITS = 64
"""Least requests of a closed loop that wait for iterations composed ahead, or after round trips."""
MIN_OF_SLOT = 4
"""Least requests at once of a closed loop's slots, if some have one more than others."""
MAX_STEPS = 100_000
"""Most steps of a simulation that no key requests: requests plus iterations that prompts fill; 0.1 s."""
MAX_STEPS_OPEN = 400_000
"""Most steps of a simulated open loop."""
MIN_RANGE = 0.15
"""Least relative range of lengths of requests that return at different times."""
MIN_WIDE_RANGE = 0.25
"""The same where requests of like lengths are kept together."""
MAX_CHANCE = 0.045
"""Largest error of the median time to first token by chance, at two standard deviations: by the rests of
iterations that few requests wait for after round trips."""
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
def is_accurate(
    times: PassTimes,
    batch: Batch,
    request: Request,
    slot: Slot,
    metrics: SlotMetrics,
    first_tokens: FirstTokens,
) -> bool:
    """Say whether the analytic form of a slot is near its simulation."""
    if not slot.is_uniform or request.passes < MIN_PASSES:
        return False
    if not takes_at_once(batch) or batch.host.first_use_s > 0.0:
        return False
    if batch.graph.step > 1 and not batch.graph.pads:  # some of the numbers of requests have no graph
        return False
    if slot.relative_range > 0.0 and first_tokens.width > MAX_WIDTH:
        return False
    if batch.is_closed and not _is_closed_loop_accurate(batch, request, slot, metrics, first_tokens):
        return False
    if metrics.queued + metrics.behind > MAX_WAIT * first_tokens.mean:
        return False
    if not batch.is_closed and not _has_room(batch, request, metrics):
        return False
    if batch.mixes and batch.is_closed and not _is_room_for_prompts(batch, slot):
        return False
    is_finite = not batch.is_closed and not slot.is_extended
    if is_finite and are_too_few(metrics.makespan, first_tokens.mean + metrics.tpot * request.gaps):
        return False
    prefill_budget = batch.budget - (metrics.running * batch.queries if batch.mixes else 0.0)
    if not batch.chunks and slot.prompt > prefill_budget:
        return False
    if _unevenness(times, batch, request, slot, metrics) > MAX_UNEVENNESS:
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
def _is_closed_loop_accurate(
    batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics, first_tokens: FirstTokens
) -> bool:
    """Say whether means and medians of a closed loop are accurate, as far as its requests tell.

    Requests of equal lengths arrive together for ever. Where their prompts share several iterations with
    decoding requests, those of a cycle depend on those of the cycle before.
    """
    if _has_few_requests(batch, request, slot) or _fullest_rank_load(batch, request, slot) > 1.0:
        return False
    if batch.intake.round_trip_s > 0.0 and not _are_returns_known(
        batch, request, slot, metrics, first_tokens
    ):
        return False
    rank = np.ceil(slot.at_once / batch.ranks)
    if batch.mixes and not is_single_iteration(batch, request, rank):
        is_most = first_tokens.burst > MAX_BURST * first_tokens.mean
        if slot.relative_range == 0.0 or is_most:
            return False
    if slot.slots > 1.0 and slot.at_once < MIN_OF_SLOT and slot.at_once != np.floor(slot.at_once):
        return False
    error = 2.0 * request.half_range / np.sqrt(3.0 * slot.at_once) * first_tokens.burst
    return bool(error <= MAX_BURST_ERROR * first_tokens.mean)


@lean_kernel
def _are_returns_known(
    batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics, first_tokens: FirstTokens
) -> bool:
    """Say whether it is known how many requests of a closed loop are back from their round trips together.

    Others of like lengths come back while prompts of the first ones are computed, and then stay with them.
    Where lengths are alike and prompts share iterations or ranks, requests stay together that came together.
    The trips of few requests vary.
    """
    trip_s = batch.intake.round_trip_s
    if trip_s * np.sqrt(slot.requests / slot.at_once) > MAX_VARIATION * metrics.makespan:
        return False
    if slot.at_once <= 1.0:
        return True
    if slot.relative_range < MIN_RANGE or (
        slot.relative_range < MIN_WIDE_RANGE and (batch.mixes or batch.ranks > 1)
    ):
        return False
    error = metrics.answer / request.passes / np.sqrt(slot.slots * slot.requests)
    return bool(error <= MAX_CHANCE * first_tokens.median)


@lean_kernel
def _has_room(batch: Batch, request: Request, metrics: SlotMetrics) -> bool:
    """Say whether a rank has room for an open loop's requests, with two standard deviations more of them.

    Bursts are served soon.
    """
    most = metrics.running + 2.0 * np.sqrt(metrics.running)
    has_room = most <= batch.most and most * request.largest <= batch.capacity
    return bool(has_room and metrics.sensitivity <= MAX_SENSITIVITY)


@lean_kernel
def _unevenness(times: PassTimes, batch: Batch, request: Request, slot: Slot, metrics: SlotMetrics) -> float:
    """Return the share of an iteration that attention takes longer on the rank with the longest contexts.

    Contexts are as uniform numbers: the largest of n is (n - 1) / (n + 1) of their half range above the mean.
    """
    ranks = min(float(batch.ranks), slot.at_once) if batch.is_closed else float(batch.ranks)
    if ranks <= 1.0:
        return 0.0
    parts = decode_parts(times, batch, request, metrics.running)
    half_range = np.sqrt(3.0 * request.variance / max(1.0, metrics.running))
    return float(parts.decode / total_time(parts) * half_range * (ranks - 1.0) / (ranks + 1.0))


@lean_kernel
def _late_s(times: PassTimes, batch: Batch, request: Request, metrics: SlotMetrics) -> float:
    """Return how long an iteration waits for launches of its prompts, for each prompt [s]."""
    parts = decode_parts(times, batch, request, metrics.running)
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
    waits = (
        slot.relative_range > 0.0
        and slot.at_once > 1.0
        and (batch.intake.ahead or batch.intake.round_trip_s > 0.0)
    )
    requests = slot.slots * slot.requests
    if (batch.ranks > 1 and requests < MIN_REQUESTS) or (waits and requests < MIN_WAITS):
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
