"""Servers that serve less than is sent to them: what is said of it."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs, Texts

OVERLOAD = "overload"
"""Column of requests a second that are sent, where fewer are served; 0 elsewhere, NaN without results."""
_MARK = "(overload)"
"""What tells the reason of an overload from others."""
CARRIED = 0.9
"""Share of what an overloaded server serves that is advised: nearer to it waits grow long."""


def overload_text(served: float, sent: float, follows: bool = False) -> str:
    """Say that requests are an overload, and what helps; served, sent: requests a second.

    follows: they are sent when a file says.
    """
    advice = f"serve.rate='{CARRIED * served:.2g} 1/s' is carried"
    if follows:
        advice = "requests that come more slowly"
    says = f"serves {served:.3g} of {sent:.3g} requests a second that are sent {_MARK}"
    return f"{says}: {advice}, or more devices"


def is_overload(reason: str) -> bool:
    """Say whether a point's reason is an overload."""
    return _MARK in reason


def overloads(columns: Columns, rate: np.ndarray) -> Texts:
    """Say for every point that it is overloaded; or "", (points,). rate: of sending at random times [1/s]."""
    reason = np.full(rate.size, "", dtype=object)
    sent = columns.get(OVERLOAD, np.zeros(rate.size))
    for i in np.flatnonzero(sent > 0.0).tolist():
        reason[i] = overload_text(float(columns["requests_per_s"][i]), float(sent[i]), rate[i] == 0.0)
    return reason.astype(np.str_)


def excess(inputs: Inputs, columns: Columns) -> Floats:
    """Return by how many e-folds more requests are sent at random times than are served; (points,)."""
    total = np.zeros(inputs["serve.rate"].size)
    if "requests_per_s" in columns:
        rows = np.flatnonzero(inputs["serve.rate"] > columns["requests_per_s"])
        total[rows] = np.log(inputs["serve.rate"][rows] / columns["requests_per_s"][rows])
    return total
