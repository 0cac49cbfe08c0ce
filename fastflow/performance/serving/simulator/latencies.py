"""Metrics of simulated requests within a window: latencies, rates, how many decode or wait."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Columns, Floats
from fastflow.performance.serving.requests.load import Loads
from fastflow.performance.serving.simulator.window import EndedRequests, Window, state_of


class Latency(NamedTuple):
    """A time of requests [s]; shape (points,). 0 where no request has it."""

    mean: Floats
    p50: Floats
    p90: Floats
    p95: Floats
    p99: Floats
    percentile: Floats  # at `loads.percentile`; 0: the minimum

    def columns(self, name: str) -> Columns:
        """Return its columns by name; name: of the time."""
        statistics = self._asdict()
        mean = statistics.pop("mean")
        return {f"{name}_s": mean} | {f"{name}_{part}_s": column for part, column in statistics.items()}


_TIMES = ("ttft", "tpot", "e2e")


class RequestMetrics(NamedTuple):
    """Metrics of requests; shape (points,).

    Times are of requests that are sent in the window, rates of those that end in it.
    """

    ttft: Latency  # from sending to the first token
    tpot: Latency  # time per token after the first, of requests with several
    e2e: Latency  # from sending to the last token
    arrival_s: Floats  # from sending to the arrival at the server, mean [s]
    requests_per_s: Floats  # requests that end in the window over its duration, or all over that of the run
    decoding: Floats  # requests that decode, mean over time
    queue: Floats  # requests that have not started, mean over time
    stationary: Floats  # 1: an open loop at random times is; 0: it is not; NaN: no such loop
    overload: Floats  # requests a second that are sent, where fewer are served; else 0

    def columns(self) -> Columns:
        """Return its columns by name."""
        rest: Columns = {name: column for name, column in self._asdict().items() if name not in _TIMES}
        times: Columns = {}
        for name in _TIMES:
            times |= getattr(self, name).columns(name)
        return times | rest


def columns_of(simulated: Any) -> Columns:
    """Return the columns by name of a table whose `metrics` are `RequestMetrics`."""
    rest: Columns = {name: column for name, column in simulated._asdict().items() if name != "metrics"}
    metrics: RequestMetrics = simulated.metrics
    return rest | metrics.columns()


def no_metrics(points: int) -> RequestMetrics:
    """Return the table of points before any is simulated."""
    ttft, tpot, e2e = (Latency(*np.zeros((len(Latency._fields), points))) for _ in _TIMES)
    return RequestMetrics(ttft, tpot, e2e, *np.zeros((6, points)))


@kernel
def write_metrics(
    ended: EndedRequests, window: Window, loads: Loads, point: int, out: RequestMetrics
) -> None:
    """Write the metrics of a point's requests."""
    ttft, tpot, e2e = np.empty(ended.end.size), np.empty(ended.end.size), np.empty(ended.end.size)
    num_sent, num_tpot, ends, decoding, waiting, arrival_s = 0, 0, 0, 0.0, 0.0, 0.0
    for i in range(ended.end.size):
        if is_measured(window, ended.sent[i]):
            ttft[num_sent] = ended.first[i] - ended.sent[i]
            e2e[num_sent] = ended.end[i] - ended.sent[i]
            arrival_s += ended.arrived[i] - ended.sent[i]
            num_sent += 1
            if ended.osl[i] > 1:
                tpot[num_tpot] = (ended.end[i] - ended.first[i]) / (ended.osl[i] - 1)
                num_tpot += 1
        ends += is_measured(window, ended.end[i])
        decoding += overlap(window, ended.begin[i], ended.end[i])
        waiting += overlap(window, ended.arrived[i], ended.admitted[i])
    duration, percentile = window.end - window.start, loads.percentile[point]
    _write_latency(ttft[:num_sent], percentile, point, out.ttft)
    _write_latency(tpot[:num_tpot], percentile, point, out.tpot)
    _write_latency(e2e[:num_sent], percentile, point, out.e2e)
    out.arrival_s[point] = arrival_s / max(num_sent, 1)
    out.requests_per_s[point] = ends / duration
    out.decoding[point] = decoding / duration
    out.queue[point] = waiting / duration
    state = state_of(ended, window, loads, point)
    out.stationary[point] = state.stationary
    out.overload[point] = state.overload


@lean_kernel
def is_measured(window: Window, when: float) -> bool:
    """Say whether a time is in the window [s]."""
    return bool(window.is_whole or window.start <= when < window.end)


@lean_kernel
def overlap(window: Window, start: float, end: float) -> float:
    """Return how much of an interval is in the window [s]."""
    return max(0.0, min(end, window.end) - max(start, window.start))


@kernel
def _write_latency(values: Floats, percentile: float, point: int, out: Latency) -> None:
    """Write the statistics of a point's values, where it has any."""
    if values.size == 0:
        return
    ordered = np.sort(values)
    out.mean[point] = ordered.mean()
    out.p50[point] = percentile_of(ordered, 50.0)
    out.p90[point] = percentile_of(ordered, 90.0)
    out.p95[point] = percentile_of(ordered, 95.0)
    out.p99[point] = percentile_of(ordered, 99.0)
    out.percentile[point] = percentile_of(ordered, percentile)


@lean_kernel
def percentile_of(ordered: Floats, percentile: float) -> float:
    """Return a percentile of sorted values; linear between neighbours."""
    position = percentile / 100.0 * (ordered.size - 1)
    low = int(position)
    high = min(low + 1, ordered.size - 1)
    return float(ordered[low] + (position - low) * (ordered[high] - ordered[low]))
