"""Periods of a trace: the requests that arrive in each, as a trace of its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.request_order import RequestTrace
from fastflow.physics.workload.trace_file import write_trace


class Period(NamedTuple):
    """A period of a trace."""

    start_s: float
    requests: Ints
    """Rows of the trace, in order."""


def periods_of(trace: RequestTrace, requests: int, speed: float, length_s: float) -> list[Period]:
    """Return all periods from the first arrival to the last one, empty ones among them.

    requests: how many of the trace are sent, 0 for all; speed: factor by which they arrive faster. A turn
    without a time of arrival is in the period of the last turn before it that has one.
    """
    count = requests if 0 < requests < trace.isl.size else trace.isl.size
    number = np.floor(arrivals_of(trace)[:count] / speed / length_s).astype(np.int64)
    edges = np.searchsorted(number, np.arange(number[-1] + 2))
    return [
        Period(i * length_s, np.arange(start, stop))
        for i, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    ]


def arrivals_of(trace: RequestTrace) -> Floats:
    """Return the time of arrival of each request, or of the last turn before it that has one [s], rising."""
    arrivals: Floats = np.maximum.accumulate(np.where(trace.waits, 0.0, trace.sent))
    return arrivals


def write_period(trace: RequestTrace, period: Period, path: Path) -> None:
    """Write the requests of a period to a file; sessions that began before start anew."""
    rows = period.requests
    hashes = np.diff(trace.hash_offsets)[rows]
    ids = trace.hash_ids[trace.hash_offsets[rows[0]] : trace.hash_offsets[rows[-1] + 1]]
    per_request = ("isl", "osl", "sent", "session", "turn", "follower", "waits", "service_class")
    columns = {name: getattr(trace, name)[rows] for name in per_request}
    offsets = np.concatenate(([0], np.cumsum(hashes)))
    write_trace(trace._replace(**columns, hash_offsets=offsets, hash_ids=ids), path)
