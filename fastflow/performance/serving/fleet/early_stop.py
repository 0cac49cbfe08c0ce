"""Early stopping of a simulated fleet: its requests so far show that it misses a limit, whatever comes.

What has not happened yet happens now at the soonest. So requests with their open times set to now have the
least latencies that they can have, and a statistic of these is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core import units
from fastflow.core.tables import Floats, Inputs
from fastflow.performance.serving.fleet.loading import Times
from fastflow.performance.serving.fleet.run import RequestResults
from fastflow.performance.serving.fleet.state import Served, Trace, is_follower
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.slo import GOODPUT, LIMITS, MEAN, PERCENTILE, Limit, ordinal

_ROUNDING = 1e-9
"""Relative: a statistic of a whole run and its bound round differently."""
Results = Callable[[Times, Served], RequestResults]


class EarlyStop(NamedTuple):
    """When to stop the simulation of a point's fleet."""

    limits: tuple[Limit, ...]
    results: Results  # of requests, from their times
    last_sent: float  # when the last request that follows none is sent [s]

    def why(self, times: Times, served: Served, now: float) -> str:
        """Return which limit the fleet misses whatever comes; "" for none.

        times, served: of all requests, with what has not happened yet by `now` [s] negative.
        """
        arrived, admitted, first, end = (
            np.where(column < 0.0, now, column)
            for column in (served.arrived, times.admitted, times.first, times.end)
        )
        soonest = times._replace(admitted=admitted, first=first, end=end)
        results = self.results(soonest, served._replace(arrived=arrived))
        seconds = max(now, self.last_sent)
        return next((limit.text for limit in self.limits if _is_missed(limit, results, seconds)), "")


def early_stop(scenario: ServingScenario, point: int, trace: Trace, results: Results) -> EarlyStop | None:
    """Return when to stop the fleet of a point; None: at its end."""
    if scenario.stop_at is None:
        return None
    limits = (*scenario.stop_at, *_limits_of_slo(scenario.inputs, point))
    last_sent = float(trace.sent[~is_follower(trace)].max(initial=0.0))
    return EarlyStop(limits, results, last_sent) if limits else None


def _limits_of_slo(inputs: Inputs, point: int) -> Iterator[Limit]:
    """Yield the limits of `serve.slo`."""
    percentile = float(inputs[PERCENTILE][point])
    for latency, key in LIMITS.items():
        value = float(inputs[key][point])
        if value > 0.0:
            name = f"{latency} at the {ordinal(percentile)} percentile" if percentile else f"mean {latency}"
            yield Limit(latency, percentile, value, f"{name} is above {key}={units.show(value, 's')}")


def _is_missed(limit: Limit, results: RequestResults, seconds: float) -> bool:
    """Say whether a limit is missed; results: the best that may be; seconds: the least that the run lasts."""
    if limit.of == GOODPUT:
        return bool(results.within.sum() < seconds * limit.value * (1.0 - _ROUNDING))
    column: Floats = getattr(results, f"{limit.of}_s")
    values, most = column[~np.isnan(column)], limit.value * (1.0 + _ROUNDING)
    if not values.size or limit.percentile == MEAN:
        return bool(values.sum() > most * values.size)
    # a percentile is at least the value before its position in the order
    before = max(int(limit.percentile / 100.0 * (values.size - 1) - _ROUNDING * values.size), 0)
    return bool((values > most).sum() >= values.size - before)
