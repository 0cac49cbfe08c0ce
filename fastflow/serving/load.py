"""What is asked of servers: how many requests, how long they are, and when they are sent.

Lengths and the gaps between arrivals are evenly spaced quantiles of their distributions, in a shuffled order
that is the same in every run: so a few hundred requests have the means that were asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.tables import Floats, Ints

PROMPTS, ANSWERS, ARRIVALS = 0, 1, 2
"""Streams of random numbers."""

TAKEN, TOO_LONG, TOO_MANY = 0, 1, 2
"""Whether a server can take a load."""
REFUSALS = {
    TOO_LONG: "the cache does not hold all tokens of one request",
    TOO_MANY: "more requests are sent than the server takes",
}


class Loads(NamedTuple):
    """What is asked of servers; shape (points,).

    Requests come in one of two ways. In a closed loop, `concurrency` of them are sent at once, and each one
    that ends is followed by the next. In an open loop they come at random times, with a given mean rate.
    """

    isl: Floats  # mean tokens of a prompt
    osl: Floats  # mean tokens of an answer
    spread: Floats  # lengths are uniform, from (1 - spread) of the longest one up to it: 0 all alike
    prefix: Floats  # share of a prompt that is in the cache already: not computed, but held
    concurrency: Ints  # of a closed loop, of the whole server; 0: open
    rate: Floats  # of an open loop [1/s]; 0: closed
    requests: Ints  # how many there are in all


@lean_kernel
def longest(mean: float, spread: float) -> float:
    """Return the longest length of requests [tokens]."""
    return mean / (1.0 - 0.5 * spread)


@lean_kernel
def found(prompt: float, prefix: float) -> int:
    """Return how many tokens of a prompt are in the cache already; one at least is computed."""
    return int(min(np.floor(prefix * prompt), prompt - 1.0))


@lean_kernel
def _random(stream: int, index: int) -> np.uint64:
    """Return 64 random bits (SplitMix64: Steele, Lea and Flood, 2014)."""
    bits = np.uint64(index + (stream << 40) + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@lean_kernel
def _shuffle(values: Floats, stream: int) -> None:
    """Shuffle in place (Fisher and Yates)."""
    for i in range(values.size - 1, 0, -1):
        j = int(_random(stream, i) % np.uint64(i + 1))
        values[i], values[j] = values[j], values[i]


@kernel
def lengths_of(mean: float, spread: float, requests: int, stream: int) -> Ints:
    """Return the length of each request [tokens], (requests,); at least 1."""
    top, shuffled = longest(mean, spread), np.empty(requests)
    for i in range(requests):
        shuffled[i] = top * (1.0 - spread * (1.0 - (i + 0.5) / requests))
    _shuffle(shuffled, stream)
    lengths = np.empty(requests, dtype=np.int64)
    for i in range(requests):
        lengths[i] = max(1, int(np.floor(shuffled[i] + 0.5)))
    return lengths


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
