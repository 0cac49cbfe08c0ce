"""The measured part of a simulated open loop: its stationary state, without the ramp and the drain.

A server is empty when the first request is sent, and drains when the last one has been. Arrivals are split
into parts with equal numbers of requests. The ramp lasts until the requests of the first part have ended, and
is truncated where the marginal standard error of the rest is least (MSER: White, Simulation 69, 1997), at the
latest in the middle. The error is that of the parts' means of a request's time per token of its answer. Parts
with a request that ends after the last one was sent are the drain. The rest is stationary if it lasts several
times as long as a request, both of its halves agree, as many requests end as are sent, and the mean has a
small error.

Where in the second half of all arrivals fewer requests end than 95% of those that are sent, by more than
chance, the server is overloaded: there is no stationary state, and that half is measured. It must last
several times as long as a request is served, so that it is not the ramp; less is enough where the queue
grows.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.requests.load import Loads, is_random

PARTS = 32
"""Parts of the arrivals of an open loop, for batch means."""
MIN_PARTS = 8
"""Fewest parts between ramp and drain, or the whole run is measured. MSER truncates none of the last 5."""
SPANS = 5.0
"""Least duration of the window, in times of a request."""
OVERLOAD_SPANS, WAITING_SPANS = 8.0, 2.0
"""Least duration of the second half of the arrivals in an overload, in service times of a request: where
fewer requests end than are sent, and where the queue grows."""
MAX_DIFFERENCE = 0.05
"""Largest relative difference of both halves' means, and of the rates of ends and arrivals."""
MAX_ERROR = 0.05
"""Largest relative standard error of the mean over the parts."""
SERVED = 0.95
"""Least share of the requests sent that end, where a server carries the load."""
ROUNDING = 1e-12
"""Squared relative variation that counts as rounding."""
LONGEST = 4
"""Factor on the most requests of a run, where so many are on the servers that it has to be longer."""
SIGMAS = 4.0
"""Least deficit of ends in an overload, in standard deviations of a Poisson number of arrivals."""


class EndedRequests(NamedTuple):
    """Requests that have ended; (requests,). Times in s."""

    number: Ints  # in the order of sending
    osl: Ints
    sent: Floats
    arrived: Floats  # at the server: with its embeddings, where encoders have devices of their own
    admitted: Floats  # when it starts
    first: Floats  # its first token
    begin: Floats  # when it starts to decode
    end: Floats
    service: Floats  # its time on servers, without queueing


class Window(NamedTuple):
    """The measured time of a run."""

    start: float  # [s]
    end: float  # [s]
    first: int  # row of totals
    last: int  # behind the last row
    is_whole: bool  # the whole run, with ramp and drain
    is_stationary: bool
    is_overload: bool
    service: float  # mean time on servers of requests in the second half of the arrivals [s]


class State(NamedTuple):
    """The state of an open loop."""

    stationary: float  # 1: an open loop at random times is; 0: it is not; NaN: another loop
    overload: float  # requests a second that are sent, where fewer are served; else 0


class _Half(NamedTuple):
    """The second half of the arrivals."""

    service: float  # mean time on servers of requests [s]
    is_overload: bool


class _Variation(NamedTuple):
    """Mean and variation of values."""

    mean: float
    squares: float  # sum of squared deviations from the mean


