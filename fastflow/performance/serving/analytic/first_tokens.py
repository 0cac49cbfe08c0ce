"""The distribution of times to first token, of the analytic form: its mean and its median.

A prompt is computed with those of other requests that are sent in the same iteration. A request's time
depends on the number of these prompts, on its position among them, on its length, and on the wait before.
Each case is an interval of times, in which times are uniformly distributed, with a weight.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import inlined_kernel, kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.analytic.mean_request import (
    Decoding,
    Request,
    mixed_with_prompts,
    parts_of_ranks,
    room_of,
    total_time,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch

INTERVALS = 4096
"""Room for the intervals of a point, most of which have about 130."""
_LENGTHS = 8  # intervals of the lengths of prompts
_PLACES, _PLACES_OF_EQUAL = 8, 64  # places among prompts of unequal lengths; iterations of equal ones
_MANY, _QUANTILES = 6.0, 7  # number of others from which on quantiles stand for all their numbers
_LEAST = 1e-3  # least weight of a number of others
_STEPS = 40  # to a quantile, most of which take about 6
_EXACT = 1e-9  # relative: of a quantile, or of the weight below it
_LEAST_WIDTH = 1e-12  # of an interval, which may be a single time [s]
_TIE = 1e-6  # share of requests on each side of the median, which may be between two intervals
_NEAR_MEDIAN = 0.05  # share of requests on each side of the median, where its steepness is measured


class FirstTokens(NamedTuple):
    """Times to first token of a slot's requests [s]."""

    mean: float
    median: float
    width: float  # relative distance of the quantiles next to the median
    burst: float  # part of the mean of a closed loop's first burst


class Intervals(NamedTuple):
    """Intervals of times to first token; (INTERVALS,). The first ones are in use."""

    low: Floats  # [s]
    high: Floats  # [s]
    weight: Floats  # requests, in any unit
    density: Floats  # weight of a second [1/s]
    used: Ints  # how many are in use; (1,)


@kernel
def new_intervals() -> Intervals:
    """Return room for intervals, none of which is in use."""
    low, high, weight = np.empty(INTERVALS), np.empty(INTERVALS), np.empty(INTERVALS)
    return Intervals(low, high, weight, np.empty(INTERVALS), np.zeros(1, dtype=np.int64))


class _Point(NamedTuple):
    """The distribution of times at one of them."""

    time: float  # [s]
    below: float  # weight of times below it
    density: float  # of weight [1/s]


class _Group(NamedTuple):
    """Prompts that are computed together, and the position of one of them."""

    mixed: Decoding  # requests of its rank that decode in the iterations
    room: float  # tokens of prompts that an iteration takes on a rank
    full_s: float  # an iteration full of prompts, on every rank [s]; 0 where none is
    before: float  # prompts of its rank before it
    on_rank: float  # prompts of its rank
    on_fullest: float  # prompts of the fullest rank


class Prompts(NamedTuple):
    """Prompts of a rank that are computed together, around one of them."""

    decoding: Decoding  # requests of the rank that decode meanwhile
    others: float  # further prompts of the slot
    least_wait: float  # until their first iteration [s]
    most_wait: float  # until there [s]; waits are uniformly distributed


@lean_kernel
def add_even_groups(
    times: PassTimes, batch: Batch, request: Request, prompts: Prompts, weight: float, intervals: Intervals
) -> None:
    """Add the times of a prompt among others, whose mean number is between those of two groups."""
    size = prompts.others + 1.0
    low = np.floor(size + 1e-9)
    share = (size - low) * (low + 1.0) / size
    for others, part in ((low - 1.0, 1.0 - share), (low, share)):
        if part > _LEAST:
            even = Prompts(prompts.decoding, others, prompts.least_wait, prompts.most_wait)
            add_group(times, batch, request, even, weight * part, intervals)


@inlined_kernel
def add_group(
    times: PassTimes, batch: Batch, request: Request, prompts: Prompts, weight: float, intervals: Intervals
) -> None:
    """Add the times of a prompt at any position among an integer number of others.

    Ranks take turns, so some have one prompt more.
    """
    size = prompts.others + 1.0
    least = np.floor(size / batch.ranks + 1e-9)
    most = np.ceil(size / batch.ranks - 1e-9)
    share = (size - least * batch.ranks) * most / size if most > least else 1.0
    _add_places(times, batch, request, prompts, most, most, weight * share, intervals)
    if share < 1.0:
        _add_places(times, batch, request, prompts, least, most, weight * (1.0 - share), intervals)


