"""Overloaded servers, which serve fewer requests than arrive: columns and messages."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs, Texts

OVERLOAD = "overload"
"""Column of requests a second that are sent, where fewer are served; 0 elsewhere, NaN without results."""
_MARK = "(overload)"
"""Text that marks the reason of an overload."""
CARRIED = 0.9
"""Advised rate as a share of the rate that an overloaded server serves: nearer to it, waits grow long."""


def overload_text(served: float, sent: float, from_file: bool = False) -> str:
    """Say that requests are an overload, and how to avoid it; served, sent: requests a second.

    from_file: they arrive at the times of a file.
    """
    advice = f"serve.request_rate='{CARRIED * served:.2g} 1/s' is carried"
    if from_file:
        advice = "requests that come more slowly"
    message = f"serves {served:.3g} of {sent:.3g} requests a second that are sent {_MARK}"
    return f"{message}: {advice}, or more devices"


def is_overload(reason: str) -> bool:
    """Say whether a point's reason is an overload."""
    return _MARK in reason


def overloads(columns: Columns, rate: np.ndarray) -> Texts:
    """Say of every overloaded point how much it serves; or "", (points,). rate: of random arrivals [1/s]."""
    reason = np.full(rate.size, "", dtype=object)
    sent = columns.get(OVERLOAD, np.zeros(rate.size))
    for i in np.flatnonzero(sent > 0.0).tolist():
        reason[i] = overload_text(float(columns["requests_per_s"][i]), float(sent[i]), rate[i] == 0.0)
    return reason.astype(np.str_)


def overload_excess(inputs: Inputs, columns: Columns) -> Floats:
    """Return the logarithm of the rate of random arrivals over the rate served, at least 0; (points,)."""
    total = np.zeros(inputs["serve.request_rate"].size)
    if "requests_per_s" in columns:
        rows = np.flatnonzero(inputs["serve.request_rate"] > columns["requests_per_s"])
        total[rows] = np.log(inputs["serve.request_rate"][rows] / columns["requests_per_s"][rows])
    return total
