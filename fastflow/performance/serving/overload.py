"""Overloaded servers, which serve fewer requests than arrive: columns and messages."""

from __future__ import annotations

import numpy as np

from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.reasons.forms import overloaded
from fastflow.core.tables import Columns, Floats, Inputs

OVERLOAD = "overload"
"""Column of requests a second that are sent, where fewer are served; 0 elsewhere, NaN without results."""
CARRIED = 0.9
"""Advised rate as a share of the rate that an overloaded server serves: nearer to it, waits grow long."""


def overload(served: float, sent: float, from_file: bool = False) -> Reason:
    """Return that requests are an overload, and how to avoid it; served, sent: requests a second.

    from_file: they arrive at the times of a file.
    """
    return overloaded(served=served, sent=sent, carried=CARRIED * served, from_file=from_file)


def overloads(columns: Columns, rate: np.ndarray) -> ReasonColumn:
    """Say of every overloaded point how much it serves, (points,). rate: of random arrivals [1/s]."""
    reason = Reasons(rate.size)
    sent = columns.get(OVERLOAD, np.zeros(rate.size))
    for i in np.flatnonzero(sent > 0.0).tolist():
        served = float(columns["requests_per_s"][i])
        reason.add(i, overload(served, float(sent[i]), bool(rate[i] == 0.0)))
    return reason.column()


def overload_excess(inputs: Inputs, columns: Columns) -> Floats:
    """Return the logarithm of the rate of random arrivals over the rate served, at least 0; (points,)."""
    total = np.zeros(inputs["serve.request_rate"].size)
    if "requests_per_s" in columns:
        rows = np.flatnonzero(inputs["serve.request_rate"] > columns["requests_per_s"])
        total[rows] = np.log(inputs["serve.request_rate"][rows] / columns["requests_per_s"][rows])
    return total
