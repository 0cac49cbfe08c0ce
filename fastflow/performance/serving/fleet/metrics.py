"""Metrics of a simulated fleet: those of a server, per server, and what caches and limits make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts
from fastflow.performance.serving.fleet.by_class import by_class
from fastflow.performance.serving.fleet.members import Members
from fastflow.performance.serving.fleet.requests import DECODE_POOL
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
from fastflow.performance.serving.simulator.window import EndedRequests, Window, bounds_of, window_of
from fastflow.performance.serving.slo import LIMITS

FLEET = ("prefix_hit_rate", "tier_hit_rate", "goodput_per_s", "servers_on", "server_starts")
"""Columns of fleets alone."""
CLASSES = "classes"
"""The text of the classes of service."""


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
    servers_on: Floats  # mean number of servers that are on
    server_starts: Floats
    transfer_s: Floats  # to hand over the cache of a request, mean over requests [s]
    prefill_iterations: Floats  # of disaggregated servers
    decode_iterations: Floats
    classes: Texts  # of each class of service, as `by_class` says

    @classmethod
    def empty(cls, points: int) -> FleetMetrics:
        """Return the table of points before any is simulated."""
        floats = np.zeros((11, points))
        return cls(
            refused=np.zeros(points, dtype=np.int64), metrics=no_metrics(points), prefill_share=floats[0],
            preemptions=floats[1], cache=floats[2], simulated=np.ones(points), prefix_hit_rate=floats[3],
            tier_hit_rate=floats[4], goodput_per_s=floats[5], servers_on=floats[6], server_starts=floats[7],
            transfer_s=floats[8], prefill_iterations=floats[9], decode_iterations=floats[10],
            classes=np.full(points, "", dtype=object),
        )  # fmt: skip

    def columns(self) -> Columns:
        """Return its columns by name."""
        return columns_of(self._replace(classes=self.classes.astype(np.str_)))


def fleet_metrics(
    scenario: ServingScenario, point: int, trace: Trace, result: Simulated, out: FleetMetrics
) -> None:
    """Write the metrics of a point's fleet, those of a server as their mean over all servers."""
    requests, served = result.requests, result.served
    ended = EndedRequests(
        np.arange(trace.isl.size), trace.osl.astype(np.int64), served.arrived, requests.admitted,
        requests.first, requests.first, requests.end, requests.end - requests.admitted,
    )  # fmt: skip
    window = _write(scenario, point, ended, result, out)
    servers, totals = float(scenario.active[point]), result.totals.sum(axis=0)
    for column in (out.metrics.requests_per_s, out.metrics.decoding, out.metrics.queue, out.metrics.overload):
        column[point] /= servers
    ranks = servers * scenario.servers.ranks[point]
    out.prefill_share[point] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out.cache[point] = totals[CACHE] / (window.end * ranks * scenario.servers.capacity[point])


def split_metrics(
    decode: ServingScenario,
    point: int,
    trace: Trace,
    members: Members,
    result: Simulated,
    streams: bool,
    out: FleetMetrics,
) -> None:
    """Write the metrics of a point's disaggregated fleet; trace: before it was cut in two legs.

    members: servers of both pools; streams: whether the first token comes from the server that decodes.
    """
    requests, served, count = result.requests, result.served, trace.isl.size
    first, decodes = requests.first[:count], requests.first[count:]
    ended = EndedRequests(
        np.arange(count), trace.osl.astype(np.int64), served.arrived[:count], requests.admitted[:count],
        decodes if streams else first, decodes, requests.end[count:],
        requests.end[count:] - requests.admitted[:count],
    )  # fmt: skip
    window = _write(decode, point, ended, result, out)
    decoding = members.pool == DECODE_POOL
    iterations = result.totals[:, ITERATIONS]
    out.prefill_iterations[point] = iterations[~decoding].sum()
    out.decode_iterations[point] = iterations[decoding].sum()
    ranks = decode.layouts.replicas[point] * decode.servers.ranks[point]
    cached = result.totals[decoding, CACHE].sum()
    out.cache[point] = cached / (window.end * ranks * decode.servers.capacity[point])
    last = int(np.flatnonzero(decoding)[0])
    sends_s = members.handover_latency_s[last] + served.handed * members.handover_token_s[last]
    out.transfer_s[point] = np.where(served.handed > 0, sends_s, 0.0)[count:].mean()


def _write(
    scenario: ServingScenario, point: int, ended: EndedRequests, result: Simulated, out: FleetMetrics
) -> Window:
    """Write the metrics that all fleets have; returns their window, the whole run."""
    window = window_of(ended, bounds_of(ended.sent, False), 0.0)
    write_metrics(ended, window, scenario.loads, point, out.metrics)
    duration = window.end - window.start
    out.preemptions[point] = result.totals[:, PREEMPTIONS].sum()
    out.servers_on[point] = result.on_s.sum() / duration / scenario.layouts.slots[point]
    out.server_starts[point] = result.starts.sum() / scenario.layouts.slots[point]
    count, served = ended.osl.size, result.served  # the first ones compute the prompts
    prompts = result.requests.isl[:count].sum()
    out.prefix_hit_rate[point] = served.cached[:count].sum() / prompts
    out.tier_hit_rate[point] = served.read[:count].sum() / prompts
    within = _within_limits(scenario, point, ended)
    out.classes[point] = by_class(scenario, point, ended, within, duration)
    out.goodput_per_s[point] = within.sum() / duration
    if not any(scenario.inputs[key][point] > 0.0 for key in LIMITS.values()):
        out.goodput_per_s[point] = np.nan
    return window


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
