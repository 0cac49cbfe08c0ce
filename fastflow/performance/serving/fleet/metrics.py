"""Metrics of a simulated fleet: those of a server, per server, and what caches and limits make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.performance.serving.fleet.simulate import Simulated
from fastflow.performance.serving.fleet.state import Trace
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.simulator.fast_forward import CACHE, ITERATIONS, PREEMPTIONS, WITH_PREFILL
from fastflow.performance.serving.simulator.latencies import (
    RequestMetrics,
    columns_of,
    no_metrics,
    write_metrics,
)
from fastflow.performance.serving.simulator.window import EndedRequests, bounds_of, window_of
from fastflow.performance.serving.slo import LIMITS

FLEET = ("prefix_hit_rate", "tier_hit_rate", "goodput_per_s")
"""Columns of fleets alone."""


class FleetMetrics(NamedTuple):
    """Metrics of fleets; shape (points,). Those that other servers have too are per server."""

    refused: Ints  # load.TAKEN, or why a point has no result
    metrics: RequestMetrics
    prefill_share: Floats  # share of iterations that compute prompts
    preemptions: Floats  # number of them, of the whole fleet
    cache: Floats  # share of the cache that running requests use, mean over time
    simulated: Floats  # 1
    prefix_hit_rate: Floats  # share of prompts' tokens that are in the cache when they start
    tier_hit_rate: Floats  # share of prompts' tokens that are read from lower tiers
    goodput_per_s: Floats  # requests within all limits a second, of the whole fleet; NaN without limits

    @classmethod
    def empty(cls, points: int) -> FleetMetrics:
        """Return the table of points before any is simulated."""
        floats = np.zeros((6, points))
        return cls(
            refused=np.zeros(points, dtype=np.int64), metrics=no_metrics(points), prefill_share=floats[0],
            preemptions=floats[1], cache=floats[2], simulated=np.ones(points), prefix_hit_rate=floats[3],
            tier_hit_rate=floats[4], goodput_per_s=floats[5],
        )  # fmt: skip

    def columns(self) -> Columns:
        """Return its columns by name."""
        return columns_of(self)


def fleet_metrics(
    scenario: ServingScenario, point: int, trace: Trace, result: Simulated, out: FleetMetrics
) -> None:
    """Write the metrics of a point's fleet."""
    requests, served = result.requests, result.served
    ended = EndedRequests(
        np.arange(trace.isl.size), trace.osl, served.arrived, requests.admitted, requests.first,
        requests.first, requests.end, requests.end - requests.admitted,
    )  # fmt: skip
    window = window_of(ended, bounds_of(served.arrived, False), 0.0)
    write_metrics(ended, window, scenario.loads, point, out.metrics)
    servers = float(scenario.active[point])
    for column in (out.metrics.requests_per_s, out.metrics.decoding, out.metrics.queue, out.metrics.overload):
        column[point] /= servers
    totals, duration = result.totals.sum(axis=0), window.end - window.start
    ranks = servers * scenario.servers.ranks[point]
    out.prefill_share[point] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out.preemptions[point] = totals[PREEMPTIONS]
    out.cache[point] = totals[CACHE] / (duration * ranks * scenario.servers.capacity[point])
    prompts = trace.isl.sum()
    out.prefix_hit_rate[point] = served.cached.sum() / prompts
    out.tier_hit_rate[point] = served.read.sum() / prompts
    out.goodput_per_s[point] = _within_limits(scenario, point, ended).sum() / duration
    if not any(scenario.inputs[key][point] > 0.0 for key in LIMITS.values()):
        out.goodput_per_s[point] = np.nan


def _within_limits(scenario: ServingScenario, point: int, ended: EndedRequests) -> Bools:
    """Say which requests are within all limits (`serve.slo`), (requests,)."""
    latencies = {
        "ttft": ended.first - ended.sent + scenario.request_s[point],
        "tpot": (ended.end - ended.first) / np.maximum(ended.osl - 1, 1),
    }
    within: Bools = np.ones(ended.osl.size, dtype=np.bool_)
    for name, key in LIMITS.items():
        limit = scenario.inputs[key][point]
        within &= (latencies[name] <= limit) | (limit == 0.0)
    return within
