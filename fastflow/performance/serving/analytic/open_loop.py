"""The analytic form of an open loop: requests arrive at random times, at a server in its stationary state.

The number of decoding requests follows from Little's law. A request waits for room in the batch, for the
running iteration, and for prompts before it. Prompts that arrive meanwhile are computed with its prompt, or
right after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.first_tokens import Intervals, Prompts, add_random_groups
from fastflow.performance.serving.analytic.mean_request import (
    NONE_DECODE,
    Decoding,
    Group,
    Request,
    decoding_of,
    group_of,
    group_of_ranks,
    room_of,
    total_time,
)
from fastflow.performance.serving.analytic.queueing import (
    FULL,
    SlotMetrics,
    prompts_on_rank,
    running_of,
    share_of_ranks,
    tpot_of,
    wait_for,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch

_STEPS = 30  # to the number of running requests, most of which take about 8
_HALVINGS = 25  # of the range of rates: to 1 / 3e7
_EXACT = 1e-8  # relative: a number of running requests
_WAITS = 4  # intervals of the rest of an iteration
_DOUBLINGS = 10  # from the fewest requests that are tried to a full batch


class _RequestTimes(NamedTuple):
    """Times of a request that runs with some others. All inf where prompts take all the time."""

    length: float  # from its first to its last token [s]
    wait: float  # for iterations before the first with its prompt [s]
    behind: float  # of the wait, for prompts that fill iterations [s]
    at_first: float  # of the length, time of prompts right after its prompt [s]
    group_size: float  # prompts that are computed together, in the slot
    mixed_share: float  # of time: iterations with prompts
    mixed_s: float  # such an iteration [s]
    next_mixed: float  # share of iterations with prompts of those that follow one in which a request comes
    pass_s: float  # another one [s]


class _Range(NamedTuple):
    """A range of numbers of running requests."""

    low: float
    high: float
    over: float  # requests that would run at `low`, beyond it
    under: float  # at `high`: below 0


@lean_kernel
def open_loop_metrics(
    times: PassTimes, batch: Batch, request: Request, rate: float, requests: float, intervals: Intervals
) -> SlotMetrics:
    """Return the metrics of a slot's requests; rate: of the slot [1/s]; requests: total.

    intervals: overwritten with those of times to first token.

    Where the rate exceeds what the server carries, makespan is inf, and the other metrics are undefined.
    """
    max_running = running_of(batch, request, np.inf)
    bracket = _bracket(times, batch, request, rate, max_running)
    if bracket.high > max_running:
        group = group_of(times, batch, request, decoding_of(times, batch, request, 1.0), 1.0)
        return SlotMetrics(
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf, 1.0, max_running / batch.ranks, 1.0, group
        )
    high = _running(times, batch, request, rate, bracket)
    # a request finds as many others as there are at a random time (Poisson arrivals)
    typical = _request_times(times, batch, request, rate, high)
    more = _request_times(times, batch, request, rate, 1.1 * high)
    sensitivity = (more.length - typical.length) * rate / (0.1 * high)
    decoding = _decoding(times, batch, request, high)
    group = _group(times, batch, request, decoding, typical.group_size)
    # requests are assigned to slots and ranks in turns, so each rank's arrivals are more even than random
    arrivals, services = 1.0 / (batch.ranks * batch.slots), request.half_range**2 / 3.0
    queued = wait_for(
        max_running / batch.ranks, rate * typical.length / max_running, arrivals, services, typical.length
    )
    start = typical.wait + queued
    intervals.used[0] = 0
    _add_first_tokens(times, batch, request, high, typical, intervals)
    return SlotMetrics(
        ttft=start + group.completion,
        tpot=tpot_of(request, typical.length, typical.at_first),
        answer=typical.length if request.gaps > 0.0 else 0.0,
        wait=start + group.wait,
        queued=queued,
        behind=typical.behind,
        sensitivity=sensitivity,
        makespan=requests / rate,
        busy=1.0 - np.exp(-rate * (typical.length + group.completion)),
        running=decoding.requests,
        group_size=typical.group_size,
        group=group,
    )


@lean_kernel
def _add_first_tokens(
    times: PassTimes,
    batch: Batch,
    request: Request,
    others: float,
    typical: _RequestTimes,
    intervals: Intervals,
) -> None:
    """Add the times to first token of a slot's requests: after the rest of an iteration, if one is running.

    others: requests that run.
    """
    decoding, mixed = _decoding(times, batch, request, others), typical.mixed_share
    prompts, mixed_next = _others_in(batch.slots, typical.group_size - 1.0), typical.next_mixed
    busy = (1.0 - mixed) * _finds_others(batch.slots, others)
    idle = Prompts(NONE_DECODE, prompts, 0.0, 0.0)
    add_random_groups(times, batch, request, idle, 1.0 - mixed - busy, intervals)
    for i in range(_WAITS):
        for share, iteration_s in ((busy, typical.pass_s), (mixed, typical.mixed_s)):
            first, last = iteration_s * i / _WAITS, iteration_s * (i + 1) / _WAITS
            if not batch.intake.ahead:
                group = Prompts(decoding, prompts, first, last)
                add_random_groups(times, batch, request, group, share / _WAITS, intervals)
                continue
            for part, next_s in ((1.0 - mixed_next, typical.pass_s), (mixed_next, typical.mixed_s)):
                group = Prompts(decoding, prompts, first + next_s, last + next_s)
                add_random_groups(times, batch, request, group, share * part / _WAITS, intervals)


@lean_kernel
def _finds_others(slots: int, others: float) -> float:
    """Return how probable it is that a slot has requests when one is sent; others: their mean number."""
    return _at_least(slots, others * slots)


@lean_kernel
def _others_in(slots: int, mean: float) -> float:
    """Return how many requests of a slot are sent in a time after another one; mean: in any such time.

    Slots take turns, so the times between two requests of a slot have an Erlang distribution.
    """
    if slots == 1:
        return mean
    total = 0.0
    for others in range(1, 4):
        total += _at_least(others * slots, mean * slots)
    return total


@lean_kernel
def _at_least(least: int, mean: float) -> float:
    """Return how probable it is that a Poisson number is at least a number."""
    term, total = np.exp(-mean), 0.0
    for i in range(least):
        total += term
        term *= mean / (i + 1.0)
    return float(max(0.0, 1.0 - total))


@lean_kernel
def _bracket(times: PassTimes, batch: Batch, request: Request, rate: float, max_running: float) -> _Range:
    """Return a range that has the fewest running requests with as many ends as arrivals.

    With more requests iterations may have too little room for prompts. Beyond `max_running` where there is
    none.
    """
    low, high, over = 0.0, max_running / 2.0**_DOUBLINGS, np.inf
    for _ in range(_DOUBLINGS + 1):
        excess = _request_times(times, batch, request, rate, high).length * rate - high
        if excess <= 0.0:
            return _Range(low, high, over, excess)
        low, high, over = high, 2.0 * high, excess
    return _Range(low, high, over, 0.0)


@lean_kernel
def _running(times: PassTimes, batch: Batch, request: Request, rate: float, bracket: _Range) -> float:
    """Return how many requests run, mean: those with as many ends as arrivals.

    By false position, in which an end of the range that remains counts half (Illinois; Dowell and Jarratt,
    1971); every third step halves the range, which may have a leap.
    """
    low, high, over, under = bracket.low, bracket.high, bracket.over, bracket.under
    for step in range(_STEPS):
        if high - low <= _EXACT * high or under == 0.0:
            break
        middle = 0.5 * (low + high)
        if step % 3 < 2 and over < np.inf:
            middle = low + (high - low) * over / (over - under)
        excess = _request_times(times, batch, request, rate, middle).length * rate - middle
        if excess > 0.0:
            low, over, under = middle, excess, 0.5 * under
        else:
            high, under, over = middle, excess, 0.5 * over
        if abs(excess) <= _EXACT * middle:
            return middle
    return high


@lean_kernel
def most_carried(times: PassTimes, batch: Batch, request: Request, rate: float) -> float:
    """Return the highest rate that a slot carries, below a rate that it does not [1/s]."""
    max_running = running_of(batch, request, np.inf)
    low, high = 0.0, rate
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _bracket(times, batch, request, middle, max_running).high <= max_running:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def _fewer_others(batch: Batch, others: float) -> float:
    """Return how many fewer others run beside a request than after random arrivals: slots take turns."""
    return (1.0 - 1.0 / batch.slots) * min(1.0, others)


@lean_kernel
def _decoding(times: PassTimes, batch: Batch, request: Request, others: float) -> Decoding:
    """Return the requests of a rank that decode where some requests of the slot run."""
    requests = 1.0 + (others - _fewer_others(batch, others)) / batch.ranks
    return decoding_of(times, batch, request, requests)


@lean_kernel
def _group(times: PassTimes, batch: Batch, request: Request, decoding: Decoding, group_size: float) -> Group:
    """Return the times of some prompts of a slot that are computed together."""
    prompts, share = prompts_on_rank(batch, group_size), share_of_ranks(batch, group_size)
    return group_of_ranks(times, batch, request, decoding, prompts, share)


@lean_kernel
def _without_end() -> _RequestTimes:
    """Return the times of requests whose prompts take all the time."""
    return _RequestTimes(np.inf, np.inf, np.inf, np.inf, np.inf, 1.0, np.inf, 1.0, np.inf)


@lean_kernel
def _request_times(
    times: PassTimes, batch: Batch, request: Request, rate: float, others: float
) -> _RequestTimes:
    decoding = _decoding(times, batch, request, others)
    pass_s = decoding.pass_s
    group = _group(times, batch, request, decoding, 1.0)
    # prompts of an iteration
    capacity = max(1.0, room_of(batch, request, decoding.requests) / request.prompt) * batch.ranks
    prompt_s, group_size, mixed_share = total_time(group.parts), 1.0, 0.0
    if rate * prompt_s / capacity >= FULL:
        return _without_end()
    busy = _finds_others(batch.slots, others)
    for _ in range(4):  # prompts in a group and the length of iterations depend on each other
        mixed_s = total_time(group.parts)
        mixed_share = min(1.0, rate * mixed_s / group_size)  # of time: iterations with prompts
        window = (
            mixed_share * mixed_s / group.passes * (1.0 - 1.0 / capacity)
            + (1.0 - mixed_share) * busy * pass_s
        )
        group_size = min(capacity, 1.0 + rate * window)
        group = _group(times, batch, request, decoding, group_size)
    share = rate * group.total / group_size
    if share >= FULL:
        return _without_end()
    services = request.half_range**2 / 3.0
    behind = wait_for(capacity, rate * prompt_s / capacity, 1.0 / batch.slots, services, prompt_s)
    group_stall = 0.0 if batch.mixes else group.total - group.completion
    at_first = (share * group.total + group_stall) / (1.0 - share)
    # the next prompt of a slot is later than a random one
    fewer_s = 0.5 * _fewer_others(batch, others) * group.total / group_size
    length = max(request.passes * pass_s, (request.passes * pass_s - fewer_s) / (1.0 - share) + at_first)
    mixed_s = total_time(group.parts) / group.passes
    next_mixed, wait = 1.0 - np.exp(-rate * window), 0.5 * window + behind
    if batch.intake.ahead:
        wait += busy * (pass_s + next_mixed * (mixed_s - pass_s))
    return _RequestTimes(length, wait, behind, at_first, group_size, mixed_share, mixed_s, next_mixed, pass_s)
