"""Which part of a simulated open loop is measured: its stationary state, without the ramp and the drain.

A server is empty when the first request is sent, and drains when the last one has been. Arrivals are cut into
parts of as many requests each. The ramp lasts until those of the first part have ended, and is cut off where
the marginal standard error of what is left is least (MSER: White, Simulation 69, 1997), at the latest in the
middle: of means over parts of a request's whole time for each token of its answer. Parts with a request that
ends after the last one was sent are the drain. What lies between is stationary if it lasts several times as
long as a request, both of its halves agree, as many requests end as are sent, and the mean is exact.

Where in the second half of all arrivals fewer requests end than 95% of those that are sent, by more than
chance, the server is overloaded: there is no stationary state, and that half is what is measured. It lasts
several times as long as a request is served, so that it is no ramp; less is enough where ever more
wait to start.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints

PARTS = 32
"""Of the arrivals of an open loop: batch means."""
FEWEST_PARTS = 8
"""Between ramp and drain: of fewer, the whole run is measured. MSER truncates none of the last 5."""
SPANS = 5.0
"""Times that the window lasts as long as a request, at least."""
OVERLOAD_SPANS, WAITING_SPANS = 8.0, 2.0
"""Times that the second half of the arrivals lasts as long as a request is served, at least, of an overload:
where fewer requests end than are sent, and where ever more wait."""
AGREE = 0.05
"""By how much of their mean both halves may differ, and what ends a second from what is sent."""
EXACT = 0.05
"""Standard error of the mean over the parts, in it, at most."""
SERVED = 0.95
"""Share of what is sent that is served at least, where a server carries the load."""
ROUNDING = 1e-12
"""Squared variation of a mean that counts as none."""
LONGEST = 4
"""Times the most requests of a run, where servers hold so many that it has to be longer."""
SIGMAS = 4.0
"""Standard deviations of a Poisson number of arrivals by which ends are fewer, of an overload."""


class Ended(NamedTuple):
    """Requests that have ended; (requests,). Times in s."""

    number: Ints  # in the order of sending
    osl: Ints
    sent: Floats
    admitted: Floats  # when it starts
    first: Floats  # its first token
    begin: Floats  # when it starts to decode
    end: Floats
    service: Floats  # its time on servers, without waiting for a place


class Window(NamedTuple):
    """What is measured."""

    start: float  # [s]
    end: float  # [s]
    first: int  # of the rows of totals
    last: int  # behind the last one
    is_whole: bool  # the whole run, with ramp and drain
    is_stationary: bool
    is_overload: bool
    service: float  # a request's time on servers in the second half of the arrivals, mean [s]


@lean_kernel
def part_size(requests: int) -> int:
    """Return how many requests are sent in a part."""
    return max(1, (requests + PARTS - 1) // PARTS)


@kernel
def bounds_of(sent: Floats) -> Floats:
    """Return when each part of the arrivals starts, and when the last request is sent [s]; (parts + 1,)."""
    size = part_size(sent.size)
    parts = (sent.size + size - 1) // size
    bounds = np.empty(parts + 1)
    for part in range(parts):
        bounds[part] = sent[part * size]
    bounds[parts] = sent[sent.size - 1]
    return bounds


@kernel
def whole_run(ended: Ended, rows: int) -> Window:
    """Return the window that is a whole run; rows: of totals."""
    return Window(0.0, ended.end.max(), 0, rows, True, False, False, ended.service.mean())


@kernel
def window_of(ended: Ended, bounds: Floats, rate: float) -> Window:
    """Return what is measured of an open loop at random times; rate: of sending [1/s]."""
    parts, size, last_sent = bounds.size - 1, part_size(ended.end.size), bounds[bounds.size - 1]
    latest, time, tokens = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    for i in range(ended.end.size):
        part = ended.number[i] // size
        latest[part] = max(latest[part], ended.end[i])
        time[part] += ended.end[i] - ended.sent[i]
        tokens[part] += ended.osl[i]
    service, is_overload = _second_half(ended, bounds[parts // 2], last_sent, rate)
    if is_overload:
        return Window(bounds[parts // 2], last_sent, parts // 2, parts, False, False, True, service)
    complete, filled = 0, 1
    while complete < parts and latest[complete] <= last_sent:
        complete += 1
    while filled < complete and bounds[filled] < latest[0]:
        filled += 1
    if complete - filled < FEWEST_PARTS:
        return Window(0.0, ended.end.max(), 0, parts + 1, True, False, False, service)
    ramp = _ramp(time[filled:complete] / tokens[filled:complete])
    first = filled + min(ramp, (complete - filled) // 2)
    whole = time[first:complete].sum() / ((complete - first) * size)
    middle = (first + complete) // 2
    one = time[first:middle].sum() / tokens[first:middle].sum()
    two = time[middle:complete].sum() / tokens[middle:complete].sum()
    is_long = bounds[complete] - bounds[first] >= SPANS * whole
    is_even = abs(one - two) <= AGREE * 0.5 * (one + two)
    is_even = is_even and _ends_as_sent(ended, bounds[first], bounds[complete], rate)
    is_stationary = is_long and is_even and _error(time[first:complete] / tokens[first:complete]) <= EXACT
    return Window(bounds[first], bounds[complete], first, complete, False, is_stationary, False, service)


@lean_kernel
def _ends_as_sent(ended: Ended, start: float, stop: float, rate: float) -> bool:
    """Say whether as many requests end from `start` to `stop` [s] as are sent at a rate [1/s]."""
    ends, sends = 0, rate * (stop - start)
    for i in range(ended.end.size):
        ends += start <= ended.end[i] < stop
    return bool(abs(ends - sends) <= AGREE * sends)


@lean_kernel
def _error(means: Floats) -> float:
    """Return the standard error of the mean of means over parts, in it."""
    mean, squares = 0.0, 0.0
    for i in range(means.size):
        mean += means[i] / means.size
    for i in range(means.size):
        squares += (means[i] - mean) ** 2
    return sqrt(squares) / (means.size * mean)


@lean_kernel
def _second_half(ended: Ended, start: float, stop: float, rate: float) -> tuple[float, bool]:
    """Return how long requests are served that are sent in a time, mean [s], and whether it is an overload.

    start, stop: of the time [s]. Requests that happen to be more than their rate makes overload nothing.
    """
    sends, ends, waiting, service = 0, 0, 0, 0.0
    for i in range(ended.end.size):
        if start <= ended.sent[i]:
            sends += 1
            service += ended.service[i]
        ends += start <= ended.end[i] < stop
        waiting += ended.admitted[i] > stop
        waiting -= ended.sent[i] < start < ended.admitted[i]
    service, sends = service / sends, sends - 1  # the last one is sent when it stops
    chance = max(0.0, sends - rate * (stop - start))
    many, spans = max((1.0 - SERVED) * sends, SIGMAS * sqrt(sends)), (stop - start) / service
    is_short = sends - chance - ends > many and spans >= OVERLOAD_SPANS
    return service, bool(is_short or (waiting - chance > many and spans >= WAITING_SPANS))


@lean_kernel
def _ramp(means: Floats) -> int:
    """Return how many of the first parts are cut off: the fewest for which the standard error is least."""
    best, least = 0, np.inf
    for first in range(max(1, means.size - 4)):
        rest = means.size - first
        mean = 0.0
        for i in range(first, means.size):
            mean += means[i] / rest
        squares = ROUNDING * mean * mean
        for i in range(first, means.size):
            squares += (means[i] - mean) ** 2
        if squares / (rest * rest) < least:
            best, least = first, squares / (rest * rest)
    return best


@kernel
def stationarity(ended: Ended, window: Window, rate: float, is_closed: bool) -> tuple[float, float]:
    """Return 1 where a run is stationary, 0 where not, NaN where nothing is asked for: it is no open loop at
    random times; and how many requests are sent a second where they are an overload, else 0.

    rate: of sending at random times [1/s], 0 of a closed loop and of times of a file.
    """
    if rate > 0.0:
        return (1.0 if window.is_stationary else 0.0), (rate if window.is_overload else 0.0)
    last_sent = ended.sent.max()
    is_overload = not is_closed and _is_backlog(ended, last_sent)
    return np.nan, (ended.end.size / last_sent if is_overload else 0.0)


@lean_kernel
def _is_backlog(ended: Ended, last_sent: float) -> bool:
    """Say whether a server falls behind requests that are sent when a file says.

    More than 5% of them wait to start when the last one is sent, by more than chance.
    """
    waiting, requests = 0, ended.end.size
    for i in range(requests):
        waiting += ended.admitted[i] > last_sent
    is_many = waiting > max((1.0 - SERVED) * requests, SIGMAS * sqrt(requests))
    return bool(is_many and last_sent >= SPANS * ended.service.mean())


@lean_kernel
def longer_run(window: Window, requests: int, rate: float, most: int) -> int:
    """Return how many requests are sent next in a run that goes on until it is stationary; 0: it has ended.

    rate: of sending [1/s]; most: requests of the longest run, or more where so many are on the servers that
    an overload does not show in them, up to LONGEST times as many.
    """
    served = window.service * rate  # at a time, by Little's law
    longest = np.floor(min(float(LONGEST * most), max(float(most), 2.5 * OVERLOAD_SPANS * served)))
    if window.is_stationary or window.is_overload or requests >= longest:
        return 0
    return int(min(longest, max(2.0 * requests, 2.0 * OVERLOAD_SPANS * served)))
