"""How many requests run at once, and how long others wait for a place: terms of the fast form."""

from __future__ import annotations

from math import erf, exp, pi, sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import Group, Request
from fastflow.performance.serving.simulator.scheduler import Batch

FULL = 0.999
"""Share of its time or places from which on a server counts as full: waits grow without bounds."""


class Seen(NamedTuple):
    """What a slot's requests see."""

    ttft: float  # from sending to the first token [s]
    tpot: float  # a token after the first [s]
    wait: float  # until a request starts [s]
    placed: float  # of it, what passes until there is a place [s]
    steep: float  # how many more run for each one more
    makespan: float  # until all have ended [s]; inf: they are more than the server takes
    busy: float  # share of it in which there are requests
    running: float  # requests of a rank that decode together, as a request sees it
    together: float  # prompts of the slot that are computed together
    group: Group  # such prompts


@lean_kernel
def running_of(batch: Batch, request: Request, asked: float) -> float:
    """Return how many requests of a slot run at once, mean, where so many are there.

    Of requests of unlike lengths now more and now fewer fit the cache: their number is near a normal one.
    """
    rank = min(float(batch.most), asked / batch.ranks)
    places = batch.capacity / (request.reserved if batch.reserves else request.context)
    if request.variance == 0.0:
        return float(batch.ranks * max(min(rank, 1.0), min(rank, np.floor(places + 1e-9))))
    places += 0.5 * (request.variance - 1.0)  # of a renewal process, for long intervals
    sigma = sqrt(request.variance * max(1.0, places))
    z = (rank - places) / sigma
    over = (rank - places) * 0.5 * (1.0 + erf(z / sqrt(2.0))) + sigma * exp(-0.5 * z * z) / sqrt(2.0 * pi)
    return float(batch.ranks * max(min(rank, 1.0), rank - over))


@lean_kernel
def on_rank(batch: Batch, prompts: float) -> float:
    """Return how many of a slot's prompts are on its fullest rank, mean: they are dealt in turns."""
    return max(1.0, (prompts + 0.5 * (batch.ranks - 1)) / batch.ranks)


@lean_kernel
def tpot_of(request: Request, answer: float, shared: float) -> float:
    """Return a token's time after the first [s], mean over requests; 0 where answers have one token.

    answer: from the first to the last token [s]; shared: what of it does not depend on an answer's length.
    """
    return (answer + (request.short - 1.0) * shared) / request.gaps if request.gaps > 0.0 else 0.0


@lean_kernel
def last_passes(request: Request, spread: float, running: float) -> float:
    """Return how many passes are left to the last of so many requests that run, when no more come.

    Of long answers that start before, the one expected to end last is as far from the longest as there is one
    request to that corner of a uniform distribution of starts and lengths.
    """
    shortest = (1.0 - spread) * request.most
    last = request.most - sqrt(2.0 * request.passes * (request.most - shortest) / max(1.0, running))
    return float(max(request.passes, last))


@lean_kernel
def wait_for(places: float, busy: float, arrivals: float, services: float, service: float) -> float:
    """Return how long one waits for one of some places [s]: Sakasegawa's approximation (1977).

    busy: share of places that are taken; arrivals, services: squared coefficients of variation; service: how
    long a place is taken [s]. Where arrivals are more even than at random, that counts as so many more places
    (Hayward's approximation; Fredericks, 1980).
    """
    taken = min(FULL, busy)
    peaks = 1.0 + (arrivals - 1.0) * (1.0 - services)
    waits = taken ** (sqrt(2.0 * (places / peaks + 1.0)) - 1.0) / (places * (1.0 - taken))
    return float(0.5 * (arrivals + services) * service * waits)
