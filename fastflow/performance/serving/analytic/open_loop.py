"""The fast form of an open loop: requests come at random times, to a server in its stationary state.

How many decode follows from Little's law. A request waits for a place, for the iteration that is running, and
for prompts before it; the prompts that come meanwhile are computed with its own, or right after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.analytic.mean_request import (
    Request,
    group_of,
    pass_parts,
    room_of,
    total_of,
)
from fastflow.performance.serving.analytic.queueing import FULL, Seen, on_rank, running_of, tpot_of, wait_for
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.scheduler import Batch

_HALVINGS = 25  # of the range of requests that run: to a part in 30 millions
_DOUBLINGS = 10  # from the fewest requests that are tried to all places


class _Answer(NamedTuple):
    """What a request sees beside a number of others. All inf where prompts take all the time."""

    length: float  # from its first to its last token [s]
    wait: float  # for iterations before the first with its prompt [s]
    at_first: float  # of the length, what prompts take right after its own [s]
    together: float  # prompts that are computed together, in the slot


class _Range(NamedTuple):
    """Numbers of requests that run."""

    low: float
    high: float


@lean_kernel
def opened(times: PassTimes, batch: Batch, request: Request, rate: float, requests: float) -> Seen:
    """Return what a slot's requests see; rate: of the slot [1/s]; requests: that its figures count.

    Where they are more than the server takes, makespan is inf, and nothing else is told.
    """
    places = running_of(batch, request, np.inf)
    enough = _enough(times, batch, request, rate, places)
    if enough.high > places:
        nothing = group_of(times, batch, request, 1.0, 1.0)
        return Seen(0.0, 0.0, 0.0, 0.0, 0.0, np.inf, 1.0, places / batch.ranks, 1.0, nothing)
    low, high = enough.low, enough.high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _answer(times, batch, request, rate, middle).length * rate > middle:
            low = middle
        else:
            high = middle
    seen = _answer(times, batch, request, rate, high)  # others are there as at any time (Poisson)
    steep = (_answer(times, batch, request, rate, 1.1 * high).length - seen.length) * rate / (0.1 * high)
    decoding = 1.0 + high / batch.ranks
    group = group_of(times, batch, request, decoding, on_rank(batch, seen.together))
    # requests are dealt to slots and ranks in turns, so each rank's come more evenly than at random
    arrivals, services = 1.0 / (batch.ranks * batch.slots), request.half_range**2 / 3.0
    place = wait_for(places / batch.ranks, rate * seen.length / places, arrivals, services, seen.length)
    start = seen.wait + place
    return Seen(
        ttft=start + group.completion,
        tpot=tpot_of(request, seen.length, seen.at_first),
        wait=start + group.wait,
        placed=place,
        steep=steep,
        makespan=requests / rate,
        busy=1.0 - np.exp(-rate * (seen.length + group.completion)),
        running=decoding,
        together=seen.together,
        group=group,
    )


@lean_kernel
def _enough(times: PassTimes, batch: Batch, request: Request, rate: float, places: float) -> _Range:
    """Return between which numbers of requests that run as many end as come: the fewest such numbers.

    With more of them iterations may have too little room for prompts. Beyond `places` where there are none.
    """
    low, high = 0.0, places / 2.0**_DOUBLINGS
    for _ in range(_DOUBLINGS + 1):
        if _answer(times, batch, request, rate, high).length * rate <= high:
            return _Range(low, high)
        low, high = high, 2.0 * high
    return _Range(low, high)


@lean_kernel
def most_carried(times: PassTimes, batch: Batch, request: Request, rate: float) -> float:
    """Return the highest rate that a slot carries, below one that it does not [1/s]."""
    places = running_of(batch, request, np.inf)
    low, high = 0.0, rate
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _enough(times, batch, request, middle, places).high <= places:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def _answer(times: PassTimes, batch: Batch, request: Request, rate: float, others: float) -> _Answer:
    decoding = 1.0 + others / batch.ranks
    every = total_of(pass_parts(times, batch, request, decoding, 0.0, 0.0))
    group = group_of(times, batch, request, decoding, 1.0)
    fit = max(1.0, room_of(batch, request, decoding) / request.prompt) * batch.ranks  # in an iteration
    alone, together, window = total_of(group.parts), 1.0, every
    if rate * alone / fit >= FULL:
        return _Answer(np.inf, np.inf, np.inf, np.inf)
    busy = 1.0 - np.exp(-others)
    for _ in range(4):  # prompts in a group and the length of iterations depend on each other
        mixed = total_of(group.parts)
        part = min(1.0, rate * mixed / together)  # of the time: iterations with prompts
        window = part * mixed / group.passes * (1.0 - 1.0 / fit) + (1.0 - part) * busy * every
        together = min(fit, 1.0 + rate * window)
        group = group_of(times, batch, request, decoding, on_rank(batch, together))
    share = rate * group.total / together
    if share >= FULL:
        return _Answer(np.inf, np.inf, np.inf, np.inf)
    wait = 0.5 * window + wait_for(fit, rate * alone / fit, 1.0, request.half_range**2 / 3.0, alone)
    own = 0.0 if batch.mixes else group.total - group.completion
    at_first = (share * group.total + own) / (1.0 - share)
    return _Answer(request.passes * every / (1.0 - share) + at_first, wait, at_first, together)
