"""A fleet over time, and the distributions of its requests' times: what figures and pages draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats
from fastflow.performance.serving.fleet.by_group import groups_by_class, groups_by_turn
from fastflow.performance.serving.fleet.by_session import session_times
from fastflow.performance.serving.fleet.requests import DECODE_POOL, PREFILL_POOL
from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.physics.workload.request_order import RequestTrace

BINS = 60
"""Parts of the arrivals, of which percentiles are drawn."""
MILLION = 1e6
_SHARES = np.concatenate([np.linspace(0.0, 0.95, 96)[:-1], np.linspace(0.95, 1.0, 101)])
"""Shares of requests at which a cumulative curve has a point: more of them at the slowest requests."""


class Series(NamedTuple):
    """A line over time."""

    name: str
    values: Floats  # (times,), NaN for none


class Panel(NamedTuple):
    """Lines over the same times."""

    title: str
    unit: str  # of a column; "": a number
    time: Floats  # [s]
    series: tuple[Series, ...]
    is_stacked: bool = False
    is_stepped: bool = False

    @property
    def has_gaps(self) -> bool:
        """Whether some times have no value."""
        return any(bool(np.isnan(series.values).any()) for series in self.series)


class Curve(NamedTuple):
    """The cumulative distribution of a time."""

    by: str  # what the requests are grouped by; "": by nothing
    name: str  # of the group
    values: Floats  # [s], rising
    shares: Floats  # of requests whose time is at most this


def panels_of(run: FleetRun) -> list[Panel]:
    """Return a fleet over time: requests, first tokens, batches, texts in caches, servers that are on."""
    timeline = run.result.timeline
    panels = list(_requests(run))
    panels.append(first_tokens(run))
    panels += _batches(run)
    tokens = (timeline.used_tokens, *timeline.cached_tokens.T)
    names = ("in use", *(f"kept: {name}" for name in run.tiers))
    texts = tuple(Series(*pair) for pair in zip(names, (count / MILLION for count in tokens), strict=True))
    panels.append(Panel("Texts in caches [million tokens]", "", timeline.time, texts, is_stacked=True))
    if scales(run):
        servers = Series("take requests", timeline.open), Series("start", timeline.starting)
        panels.append(Panel("Servers", "", timeline.time, servers, is_stacked=True, is_stepped=True))
    return panels


def scales(run: FleetRun) -> bool:
    """Say whether the number of servers that are on changes."""
    timeline = run.result.timeline
    return bool(np.ptp(timeline.open) > 0 or timeline.starting.any())


def first_tokens(run: FleetRun) -> Panel:
    """Return percentiles of the time to the first token, by the time of arrival."""
    sent, ttft = run.requests.ended.sent, run.requests.ttft_s
    edges = np.linspace(0.0, max(float(sent.max(initial=0.0)), 1e-9), BINS + 1)
    bins = np.clip(np.digitize(sent, edges) - 1, 0, BINS - 1)
    values = np.full((2, BINS), np.nan)
    for i in np.unique(bins).tolist():
        values[:, i] = np.percentile(ttft[bins == i], (50, 99))
    series = Series("median", values[0]), Series("99th percentile", values[1])
    return Panel("Time to the first token, by arrival", "s", 0.5 * (edges[1:] + edges[:-1]), series)


def _requests(run: FleetRun) -> Iterator[Panel]:
    """Yield the requests that run and that wait, of each pool of servers."""
    timeline = run.result.timeline
    if not run.is_split:
        series = Series("running", timeline.running), Series("waiting", timeline.waiting)
        yield Panel("Requests", "", timeline.time, series, is_stacked=True)
        return
    requests, served = run.result.requests, run.result.served
    for pool, name in _pools(run):
        rows = _rows_of(run, pool)
        arrived, started, ended = (
            _reached(column[rows], timeline.time)
            for column in (served.arrived, requests.admitted, requests.end)
        )
        series = Series("running", started - ended), Series("waiting", arrived - started)
        yield Panel(f"Requests of servers that {name}", "", timeline.time, series, is_stacked=True)


def _batches(run: FleetRun) -> Iterator[Panel]:
    """Yield the requests that run on a rank, as mean over ranks with any and as most, of each pool."""
    requests, rank, time = run.result.requests, run.result.served.rank, run.result.timeline.time
    for pool, name in _pools(run):
        rows = _rows_of(run, pool)
        total, busy, most = np.zeros((3, time.size))
        rows = rows[np.argsort(rank[rows], kind="stable")]
        for of_rank in np.split(rows, np.flatnonzero(np.diff(rank[rows])) + 1):
            running = _reached(requests.admitted[of_rank], time) - _reached(requests.end[of_rank], time)
            total, busy, most = total + running, busy + (running > 0.0), np.maximum(most, running)
        series = Series("mean of busy ranks", total / np.maximum(busy, 1.0)), Series("largest", most)
        title = f"Batch of a rank{f' of servers that {name}' if run.is_split else ''}"
        yield Panel(title, "", time, series)


def _pools(run: FleetRun) -> list[tuple[int, str]]:
    """Return the pools of servers, and what they do."""
    pools = [(PREFILL_POOL, "prefill"), (DECODE_POOL, "decode")]
    return pools if run.is_split else pools[:1]


def _rows_of(run: FleetRun, pool: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the requests of a pool of servers; those of disaggregated servers have two rows each."""
    return np.flatnonzero(run.members.pool[run.result.served.rank // run.ranks] == pool)


def _reached(when: Floats, time: Floats) -> Floats:
    """Return how many of some events have come by each time, (times,)."""
    return np.searchsorted(np.sort(when), time, side="right").astype(np.float64)


def curves_of(run: FleetRun, file: RequestTrace) -> dict[str, list[Curve]]:
    """Return the distributions of ttft, tpot and e2e by name: of all requests, by class and by turn.

    file: whose first requests were sent.
    """
    results = run.requests
    groups: list[tuple[str, str, Bools]] = [("", "all requests", np.ones(results.isl.size, dtype=np.bool_))]
    for by, of_file in (("class", groups_by_class), ("turn", groups_by_turn)):
        named = of_file(file, results.isl.size).items()
        groups += [(by, name, rows) for name, rows in named if rows.any()]
    columns = {"ttft": results.ttft_s, "tpot": results.tpot_s, "e2e": results.e2e_s}
    return {
        name: [
            curve_of(by, group, column[rows & ~np.isnan(column)])
            for by, group, rows in groups
            if not np.isnan(column[rows]).all()
        ]
        for name, column in columns.items()
    }


def session_curves(run: FleetRun, file: RequestTrace) -> list[Curve]:
    """Return the distributions of the times of sessions; none without sessions."""
    times = session_times(file, run.requests)
    if not times.duration.size:
        return []
    names = ("from first request to last token", times.duration), ("waiting for answers", times.wait)
    return [curve_of("", name, values) for name, values in names]


def curve_of(by: str, name: str, values: Floats) -> Curve:
    """Return the cumulative distribution of some values."""
    if values.size <= _SHARES.size:
        ordered = np.sort(values)
        return Curve(by, name, ordered, np.arange(1, values.size + 1) / values.size)
    return Curve(by, name, np.percentile(values, 100.0 * _SHARES), _SHARES)