@inlined_kernel
def _add_places(
    times: PassTimes,
    batch: Batch,
    request: Request,
    prompts: Prompts,
    on_rank: float,
    on_fullest: float,
    weight: float,
    intervals: Intervals,
) -> None:
    """Add the times of a prompt at any position on its rank; on_rank, on_fullest: prompts of ranks."""
    mixed = mixed_with_prompts(batch, prompts.decoding)
    room = room_of(batch, request, mixed.requests)
    varies = request.half_range > 1e-6
    places, bins, full_s = 1, _LENGTHS if varies else 1, 0.0
    if on_fullest * request.prompt * (1.0 + request.half_range) > room:
        full_s = _full_s(times, batch, request, mixed, room, 1.0)
        if not varies and on_rank * request.prompt <= _PLACES_OF_EQUAL * room:
            group = _Group(mixed, room, full_s, 0.0, on_rank, on_fullest)
            _add_iterations(times, batch, request, prompts, group, weight, intervals)
            return
        places = int(min(on_rank, float(_PLACES if varies else _PLACES_OF_EQUAL)))
    for position in range(places):
        before = (position + 0.5) * on_rank / places - 0.5
        group = _Group(mixed, room, full_s, before, on_rank, on_fullest)
        start = _completion(times, batch, request, prompts, group, -request.half_range)
        for edge in range(bins):
            stop = start
            if varies:
                deviation = request.half_range * (2.0 * (edge + 1.0) / bins - 1.0)
                stop = _completion(times, batch, request, prompts, group, deviation)
            low, high = prompts.least_wait + min(start, stop), prompts.most_wait + max(start, stop)
            _add_interval(intervals, low, high, weight / (places * bins))
            start = stop


@lean_kernel
def _add_iterations(
    times: PassTimes,
    batch: Batch,
    request: Request,
    prompts: Prompts,
    group: _Group,
    weight: float,
    intervals: Intervals,
) -> None:
    """Add the times of prompts of equal lengths, iteration by iteration; group: with its first prompt."""
    done, iteration = 0.0, 1.0
    while done < group.on_rank:
        ended = min(group.on_rank, np.floor(iteration * group.room / request.prompt + 1e-9))
        if ended > done:
            last = _Group(group.mixed, group.room, group.full_s, ended - 1.0, group.on_rank, group.on_fullest)
            seconds = _completion(times, batch, request, prompts, last, 0.0)
            low, high = prompts.least_wait + seconds, prompts.most_wait + seconds
            _add_interval(intervals, low, high, weight * (ended - done) / group.on_rank)
        done, iteration = ended, iteration + 1.0


@lean_kernel
def add_random_groups(
    times: PassTimes, batch: Batch, request: Request, prompts: Prompts, weight: float, intervals: Intervals
) -> None:
    """Add the times of a prompt among a random number of others: Poisson, of the mean that is given."""
    mean = prompts.others
    if mean > _MANY:
        for i in range(_QUANTILES):
            z = _normal_quantile((i + 0.5) / _QUANTILES)
            others = max(0.0, np.floor(mean + z * sqrt(mean) + 0.5))
            group = Prompts(prompts.decoding, others, prompts.least_wait, prompts.most_wait)
            add_group(times, batch, request, group, weight / _QUANTILES, intervals)
        return
    share, left, others = exp(-mean), 1.0, 0.0
    while left > _LEAST:
        part = share if left - share > _LEAST else left
        if part > _LEAST:
            few = Prompts(prompts.decoding, others, prompts.least_wait, prompts.most_wait)
            add_group(times, batch, request, few, weight * part, intervals)
        left -= part
        others += 1.0
        share *= mean / others


@inlined_kernel
def _add_interval(intervals: Intervals, low: float, high: float, weight: float) -> None:
    """Add an interval of times."""
    row = intervals.used[0]
    if row < intervals.low.size:
        intervals.low[row], intervals.high[row], intervals.weight[row] = low, high, weight
        intervals.density[row] = weight / max(high - low, _LEAST_WIDTH)
        intervals.used[0] += 1


@lean_kernel
def first_tokens_of(intervals: Intervals, waits: float, burst: float) -> FirstTokens:
    """Return mean and median of all times, of which there is at least one.

    waits: what they add to the mean, and rarely to the median [s]; burst: sum of the burst's times with their
    weights.
    """
    least, most = np.inf, 0.0
    for row in range(intervals.used[0]):
        least, most = min(least, intervals.low[row]), max(most, intervals.high[row])
    weight = _weight_of(intervals)
    start = _Point(least, 0.0, 0.0)
    before = _quantile(intervals, (0.5 - _NEAR_MEDIAN) * weight, start, most)
    low = _quantile(intervals, (0.5 - _TIE) * weight, before, most)
    high = _quantile(intervals, (0.5 + _TIE) * weight, low, most)
    after = _quantile(intervals, (0.5 + _NEAR_MEDIAN) * weight, high, most)
    median = 0.5 * (low.time + high.time)
    return FirstTokens(
        mean=sum_of(intervals) / weight + waits,
        median=median,
        width=max(after.time - median, median - before.time) / median,
        burst=burst / weight,
    )


