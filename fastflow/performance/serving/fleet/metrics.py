"""Metrics of a simulated fleet: those of a server, per server, and what caches and limits make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Ints, Texts
from fastflow.performance.serving.fleet.by_group import by_class, by_turn
from fastflow.performance.serving.fleet.by_session import later_hit_rate, session_times
from fastflow.performance.serving.fleet.requests import DECODE_POOL
from fastflow.performance.serving.fleet.run import FleetRun, RequestResults
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.simulator.fast_forward import CACHE, ITERATIONS, PREEMPTIONS, WITH_PREFILL
from fastflow.performance.serving.simulator.latencies import (
    RequestMetrics,
    columns_of,
    no_metrics,
    write_metrics,
)
from fastflow.performance.serving.simulator.window import Window, bounds_of, window_of
from fastflow.performance.serving.slo import LIMITS
from fastflow.physics.workload.request_order import RequestTrace
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace
from fastflow.schema.servers import ADAPTERS, NO_ADAPTERS


class SessionMetrics(NamedTuple):
    """Metrics of sessions; shape (points,). NaN where the requests have no sessions."""

    sessions: Floats
    session_p50_s: Floats  # from sending the first request of a session to its last token
    session_p99_s: Floats
    session_wait_p50_s: Floats  # of all requests of a session from sending to their last tokens, together
    session_wait_p99_s: Floats
    later_turns_hit_rate: Floats  # as prefix_hit_rate, without the first turns; NaN: there are no others


FLEET = (
    "prefix_hit_rate", "tier_hit_rate", "goodput_per_s", "servers_on", "server_starts", "adapter_loads",
    "adapter_load_s",
    *SessionMetrics._fields,
)  # fmt: skip
"""Columns of fleets alone."""
GROUPS = ("classes", "turns")
"""Texts of groups of requests."""


class FleetMetrics(NamedTuple):
    """Metrics of fleets; shape (points,). Those that other servers have too are per server."""

    refused: Ints  # load.TAKEN, or why a point has no result
    missed: Texts  # the limit that stopped a simulation early; "": none did
    ended: Ints  # requests that had ended then
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
    adapter_loads: Floats  # NaN: requests need no adapters
    adapter_load_s: Floats  # mean time of a load, with waits for others [s]; NaN: there was none
    transfer_s: Floats  # to hand over the cache of a request, mean over requests [s]
    prefill_iterations: Floats  # of disaggregated servers
    decode_iterations: Floats
    encode_wait_s: Floats  # for an encoder on a device of its own, mean over requests [s]
    classes: Texts  # of each class of service, as `by_class` says
    turns: Texts  # of turns of sessions, as `by_turn` says
    of_sessions: SessionMetrics

    @classmethod
    def empty(cls, points: int) -> FleetMetrics:
        """Return the table of points before any is simulated."""
        floats = np.zeros((14, points))
        return cls(
            refused=np.zeros(points, dtype=np.int64), missed=np.full(points, "", dtype=object),
            ended=np.zeros(points, dtype=np.int64), metrics=no_metrics(points), prefill_share=floats[0],
            preemptions=floats[1], cache=floats[2], simulated=np.ones(points), prefix_hit_rate=floats[3],
            tier_hit_rate=floats[4], goodput_per_s=floats[5], servers_on=floats[6], server_starts=floats[7],
            transfer_s=floats[8], prefill_iterations=floats[9], decode_iterations=floats[10],
            adapter_loads=floats[11], adapter_load_s=floats[12], encode_wait_s=floats[13],
            classes=np.full(points, "", dtype=object), turns=np.full(points, "", dtype=object),
            of_sessions=SessionMetrics(*np.full((len(SessionMetrics._fields), points), np.nan)),
        )  # fmt: skip

    def columns(self) -> Columns:
        """Return its columns by name."""
        columns = columns_of(self) | self.of_sessions._asdict()
        del columns["of_sessions"]
        return columns | {name: columns[name].astype(np.str_) for name in ("missed", *GROUPS)}

    def refuse(self, point: int, run: FleetRun) -> None:
        """Write why a point has no results."""
        self.refused[point], self.missed[point] = run.result.refused, run.result.missed
        self.ended[point] = (run.requests.ended.end >= 0.0).sum()


def fleet_metrics(scenario: ServingScenario, point: int, run: FleetRun, out: FleetMetrics) -> None:
    """Write the metrics of a point's fleet, those of a server as their mean over all servers."""
    window = _write(scenario, point, run, out)
    servers, totals = float(scenario.active[point]), run.result.totals.sum(axis=0)
    for column in (out.metrics.requests_per_s, out.metrics.decoding, out.metrics.queue, out.metrics.overload):
        column[point] /= servers
    ranks = servers * scenario.servers.ranks[point]
    out.prefill_share[point] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out.cache[point] = totals[CACHE] / (window.end * ranks * scenario.servers.capacity[point])