@lean_kernel
def part_size(requests: int) -> int:
    """Return how many requests are sent in a part."""
    return max(1, (requests + PARTS - 1) // PARTS)


@kernel
def bounds_of(sent: Floats, is_random: bool) -> Floats:
    """Return when each part of the arrivals starts, when the last request is sent, and inf [s]; (parts + 2,).

    Arrivals that are not at random times have no parts.
    """
    size = part_size(sent.size)
    parts = (sent.size + size - 1) // size if is_random else 0
    bounds = np.zeros(parts + 2)
    for part in range(parts):
        bounds[part] = sent[part * size]
    if is_random:
        bounds[parts] = sent[sent.size - 1]
    bounds[parts + 1] = np.inf
    return bounds


@kernel
def window_of(ended: EndedRequests, bounds: Floats, rate: float) -> Window:
    """Return the measured window: the whole run of arrivals without parts; rate: of arrivals [1/s]."""
    parts, size = bounds.size - 2, part_size(ended.end.size)
    if parts == 0:
        return _whole_run(ended, 1, ended.service.mean())
    last_sent = bounds[parts]
    latest, time, tokens = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    for i in range(ended.end.size):
        part = ended.number[i] // size
        latest[part] = max(latest[part], ended.end[i])
        time[part] += ended.end[i] - ended.sent[i]
        tokens[part] += ended.osl[i]
    half = _second_half(ended, bounds[parts // 2], last_sent, rate)
    if half.is_overload:
        return Window(bounds[parts // 2], last_sent, parts // 2, parts, False, False, True, half.service)
    complete, filled = 0, 1
    while complete < parts and latest[complete] <= last_sent:
        complete += 1
    while filled < complete and bounds[filled] < latest[0]:
        filled += 1
    if complete - filled < MIN_PARTS:
        return _whole_run(ended, parts + 1, half.service)
    ramp = _ramp(time[filled:complete] / tokens[filled:complete])
    first = filled + min(ramp, (complete - filled) // 2)
    request_s = time[first:complete].sum() / ((complete - first) * size)
    middle = (first + complete) // 2
    before = time[first:middle].sum() / tokens[first:middle].sum()
    after = time[middle:complete].sum() / tokens[middle:complete].sum()
    is_long_enough = bounds[complete] - bounds[first] >= SPANS * request_s
    is_even = abs(before - after) <= MAX_DIFFERENCE * 0.5 * (before + after)
    ends = _num_ended(ended, bounds[first], bounds[complete])
    sends = rate * (bounds[complete] - bounds[first])
    is_even = is_even and abs(ends - sends) <= MAX_DIFFERENCE * sends
    is_stationary = (
        is_long_enough and is_even and _error(time[first:complete] / tokens[first:complete]) <= MAX_ERROR
    )
    return Window(bounds[first], bounds[complete], first, complete, False, is_stationary, False, half.service)


@kernel
def _whole_run(ended: EndedRequests, rows: int, service: float) -> Window:
    """Return the window that is a whole run; rows: of totals."""
    return Window(0.0, ended.end.max(), 0, rows, True, False, False, service)


@lean_kernel
def _num_ended(ended: EndedRequests, start: float, stop: float) -> int:
    """Return how many requests end from `start` to `stop` [s]."""
    ends = 0
    for i in range(ended.end.size):
        ends += start <= ended.end[i] < stop
    return ends


@lean_kernel
def _variation(values: Floats, first: int, rounding: float) -> _Variation:
    """Return the variation of values from `first` on; rounding: least squared relative variation."""
    count = values.size - first
    mean = 0.0
    for i in range(first, values.size):
        mean += values[i] / count
    squares = rounding * mean * mean
    for i in range(first, values.size):
        squares += (values[i] - mean) ** 2
    return _Variation(mean, squares)


@lean_kernel
def _error(means: Floats) -> float:
    """Return the relative standard error of the mean of parts' means."""
    variation = _variation(means, 0, 0.0)
    return sqrt(variation.squares) / (means.size * variation.mean)


@lean_kernel
def _second_half(ended: EndedRequests, start: float, stop: float, rate: float) -> _Half:
    """Return the service time of requests sent from `start` to `stop` [s], and whether they are an overload.

    Arrivals that exceed their rate by chance do not count as overload.
    """
    sends, waiting, service = 0, 0, 0.0
    for i in range(ended.end.size):
        if start <= ended.sent[i]:
            sends += 1
            service += ended.service[i]
        waiting += ended.admitted[i] > stop
        waiting -= ended.sent[i] < start < ended.admitted[i]
    service, sends = service / sends, sends - 1  # the last request is sent at `stop`
    chance = max(0.0, sends - rate * (stop - start))
    deficit, spans = max((1.0 - SERVED) * sends, SIGMAS * sqrt(sends)), (stop - start) / service
    is_short = sends - chance - _num_ended(ended, start, stop) > deficit and spans >= OVERLOAD_SPANS
    return _Half(service, is_short or (waiting - chance > deficit and spans >= WAITING_SPANS))


@lean_kernel
def _ramp(means: Floats) -> int:
    """Return how many of the first parts are truncated: the fewest with the least standard error."""
    best, least = 0, np.inf
    for first in range(max(1, means.size - 4)):
        remaining = means.size - first
        squares = _variation(means, first, ROUNDING).squares
        if squares / (remaining * remaining) < least:
            best, least = first, squares / (remaining * remaining)
    return best


@kernel
def state_of(ended: EndedRequests, window: Window, loads: Loads, point: int) -> State:
    """Return the state of a point's run."""
    if is_random(loads, point):
        rate = loads.rate[point]
        return State(1.0 if window.is_stationary else 0.0, rate if window.is_overload else 0.0)
    last_sent = ended.sent.max()
    is_overload = loads.concurrency[point] == 0 and _has_backlog(ended, last_sent)
    return State(np.nan, ended.end.size / last_sent if is_overload else 0.0)


@lean_kernel
def _has_backlog(ended: EndedRequests, last_sent: float) -> bool:
    """Say whether a server falls behind requests that arrive at the times of a file.

    More than 5% of the requests wait to start when the last request is sent, by more than chance.
    """
    waiting, requests = 0, ended.end.size
    for i in range(requests):
        waiting += ended.admitted[i] > last_sent
    is_many = waiting > max((1.0 - SERVED) * requests, SIGMAS * sqrt(requests))
    return bool(is_many and last_sent >= SPANS * ended.service.mean())


@lean_kernel
def longer_run(window: Window, loads: Loads, point: int, requests: int) -> int:
    """Return how many requests the next, longer run has, until a run is stationary; 0: no further run.

    requests: of this run. The longest run has `loads.most`, or more where so many are on the servers that an
    overload does not show, up to LONGEST times as many.
    """
    most = loads.most[point]
    if most == 0 or not is_random(loads, point) or window.is_stationary or window.is_overload:
        return 0
    served = window.service * loads.rate[point]  # requests on servers at a time, by Little's law
    longest = np.floor(min(float(LONGEST * most), max(float(most), 2.5 * OVERLOAD_SPANS * served)))
    if requests >= longest:
        return 0
    return int(min(longest, max(2.0 * requests, 2.0 * OVERLOAD_SPANS * served)))
