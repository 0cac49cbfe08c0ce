"""Limits of times (`serve.slo`): which figure of a point is compared with them, and what comes of it.

It is a percentile of the times of requests (`serve.slo.percentile`) where these are known, which takes a
simulation; else their mean. A single pass has one time.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Inputs, Reasons, Texts
from fastflow.performance.serving.requests.lengths import BATCHED, REQUESTS

PERCENTILE = "serve.slo.percentile"
LIMITS = {"ttft": "serve.slo.ttft", "tpot": "serve.slo.tpot"}
"""The times that have a limit, and its key."""
COMPARED = {name: f"{name}_slo_s" for name in LIMITS}
"""The result columns that are compared with it."""


def has_limit(inputs: Inputs) -> Bools:
    """Say at which points a time has a limit, (points,)."""
    ttft, tpot = (inputs[key] > 0.0 for key in LIMITS.values())
    return np.asarray(ttft | tpot, dtype=np.bool_)


def needs_requests(inputs: Inputs) -> Bools:
    """Say at which points a limit is of a percentile, which the fast form does not have; (points,)."""
    batched = np.isin(inputs["serve.mode"], BATCHED)
    return np.asarray(batched & has_limit(inputs) & (inputs[PERCENTILE] > 0.0), dtype=np.bool_)


def with_compared(inputs: Inputs, columns: Columns) -> Columns:
    """Return result columns with those of `COMPARED` in place of percentiles; NaN where there is no limit."""
    found, nothing = dict(columns), np.full(inputs["serve.mode"].size, np.nan)
    for name, key in LIMITS.items():
        mean, percentile = found.get(f"{name}_s", nothing), found.pop(f"{name}_percentile_s", nothing)
        known = (inputs[PERCENTILE] > 0.0) & ~np.isnan(percentile)
        found[COMPARED[name]] = np.where(inputs[key] > 0.0, np.where(known, percentile, mean), np.nan)
    return found


def late(inputs: Inputs, columns: Columns) -> Texts:
    """Say for every point which of its times is above its limit; or "", (points,)."""
    mode, percentile = inputs["serve.mode"], inputs[PERCENTILE]
    reason, simulated = Reasons(mode.size), columns.get("simulated", np.zeros(mode.size))
    for name, key in LIMITS.items():
        most, found = inputs[key], columns[COMPARED[name]]
        for i in reason.without(found > most):
            what = name
            if mode[i] in BATCHED:
                of_requests = percentile[i] > 0.0 and simulated[i] > 0.0
                what = f"{name} at the {ordinal(percentile[i])} percentile" if of_requests else f"mean {name}"
            of_burst = _of_burst(inputs, columns, i) if what.startswith("ttft at") else ""
            reason.add(i, f"{what} is {found[i]:.4g} s, above {key}={most[i]:.4g} s{of_burst}")
    return reason.texts()


def _of_burst(inputs: Inputs, columns: Columns, i: int) -> str:
    """Say of a closed loop that the percentile is that of its first burst; "" where others may be as late.

    These are where the burst does not reach the percentile, or the median is more than half of the limit: in
    108 closed loops the percentile without the burst was at most 2.4 times the median.
    """
    at_once, percentile = int(inputs["serve.concurrency"][i]), float(inputs[PERCENTILE][i])
    if at_once == 0 or columns["ttft_median_s"][i] > 0.5 * inputs[LIMITS["ttft"]][i]:
        return ""
    enough = passing_over(at_once, percentile, int(columns["replicas"][i]))
    requests = inputs["serve.requests"][i] or REQUESTS * at_once
    if requests >= enough:
        return ""
    more = ""
    if enough <= _MOST_REQUESTS:
        more = f"serve.requests={_rounded(enough)} has it in less than {100.0 - percentile:g}%, "
    burst = f"the first burst of {min(at_once, requests):,} requests counts"
    return f"; {burst}: {more}serve.rate with serve.concurrency=0 has none"


_MOST_REQUESTS = 1e7  # of serve.requests


def passing_over(at_once: int, percentile: float, servers: int) -> float:
    """Return how many requests of a closed loop its first burst does not reach a percentile of.

    A percentile is of one server's requests, and lies between two of them, which are not of the burst.
    """
    if percentile >= 100.0:
        return np.inf
    servers = min(servers, at_once)
    each = -(-at_once // servers)
    return float(servers * np.ceil((each + 2) / (1.0 - percentile / 100.0)))


def _rounded(count: float) -> int:
    """Return a number as two digits and zeros, at least as large."""
    step = 10 ** max(len(f"{count:.0f}") - 2, 0)
    return int(-(-count // step) * step)


def is_late(reason: str) -> bool:
    """Say whether a point's reason is one of `late`."""
    return any(f"above {key}=" in reason for key in LIMITS.values())


def lateness(inputs: Inputs, columns: Columns) -> Floats:
    """Return by how many e-folds points exceed their limits, both times together; (points,)."""
    total = np.zeros(inputs["serve.mode"].size)
    for name, key in LIMITS.items():
        most, found = inputs[key], columns[COMPARED[name]]
        rows = np.flatnonzero(found > most)
        total[rows] += np.log(found[rows]) - np.log(most[rows])
    return total


def ordinal(percentile: float) -> str:
    """Write a percentile as an ordinal, such as 99th."""
    whole = int(percentile) if percentile == int(percentile) else 0
    ends = {} if whole % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{percentile:g}{ends.get(whole % 10, 'th')}"
