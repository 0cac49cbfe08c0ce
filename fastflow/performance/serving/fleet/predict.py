"""Fleets of points: servers with caches, tiers and a router take the requests of `serve.trace`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.tables import Columns, take
from fastflow.performance.serving.fleet.metrics import FleetMetrics, fleet_metrics
from fastflow.performance.serving.fleet.simulate import simulate
from fastflow.performance.serving.fleet.state import PER_FLEET, PER_RANK, PER_SERVER, Texts, Tiers, Trace
from fastflow.performance.serving.policy import simulated_policies
from fastflow.performance.serving.requests.load import TAKEN
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.physics.workload.prompt_texts import prompt_texts
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace
from fastflow.schema.routing import KEY as ROUTER
from fastflow.schema.routing import LIMITS, ROUTERS, Limits
from fastflow.schema.scheduling import POLICIES
from fastflow.schema.serving import THROUGH, TIERS

_SCOPES = {"rank": PER_RANK, "server": PER_SERVER, "fleet": PER_FLEET}
_MAX_TRACES = 4


def simulate_fleets(scenario: ServingScenario) -> Columns:
    """Simulate every point's fleet; returns columns of metrics as of one server, (points,).

    Raises InputError where a router or a policy cannot be loaded or run.
    """
    points = scenario.server.size
    policies, metrics = simulated_policies(scenario.inputs), FleetMetrics.empty(points)
    for point in range(points):
        trace, texts = _requests(scenario, point)
        lanes = int(scenario.layouts.replicas[point] * scenario.layouts.slots[point])
        result = simulate(
            scenario.passes.times,
            take(scenario.servers, np.full(lanes, point)),
            trace,
            texts,
            _tiers(scenario, point),
            ROUTERS.find(str(scenario.inputs[ROUTER][point])),
            Limits(*(float(scenario.inputs[key][point]) for key in LIMITS.values())),
            int(scenario.inputs["server.block_size"][point]),
            POLICIES.find(str(policies[point])) if policies[point] else None,
        )
        metrics.refused[point] = result.refused
        if result.refused == TAKEN:
            fleet_metrics(scenario, point, trace, result, metrics)
    return metrics.columns()


def _requests(scenario: ServingScenario, point: int) -> tuple[Trace, Texts]:
    """Return the requests that a point sends, and their texts."""
    inputs = scenario.inputs
    path, requests = str(inputs[TRACE][point]), int(inputs["serve.num_requests"][point])
    caches = bool(inputs["server.enable_prefix_caching"][point])
    trace, texts = _read_requests(path, read_trace(path).isl.size, caches)
    follows = np.zeros(trace.isl.size, dtype=np.bool_)
    follows[trace.follower[trace.follower >= 0]] = True
    speed = float(inputs["serve.trace_speed"][point])
    trace = trace._replace(sent=np.where(follows, trace.sent, trace.sent / speed))
    if 0 < requests < trace.isl.size:
        first = np.arange(requests)
        trace = take(trace, first)
        trace = trace._replace(follower=np.where(trace.follower < requests, trace.follower, -1))
    return trace, texts


@lru_cache(maxsize=_MAX_TRACES)
def _read_requests(path: str, requests: int, caches: bool) -> tuple[Trace, Texts]:
    """Return the requests of a file and their texts; requests: that it has, for files that change.

    caches: whether prompts share texts.
    """
    file = read_trace(path)
    forest = prompt_texts(file)
    texts = Texts(forest.parent, forest.tokens, forest.before)
    trace = Trace(file.isl, file.osl, file.sent, forest.text, forest.answer, file.session, file.follower)
    if caches:
        return trace, texts
    roots = np.full(requests, -1)
    alone = Texts(roots, file.isl, np.zeros(requests, dtype=np.int64))
    return trace._replace(text=np.arange(requests), answer=roots), alone


def _tiers(scenario: ServingScenario, point: int) -> Tiers:
    """Return the tiers below the devices' memory that have any."""
    inputs, layouts = scenario.inputs, scenario.layouts
    token_bytes = float(
        scenario.request_cache[point] / (scenario.isl[point] + scenario.osl[point])
    )  # of a device
    ranks, slots = int(layouts.ranks[point]), int(layouts.slots[point])
    of_scope = {
        PER_RANK: 1.0 / slots,
        PER_SERVER: ranks / slots,
        PER_FLEET: 1.0 / float(layouts.tensor[point] * slots),
    }
    through = str(inputs["serve.tiers.write"][point]) == THROUGH
    rows = []
    for name in TIERS:
        capacity, bandwidth, latency, scope = (
            inputs[f"serve.tiers.{name}.{field}"][point]
            for field in ("capacity", "bandwidth", "latency", "scope")
        )
        number = _SCOPES[str(scope)]
        tokens = int(min(float(capacity) * of_scope[number] / token_bytes, 1e15))
        if tokens > 0:
            rows.append((number, tokens, through, float(latency), token_bytes / float(bandwidth)))
    columns = [np.array([row[i] for row in rows]) for i in range(5)]
    kinds = (np.int64, np.int64, np.bool_, np.float64, np.float64)
    return Tiers(*(column.astype(kind) for column, kind in zip(columns, kinds, strict=True)))
