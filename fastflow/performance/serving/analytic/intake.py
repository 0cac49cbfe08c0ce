"""How long requests are away, and wait until an iteration has them: terms of the analytic form.

As `simulator.intake`, without what holds prompts back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.scheduler import Batch


class Return(NamedTuple):
    """What follows the end of a request of a closed loop, until an iteration has the next one."""

    away: float  # until it is sent to the server [s]
    wait: float  # from there, mean [s]
    busy: float  # share of requests that come while others run
    pass_s: float  # iterations that they wait for [s]


@lean_kernel
def takes_at_once(batch: Batch) -> bool:
    """Say whether a server takes requests as soon as it composes an iteration: none wait for others."""
    balances = batch.intake.balances and batch.ranks > 1
    gathers = batch.intake.wait_iterations > 0 and batch.ranks == 1
    return bool(batch.intake.interval <= 1 and not balances and not gathers)


@lean_kernel
def return_of(batch: Batch, pass_s: float, busy: float) -> Return:
    """Return the mean times between requests; busy: share of requests that come while others run.

    A round trip ends within a pass, whose rest the request waits for: of exponentially distributed ones, the
    mean number of passes that they begin is that of a geometric distribution.
    """
    away = batch.intake.round_trip_s
    passes = 1.0 if batch.intake.ahead else 0.0
    if away > 0.0:
        passes += 1.0 / (1.0 - np.exp(-pass_s / away))
    return Return(away, busy * max(0.0, passes * pass_s - away), busy, pass_s)


@lean_kernel
def share_of_waits(returns: Return, start: float, stop: float) -> float:
    """Return which share of round trips end so long before the end of an iteration; both in iterations."""
    ends = returns.pass_s / returns.away
    return float((np.exp(ends * (stop - 1.0)) - np.exp(ends * (start - 1.0))) / (1.0 - np.exp(-ends)))


@lean_kernel
def trip_passes(batch: Batch, pass_s: float) -> float:
    """Return over how many passes the ends of round trips spread: as a uniform distribution would."""
    return float(np.sqrt(12.0) * batch.intake.round_trip_s / pass_s)
