"""Loads of servers: how many requests, their lengths, and their arrival times.

Lengths and the gaps between arrivals are evenly spaced quantiles of their distributions, in a shuffled order
that is the same in every run, so that a few hundred requests have the given means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints

PROMPTS, ANSWERS, ARRIVALS, ROWS, TRIPS, ROUTES = range(6)
"""Streams of random numbers."""
TWO_64 = 2.0**64

TAKEN, TOO_LONG, TOO_MANY, STALLED, TOO_LARGE, STOPPED = range(6)
"""Whether a server takes a load: a request may exceed the cache, or the rate what the server carries, or the
policy starts no request, or a fleet is too large to simulate, or its simulation was stopped early."""


class Loads(NamedTuple):
    """Loads of servers; shape (points,).

    There are three kinds. In a closed loop, `concurrency` requests are sent at once, and the next one
    whenever a request ends. In an open loop requests arrive at random times with a mean rate, or, where the
    rate is 0, at the times of a file.
    """

    isl: Floats  # mean tokens of a prompt
    osl: Floats  # mean tokens of an answer
    relative_range: Floats  # of uniform lengths: longest less shortest, over the longest; 0: all equal
    prefix: Floats  # share of a prompt that is in the cache already: not computed, but in memory
    concurrency: Ints  # of a closed loop, of the whole server; 0: open
    rate: Floats  # of an open loop at random times [1/s]; 0: closed, or as `arrivals` have it
    requests: Ints  # total; at first, where a simulation is extended until it is stationary
    most: Ints  # at most, where it is extended; 0: it is not
    known: Ints  # requests of a file, which replace uniform lengths; 0: no file
    in_order: Bools  # of a closed loop that sends each request of the file, in the order of the file
    lengths: Ints  # of their prompts and answers, by arrival, or fewest tokens first; (points, 2, known)
    arrivals: Floats  # their arrival times [s], where used; (points, known)
    percentile: Floats  # of latencies that is computed beside the median and the 99th


@lean_kernel
def longest(mean: float, relative_range: float) -> float:
    """Return the longest length of requests [tokens]."""
    return mean / (1.0 - 0.5 * relative_range)


@lean_kernel
def cached_tokens(prompt: float, prefix: float) -> int:
    """Return how many tokens of a prompt are in the cache already; at least one is computed."""
    return int(min(np.floor(prefix * prompt), prompt - 1.0))


@lean_kernel
def random_bits(stream: int, index: int) -> np.uint64:
    """Return 64 random bits (SplitMix64: Steele, Lea and Flood, 2014)."""
    bits = np.uint64(index + (stream << 40) + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@lean_kernel
def trip_share(request: int) -> float:
    """Return the round trip of a request over the mean one: exponentially distributed.

    Round trips through a client, a network and a front end differ, so that requests of equal lengths do not
    stay in step.
    """
    return float(-np.log((random_bits(TRIPS, request) / TWO_64) * (1.0 - 1e-9) + 1e-9))


@lean_kernel
def _shuffle(values: Floats, stream: int) -> None:
    """Shuffle in place (Fisher and Yates)."""
    for i in range(values.size - 1, 0, -1):
        j = int(random_bits(stream, i) % np.uint64(i + 1))
        values[i], values[j] = values[j], values[i]


@kernel
def lengths_of(mean: float, relative_range: float, requests: int, stream: int) -> Ints:
    """Return the length of each request [tokens], (requests,); at least 1."""
    top, shuffled = longest(mean, relative_range), np.empty(requests)
    for i in range(requests):
        shuffled[i] = top * (1.0 - relative_range * (1.0 - (i + 0.5) / requests))
    _shuffle(shuffled, stream)
    lengths = np.empty(requests, dtype=np.int64)
    for i in range(requests):
        lengths[i] = max(1, int(np.floor(shuffled[i] + 0.5)))
    return lengths


@lean_kernel
def is_random(loads: Loads, point: int) -> bool:
    """Say whether requests arrive at random times, with a mean rate."""
    return bool(loads.concurrency[point] == 0 and loads.rate[point] > 0.0)


@lean_kernel
def _uses_file_times(loads: Loads, point: int) -> bool:
    """Say whether requests arrive at the times of a file."""
    return bool(loads.concurrency[point] == 0 and loads.rate[point] == 0.0)


@kernel
def sent_at(loads: Loads, point: int, requests: int) -> Floats:
    """Return when each request of a point is sent [s], (requests,); 0 for a closed loop, as at its start."""
    if loads.concurrency[point] > 0:
        return np.zeros(requests)
    if _uses_file_times(loads, point):
        return loads.arrivals[point, :requests].copy()
    return arrivals_of(loads.rate[point], requests)


@kernel
def lengths_sent(loads: Loads, point: int, requests: int) -> tuple[Ints, Ints]:
    """Return the prompt and the answer of each request of a point [tokens], (requests,) each.

    A file's requests are all sent in order where its arrival times are used, or where `in_order` says so.
    Else the file is divided into as many parts as there are requests, and one request of each part is drawn.
    """
    known = loads.known[point]
    if known > 0 and (loads.in_order[point] or _uses_file_times(loads, point)):
        return loads.lengths[point, 0, :requests].copy(), loads.lengths[point, 1, :requests].copy()
    if known == 0:
        isl = lengths_of(loads.isl[point], loads.relative_range[point], requests, PROMPTS)
        osl = lengths_of(loads.osl[point], loads.relative_range[point], requests, ANSWERS)
        return isl, osl
    rows = np.empty(requests)
    for i in range(requests):
        offset = random_bits(ROWS, i) / TWO_64
        rows[i] = min(np.floor((i + offset) * known / requests), known - 1.0)
    _shuffle(rows, PROMPTS)
    isl, osl = np.empty(requests, dtype=np.int64), np.empty(requests, dtype=np.int64)
    for i in range(requests):
        isl[i] = loads.lengths[point, 0, int(rows[i])]
        osl[i] = loads.lengths[point, 1, int(rows[i])]
    return isl, osl


@kernel
def arrivals_of(rate: float, requests: int) -> Floats:
    """Return when each request of an open loop is sent [s], (requests,); the first one at 0.

    Gaps are those of a Poisson process.
    """
    gaps, total = np.empty(requests), 0.0
    for i in range(requests):
        gaps[i] = -np.log(1.0 - (i + 0.5) / requests)
        total += gaps[i]
    _shuffle(gaps, ARRIVALS)
    sent = np.empty(requests)
    now = 0.0
    for i in range(requests):
        sent[i] = now
        now += gaps[i] * requests / (total * rate)
    return sent
