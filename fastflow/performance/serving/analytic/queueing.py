"""How many requests run at once, and how long others queue: terms of the analytic form."""

from __future__ import annotations

from math import erf, exp, pi, sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import Group, Request
from fastflow.performance.serving.simulator.scheduler import Batch

FULL = 0.999
"""Utilization from which on a server counts as full: waits grow without bounds."""


class SlotMetrics(NamedTuple):
    """Metrics of a slot's requests."""

    ttft: float  # from sending to the first token [s]
    tpot: float  # time per token after the first [s]
    answer: float  # from the first to the last token [s]
    wait: float  # until a request starts [s]
    queued: float  # of the wait, until the batch has room [s]
    behind: float  # of the wait, for prompts that fill iterations [s]
    sensitivity: float  # further running requests for each additional one
    makespan: float  # until all have ended [s]; inf: the rate exceeds what the server carries
    busy: float  # share of the makespan with requests
    running: float  # requests of a rank that decode together, mean over requests
    group_size: float  # prompts of the slot that are computed together
    group: Group  # prompts that are computed together


@lean_kernel
def running_of(batch: Batch, request: Request, requests: float) -> float:
    """Return how many requests of a slot run at once, mean; requests: of the slot at a time.

    The number of requests of unequal lengths that fit the cache is nearly normally distributed.
    """
    rank = min(float(batch.most), requests / batch.ranks)
    fit = batch.capacity / (request.reserved if batch.reserves else request.context)  # in the cache
    if request.variance == 0.0:
        return float(batch.ranks * max(min(rank, 1.0), min(rank, np.floor(fit + 1e-9))))
    fit += 0.5 * (request.variance - 1.0)  # of a renewal process, for long intervals
    sigma = sqrt(request.variance * max(1.0, fit))
    z = (rank - fit) / sigma
    excess = (rank - fit) * 0.5 * (1.0 + erf(z / sqrt(2.0))) + sigma * exp(-0.5 * z * z) / sqrt(2.0 * pi)
    return float(batch.ranks * max(min(rank, 1.0), rank - excess))


@lean_kernel
def prompts_on_rank(batch: Batch, prompts: float) -> float:
    """Return how many of a slot's prompts are on its fullest rank, mean: ranks take turns."""
    return max(1.0, (prompts + 0.5 * (batch.ranks - 1)) / batch.ranks)


@lean_kernel
def share_of_ranks(batch: Batch, prompts: float) -> float:
    """Return how many of a slot's prompts are on a rank, mean, over those of the fullest rank."""
    return min(1.0, prompts / (batch.ranks * prompts_on_rank(batch, prompts)))


@lean_kernel
def tpot_of(request: Request, answer: float, shared: float) -> float:
    """Return the time per token after the first [s], mean over requests; 0 where answers have one token.

    answer: from the first to the last token [s]; shared: the part of it that is the same for all lengths.
    """
    return (answer + (request.short - 1.0) * shared) / request.gaps if request.gaps > 0.0 else 0.0


@lean_kernel
def last_passes(request: Request, relative_range: float, running: float) -> float:
    """Return the passes left to the last of the running requests, when no more arrive.

    Starts and lengths are uniformly distributed. The expected last end is where the corner of this
    distribution behind it has one request.
    """
    shortest = (1.0 - relative_range) * request.most
    last = request.most - sqrt(2.0 * request.passes * (request.most - shortest) / max(1.0, running))
    return float(max(request.passes, last))


@lean_kernel
def wait_for(servers: float, busy: float, arrivals: float, services: float, service: float) -> float:
    """Return the mean wait in a queue of several servers [s]: Sakasegawa's approximation (1977).

    servers: of the queue, which are requests that run at once; busy: their utilization; arrivals, services:
    squared coefficients of variation; service: service time [s]. Arrivals that are more even than random
    count as more servers (Hayward's approximation; Fredericks, 1980).
    """
    utilization = min(FULL, busy)
    peakedness = 1.0 + (arrivals - 1.0) * (1.0 - services)
    waits = utilization ** (sqrt(2.0 * (servers / peakedness + 1.0)) - 1.0) / (servers * (1.0 - utilization))
    return float(0.5 * (arrivals + services) * service * waits)
