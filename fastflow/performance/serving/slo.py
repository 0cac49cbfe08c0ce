"""Limits of latencies (`serve.slo`), and which points violate them.

A limit is compared with a percentile of requests' latencies (`serve.slo.percentile`) where a simulation has
them, else with their mean. A single pass has one latency.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.reasons.forms import above_limit
from fastflow.core.tables import Bools, Columns, Floats, Inputs
from fastflow.performance.serving.requests.lengths import BATCHED, REQUESTS

PERCENTILE = "serve.slo.percentile"
LIMITS = {"ttft": "serve.slo.ttft", "tpot": "serve.slo.tpot"}
"""Latencies that can have a limit, and its key."""
COMPARED = {name: f"{name}_slo_s" for name in LIMITS}
"""Result columns that are compared with the limit."""
GOODPUT = "goodput_per_s"
MEAN = 0.0
_STATISTICS = {"": MEAN, "_p50": 50.0, "_p90": 90.0, "_p95": 95.0, "_p99": 99.0}
STATISTICS = {
    f"{time}{part}_s": (time, percentile)
    for time in ("ttft", "tpot", "e2e")
    for part, percentile in _STATISTICS.items()
}
"""Result columns that are a statistic of requests' latencies: the latency, and the percentile or `MEAN`."""


class Limit(NamedTuple):
    """The most that a statistic of latencies may be, or the least goodput: beyond it a point is no use."""

    of: str  # ttft, tpot or e2e; or GOODPUT
    percentile: float  # of a latency, or MEAN
    value: float  # [s], or of goodput [1/s]
    text: str  # that it is missed


def has_limit(inputs: Inputs) -> Bools:
    """Say at which points a latency has a limit, (points,)."""
    ttft, tpot = (inputs[key] > 0.0 for key in LIMITS.values())
    return np.asarray(ttft | tpot, dtype=np.bool_)


def needs_requests(inputs: Inputs) -> Bools:
    """Say at which points a limit is of a percentile, which the analytic form does not have; (points,)."""
    batched = np.isin(inputs["serve.mode"], BATCHED)
    return np.asarray(batched & has_limit(inputs) & (inputs[PERCENTILE] > 0.0), dtype=np.bool_)


def with_compared(inputs: Inputs, columns: Columns) -> Columns:
    """Return result columns with those of `COMPARED` in place of percentiles; NaN where there is no limit."""
    result, missing = dict(columns), np.full(inputs["serve.mode"].size, np.nan)
    for name, key in LIMITS.items():
        mean, percentile = result.get(f"{name}_s", missing), result.pop(f"{name}_percentile_s", missing)
        known = (inputs[PERCENTILE] > 0.0) & ~np.isnan(percentile)
        result[COMPARED[name]] = np.where(inputs[key] > 0.0, np.where(known, percentile, mean), np.nan)
    return result


def slo_violations(inputs: Inputs, columns: Columns) -> ReasonColumn:
    """Say for every point which latency is above its limit, (points,)."""
    mode, percentile = inputs["serve.mode"], inputs[PERCENTILE]
    reason, simulated = Reasons(mode.size), columns.get("simulated", np.zeros(mode.size))
    for name, key in LIMITS.items():
        limit, latency = inputs[key], columns[COMPARED[name]]
        for i in reason.without(latency > limit):
            statistic = name
            if mode[i] in BATCHED:
                of_requests = percentile[i] > 0.0 and simulated[i] > 0.0
                statistic = (
                    f"{name} at the {ordinal(percentile[i])} percentile" if of_requests else f"mean {name}"
                )
            of_burst = _of_burst(inputs, columns, i) if statistic.startswith("ttft at") else ""
            times = float(latency[i]), float(limit[i])
            reason.add(
                i,
                above_limit(statistic=statistic, latency=times[0], key=key, limit=times[1], remark=of_burst),
            )
    return reason.column()


def _of_burst(inputs: Inputs, columns: Columns, i: int) -> str:
    """Say that a closed loop's percentile is one of its first burst; "" where other requests may be as slow.

    They may where the burst does not reach the percentile, or the median is more than half of the limit: in
    108 closed loops the percentile without the burst was at most 2.4 times the median.
    """
    at_once, percentile = int(inputs["serve.concurrency"][i]), float(inputs[PERCENTILE][i])
    if at_once == 0 or columns["ttft_p50_s"][i] > 0.5 * inputs[LIMITS["ttft"]][i]:
        return ""
    enough = requests_past_burst(at_once, percentile, int(columns["replicas"][i]))
    requests = inputs["serve.num_requests"][i] or REQUESTS * at_once
    if requests >= enough:
        return ""
    advice = ""
    if enough <= _MAX_REQUESTS:
        advice = f"serve.num_requests={_round_up(enough)} has it in less than {100.0 - percentile:g}%, "
    burst = f"the first burst of {min(at_once, requests):,} requests counts"
    return f"; {burst}: {advice}serve.request_rate with serve.concurrency=0 has none"


_MAX_REQUESTS = 1e7  # of serve.num_requests


def requests_past_burst(at_once: int, percentile: float, servers: int) -> float:
    """Return how many requests of a closed loop keep its first burst out of a percentile.

    The percentile is interpolated between two of one server's requests, which are then not of the burst.
    """
    if percentile >= 100.0:
        return np.inf
    servers = min(servers, at_once)
    burst = -(-at_once // servers)
    return float(servers * np.ceil((burst + 2) / (1.0 - percentile / 100.0)))


def _round_up(count: float) -> int:
    """Return a number as two digits and zeros, at least as large."""
    step = 10 ** max(len(f"{count:.0f}") - 2, 0)
    return int(-(-count // step) * step)


def slo_excess(inputs: Inputs, columns: Columns) -> Floats:
    """Return the logarithm of latencies over their limits, summed over violated limits; (points,)."""
    total = np.zeros(inputs["serve.mode"].size)
    for name, key in LIMITS.items():
        limit, latency = inputs[key], columns[COMPARED[name]]
        rows = np.flatnonzero(latency > limit)
        total[rows] += np.log(latency[rows]) - np.log(limit[rows])
    return total


def ordinal(percentile: float) -> str:
    """Write a percentile as an ordinal, such as 99th."""
    integer = int(percentile) if percentile == int(percentile) else 0
    suffixes = {} if integer % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{percentile:g}{suffixes.get(integer % 10, 'th')}"