def split_metrics(decode: ServingScenario, point: int, run: FleetRun, out: FleetMetrics) -> None:
    """Write the metrics of a point's disaggregated fleet."""
    result, members, count = run.result, run.members, run.trace.isl.size
    window = _write(decode, point, run, out)
    decoding = members.pool == DECODE_POOL
    iterations = result.totals[:, ITERATIONS]
    out.prefill_iterations[point] = iterations[~decoding].sum()
    out.decode_iterations[point] = iterations[decoding].sum()
    ranks = decode.layouts.replicas[point] * decode.servers.ranks[point]
    cached = result.totals[decoding, CACHE].sum()
    out.cache[point] = cached / (window.end * ranks * decode.servers.capacity[point])
    last, handed = int(np.flatnonzero(decoding)[0]), result.served.handed[count:]
    layers, sends_s = members.handover_layers[last], handed * members.handover_token_s[last]
    early_s = result.served.prefill_s[count:] * (layers - 1) / layers
    exposed_s = members.handover_latency_s[last] + np.maximum(sends_s - early_s, sends_s / layers)
    out.transfer_s[point] = np.where(handed > 0, exposed_s, 0.0).mean()


def _write(scenario: ServingScenario, point: int, run: FleetRun, out: FleetMetrics) -> Window:
    """Write the metrics that all fleets have; returns their window, the whole run."""
    results, result = run.requests, run.result
    ended = results.ended
    window = window_of(ended, bounds_of(ended.sent, False), 0.0)
    write_metrics(ended, window, scenario.loads, point, out.metrics)
    duration = window.end - window.start
    out.preemptions[point] = result.totals[:, PREEMPTIONS].sum()
    out.servers_on[point] = result.on_s.sum() / duration / scenario.layouts.slots[point]
    out.server_starts[point] = result.starts.sum() / scenario.layouts.slots[point]
    has_adapters = scenario.inputs[ADAPTERS][point] != NO_ADAPTERS
    out.adapter_loads[point] = result.loads if has_adapters else np.nan
    out.adapter_load_s[point] = result.loads_s / result.loads if result.loads else np.nan
    out.encode_wait_s[point] = result.encode_waits_s / ended.osl.size
    prompts = results.isl.sum()
    out.prefix_hit_rate[point] = results.cached.sum() / prompts
    out.tier_hit_rate[point] = results.read.sum() / prompts
    out.goodput_per_s[point] = results.within.sum() / duration
    no_limits = not any(scenario.inputs[key][point] > 0.0 for key in LIMITS.values())
    if no_limits and np.isinf(run.trace.deadline).all():
        out.goodput_per_s[point] = np.nan
    file = read_trace(str(scenario.inputs[TRACE][point]))
    out.classes[point] = by_class(file, results, duration)
    out.turns[point] = by_turn(file, results, duration)
    _write_sessions(file, results, point, out.of_sessions)
    return window


def _write_sessions(file: RequestTrace, results: RequestResults, point: int, out: SessionMetrics) -> None:
    """Write the metrics of sessions, where requests have any."""
    times = session_times(file, results)
    if times.duration.size:
        out.sessions[point] = times.duration.size
        out.session_p50_s[point], out.session_p99_s[point] = np.percentile(times.duration, (50, 99))
        out.session_wait_p50_s[point], out.session_wait_p99_s[point] = np.percentile(times.wait, (50, 99))
        out.later_turns_hit_rate[point] = later_hit_rate(file, results)