@lean_kernel
def sum_of(intervals: Intervals) -> float:
    """Return the sum of all times with their weights [s]."""
    total = 0.0
    for row in range(intervals.used[0]):
        total += intervals.weight[row] * 0.5 * (intervals.low[row] + intervals.high[row])
    return total


@lean_kernel
def _weight_of(intervals: Intervals) -> float:
    """Return the sum of the weights."""
    total = 0.0
    for row in range(intervals.used[0]):
        total += intervals.weight[row]
    return total


@lean_kernel
def _quantile(intervals: Intervals, weight: float, start: _Point, high: float) -> _Point:
    """Return the point of the distribution with a weight below it; start, high: points around it.

    By Newton's method, which ends on a line of the distribution; otherwise the range is halved.
    """
    low, at = start.time, start
    for _ in range(_STEPS):
        on_line = at.time + (weight - at.below) / at.density if at.density > 0.0 else high
        time = on_line if low < on_line < high else 0.5 * (low + high)
        at = _point_at(intervals, time)
        if abs(at.below - weight) <= _EXACT * weight:
            return at
        if at.below < weight:
            low = time
        else:
            high = time
        if high - low <= _EXACT * high:
            break
    return _Point(high, weight, 0.0)


@inlined_kernel
def _point_at(intervals: Intervals, time: float) -> _Point:
    """Return the point of the distribution at a time."""
    below, density = 0.0, 0.0
    for row in range(intervals.used[0]):
        weight, part = intervals.weight[row], intervals.density[row] * (time - intervals.low[row])
        below += min(weight, max(0.0, part))
        density += intervals.density[row] if (part > 0.0) & (part < weight) else 0.0
    return _Point(time, below, density)


@inlined_kernel
def _completion(
    times: PassTimes, batch: Batch, request: Request, prompts: Prompts, group: _Group, deviation: float
) -> float:
    """Return when a prompt ends, from its group's first iteration on [s].

    deviation: of its length, as a share of the mean.
    """
    prompt, room = request.prompt, group.room
    length = max(1.0, prompt * (1.0 + deviation))
    total = length + (group.on_rank - 1.0) * prompt
    if batch.ranks > 1 and prompts.others > 0.0:  # the rank with most tokens
        ranks = min(prompts.others, batch.ranks - 1.0)
        longer = request.half_range * (ranks - 1.0) / (ranks + 1.0) * sqrt(group.on_fullest)
        total = max(total, prompt * (group.on_fullest + longer))
    if batch.chunks:
        end = max(1.0, np.ceil((group.before * prompt + length) / room - 1e-9))
        passes = max(end, np.ceil(total / room - 1e-9))
    else:  # whole prompts, whatever the length of one
        end = max(1.0, np.ceil((group.before + 1.0) * prompt / room - 1e-9))
        passes = max(end, np.ceil(group.on_fullest * prompt / room - 1e-9))
    seconds, share = 0.0, min(1.0, (length + prompts.others * prompt) / (batch.ranks * total))
    last_tokens = max(1.0, total - (passes - 1.0) * room)
    if end == passes:
        rows = max(1.0, last_tokens / prompt)
        seconds = total_time(parts_of_ranks(times, batch, request, group.mixed, rows, last_tokens, share))
    if passes > 1.0:
        full_s = group.full_s
        if share < 1.0:
            full_s = _full_s(times, batch, request, group.mixed, room, share)
        seconds += (end - 1.0 if end == passes else end) * full_s
    # attention grows with the square of a length
    cached = request.cached - prompt
    attention = (cached + 0.5 * length) / (cached + 0.5 * prompt) - 1.0
    return seconds + request.attention_s * length / prompt * attention


@lean_kernel
def _full_s(
    times: PassTimes, batch: Batch, request: Request, mixed: Decoding, room: float, share: float
) -> float:
    """Return the time of an iteration whose fullest rank is full of prompts [s]."""
    prompts = max(1.0, room / request.prompt)
    return total_time(parts_of_ranks(times, batch, request, mixed, prompts, room, share))


@lean_kernel
def _normal_quantile(share: float) -> float:
    """Return a quantile of the normal distribution: Tukey's lambda distribution is within 0.01 of it."""
    return float((share**0.1349 - (1.0 - share) ** 0.1349) / 0.1975)
