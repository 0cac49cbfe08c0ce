"""Fleets of points: servers with caches, tiers and a router take the requests of `serve.trace`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.reasons.codes import Code, Reason, rejected
from fastflow.core.reasons.forms import stopped
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, map_columns, take
from fastflow.performance.serving.fleet.early_stop import EarlyStop, early_stop
from fastflow.performance.serving.fleet.members import (
    BY_LATENCY,
    BY_QUEUE,
    BY_RATE,
    NEVER_SCALES,
    Members,
    Scaling,
)
from fastflow.performance.serving.fleet.metrics import FleetMetrics, fleet_metrics, split_metrics
from fastflow.performance.serving.fleet.requests import (
    DECODE_POOL,
    PREFILL_POOL,
    Sizes,
    in_two_legs,
    requests_of,
)
from fastflow.performance.serving.fleet.run import FleetRun, results_of, results_of_legs
from fastflow.performance.serving.fleet.simulate import MAX_BYTES, Simulated, simulate
from fastflow.performance.serving.fleet.state import PER_FLEET, PER_RANK, PER_SERVER, Texts, Tiers, Trace
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.policy import simulated_policies
from fastflow.performance.serving.requests.load import TAKEN
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.weight_tiers import room_after_weights
from fastflow.schema.routing import KEY as ROUTER
from fastflow.schema.routing import LIMITS, ROUTERS, Limits
from fastflow.schema.scheduling import POLICIES
from fastflow.schema.servers import ADAPTERS_FROM, STATE_INTERVAL
from fastflow.schema.serving import AUTOSCALE, THROUGH, TIERS

_SCOPES = {"rank": PER_RANK, "server": PER_SERVER, "fleet": PER_FLEET}
DEVICES = "devices"
"""The name of the first tier, the devices' own memory."""
_MOST_TOKENS = 1e15  # of a store
_KINDS = {"none": NEVER_SCALES, "queue": BY_QUEUE, "rate": BY_RATE, "latency": BY_LATENCY}


class Handover(NamedTuple):
    """Transfers of caches to servers that decode; (points,)."""

    latency_s: Floats
    token_s: Floats
    layers: Ints  # parts of a cache, each sent once it is computed; 1: it is sent as a whole


class _Pool(NamedTuple):
    """Servers of one kind of a point."""

    servers: Servers
    members: Members


class _NamedTiers(NamedTuple):
    """Tiers of a point, and the names of all, that of the devices' memory first."""

    tiers: Tiers
    names: tuple[str, ...]


def simulate_fleets(scenario: ServingScenario) -> Columns:
    """Simulate every point's fleet; returns columns of metrics as of one server, (points,).

    Raises InputError where a router or a policy cannot be loaded or run.
    """
    metrics = FleetMetrics.empty(scenario.server.size)
    for point in range(scenario.server.size):
        run = run_fleet(scenario, point)
        metrics.refuse(point, run)
        if run.result.refused == TAKEN:
            fleet_metrics(scenario, point, run, metrics)
    return metrics.columns()


def simulate_split_fleets(
    prefill: ServingScenario, decode: ServingScenario, handover: Handover, streams: Bools
) -> Columns:
    """Simulate fleets of disaggregated servers; returns columns of metrics of the whole fleet, (points,).

    streams: whether the first token comes from the server that decodes, (points,). Raises InputError as
    `simulate_fleets` does.
    """
    metrics = FleetMetrics.empty(decode.server.size)
    for point in range(decode.server.size):
        run = run_split_fleet(prefill, decode, handover, bool(streams[point]), point)
        metrics.refuse(point, run)
        if run.result.refused == TAKEN:
            split_metrics(decode, point, run, metrics)
    return metrics.columns()


def too_large(scenario: ServingScenario, point: int) -> Reason:
    """Say that a point's fleet has too many servers for the requests of its trace."""
    allowed = f"fewer requests, or fewer servers: tables of their caches exceed {MAX_BYTES / 1024**3:g} GiB"
    return rejected(Code.LOAD, "serve.num_requests", int(scenario.requests[point]), allowed)


def stopped_early(scenario: ServingScenario, point: int, columns: Columns) -> Reason:
    """Say that a point's fleet was stopped early; columns: of `simulate_fleets`."""
    ended, missed = int(columns["ended"][point]), str(columns["missed"][point])
    return stopped(ended=ended, requests=int(scenario.requests[point]), missed=missed)


def run_fleet(scenario: ServingScenario, point: int) -> FleetRun:
    """Simulate the fleet of a point; raises InputError where a router or a policy cannot be loaded or run."""
    trace, texts = requests_of(scenario.inputs, point, _sizes(scenario, point))
    results = partial(results_of, scenario, point, trace)
    none = _no_handover(scenario.server.size)
    pool = _pool(scenario, point, PREFILL_POOL, none)
    times = scenario.passes.times
    tiers = _tiers(scenario, point)
    stop = early_stop(scenario, point, trace, results)
    result = _simulate((times, times), [pool], trace, texts, tiers.tiers, scenario, point, stop)
    ranks = int(pool.servers.ranks.max())
    requests = results(result.requests, result.served)
    return FleetRun(trace, pool.members, result, requests, ranks, False, tiers.names)


def run_split_fleet(
    prefill: ServingScenario, decode: ServingScenario, handover: Handover, streams: bool, point: int
) -> FleetRun:
    """Simulate the fleet of a point with disaggregated servers; raises InputError as `run_fleet` does.

    streams: whether the first token comes from the server that decodes. Lower tiers of both kinds of servers
    have room for as many tokens as those that prefill.
    """
    trace, texts = requests_of(decode.inputs, point, _sizes(prefill, point))
    results = partial(results_of_legs, decode, point, trace, streams)
    none = _no_handover(decode.server.size)
    pools = [_pool(prefill, point, PREFILL_POOL, none), _pool(decode, point, DECODE_POOL, handover)]
    tables = prefill.passes.times, decode.passes.times
    tiers = _tiers(prefill, point)
    stop = early_stop(decode, point, trace, results)
    result = _simulate(tables, pools, in_two_legs(trace), texts, tiers.tiers, prefill, point, stop)
    members: Members = map_columns(_joined, *(pool.members for pool in pools))
    ranks = max(int(pool.servers.ranks.max()) for pool in pools)
    requests = results(result.requests, result.served)
    return FleetRun(trace, members, result, requests, ranks, True, tiers.names)


def _simulate(
    tables: tuple[PassTimes, PassTimes],
    pools: list[_Pool],
    trace: Trace,
    texts: Texts,
    tiers: Tiers,
    scenario: ServingScenario,
    point: int,
    stop: EarlyStop | None,
) -> Simulated:
    """Simulate the fleet of a point."""
    inputs, policy = scenario.inputs, simulated_policies(scenario.inputs)[point]
    servers = pools[0] if len(pools) == 1 else map_columns(_joined, *pools)
    return simulate(
        tables,
        servers.servers,
        servers.members,
        _scaling(inputs, point, [pool.members.pool.size for pool in pools]),
        trace,
        texts,
        tiers,
        ROUTERS.find(str(inputs[ROUTER][point])),
        Limits(*(float(inputs[key][point]) for key in LIMITS.values())),
        int(inputs["server.block_size"][point]),
        POLICIES.find(str(policy)) if policy else None,
        stop.why if stop else None,
    )


def _sizes(scenario: ServingScenario, point: int) -> Sizes:
    """Return what texts and adapters of a point take in the caches of its servers."""
    request_bytes = float(scenario.request_cache[point])
    token_bytes = request_bytes / float(scenario.isl[point] + scenario.osl[point])
    # a state after each draft token, of which a checkpoint has the last
    drafts = int(scenario.inputs["serve.num_speculative_tokens"][point])
    state = float(scenario.cache.state[point])
    return Sizes(
        share=1.0 - state / request_bytes,
        state=state / (1 + drafts) / token_bytes,
        interval=int(scenario.inputs[STATE_INTERVAL][point]),
        adapter=int(np.ceil(scenario.adapter_bytes[point] / token_bytes)),
    )


def _pool(scenario: ServingScenario, point: int, number: int, handover: Handover) -> _Pool:
    """Return the servers of a point; each slot of a pipeline is a server with its share of the caches."""
    layouts = scenario.layouts
    count = int(layouts.replicas[point] * layouts.slots[point])
    servers = take(scenario.servers, np.full(count, point))
    if number == DECODE_POOL:
        servers = servers._replace(reserves=np.ones(count, dtype=np.bool_))
    ones = np.ones(count)
    members = Members(
        table=np.full(count, number),
        pool=np.full(count, number),
        start_s=_start_s(scenario, point) * ones,
        handover_latency_s=handover.latency_s[point] * ones,
        handover_token_s=handover.token_s[point] * ones,
        handover_layers=np.full(count, handover.layers[point]),
    )
    return _Pool(servers, members)


def _no_handover(points: int) -> Handover:
    """Return the transfers of servers that compute their prompts themselves."""
    return Handover(np.zeros(points), np.zeros(points), np.ones(points, dtype=np.int64))


def _joined(*columns: NDArray[Any]) -> NDArray[Any]:
    """Return the columns of several tables of servers as one."""
    return np.concatenate(columns)


def _start_s(scenario: ServingScenario, point: int) -> float:
    """Return how long a server takes to start: its process, and its weights from where they are [s]."""
    inputs = scenario.inputs
    tier = f"serve.tiers.{inputs[AUTOSCALE['weights_from']][point]}"
    read_s = float(inputs[f"{tier}.latency"][point]) + float(
        max(scenario.room.weights[point], scenario.others.weights[point]) / inputs[f"{tier}.bandwidth"][point]
    )
    return float(inputs[AUTOSCALE["start_time"]][point]) + read_s


def _scaling(inputs: Inputs, point: int, servers: list[int]) -> Scaling:
    """Return how the pools of a point scale; servers: of each."""
    values = {name: inputs[key][point] for name, key in AUTOSCALE.items()}
    pools, most = len(servers), int(values["max_replicas"])
    largest = np.array([min(most, count) if most > 0 else count for count in servers])
    return Scaling(
        kind=np.full(pools, _KINDS[str(values["by"])]),
        target=np.full(pools, float(values["target"])),
        interval_s=np.full(pools, float(values["interval"])),
        least=np.minimum(int(values["min_replicas"]), largest),
        most=largest,
        stabilization_s=np.full(pools, float(values["stabilization"])),
    )


def _tiers(scenario: ServingScenario, point: int) -> _NamedTiers:
    """Return the tiers below the devices' memory that have any."""
    inputs, layouts = scenario.inputs, scenario.layouts
    tokens = scenario.isl[point] + scenario.osl[point]
    token_bytes = float(scenario.request_cache[point] / tokens)  # of a device
    ranks, slots = int(layouts.ranks[point]), int(layouts.slots[point])
    of_scope = {
        PER_RANK: 1.0 / slots,
        PER_SERVER: ranks / slots,
        PER_FLEET: 1.0 / float(layouts.tensor[point] * slots),
    }
    through = str(inputs["serve.tiers.write"][point]) == THROUGH
    rows_of_point = np.array([point])
    devices = take(layouts.devices, rows_of_point)
    of_point, stored = take(dict(inputs), rows_of_point), take(scenario.room.lower, rows_of_point)
    rooms = room_after_weights(of_point, stored, devices)[:, 0]
    rows, names = [], [DEVICES]
    for name, room in zip(TIERS, rooms.tolist(), strict=True):
        bandwidth, latency, scope = (
            inputs[f"serve.tiers.{name}.{field}"][point] for field in ("bandwidth", "latency", "scope")
        )
        number = _SCOPES[str(scope)]
        capacity = room * int(devices[0]) if number == PER_FLEET else room
        tokens = int(min(capacity * of_scope[number] / token_bytes, _MOST_TOKENS))
        if tokens > 0:
            rows.append((number, tokens, through, float(latency), token_bytes / float(bandwidth)))
            names.append(name)
    columns = [np.array([row[i] for row in rows]) for i in range(5)]
    kinds = (np.int64, np.int64, np.bool_, np.float64, np.float64)
    source = f"serve.tiers.{inputs[ADAPTERS_FROM][point]}"
    of_tiers: list[NDArray[Any]] = [column.astype(kind) for column, kind in zip(columns, kinds, strict=True)]
    scope, capacity, is_through, latency_s, token_s = of_tiers
    tiers = Tiers(
        scope,
        capacity,
        is_through,
        latency_s,
        token_s,
        load_latency_s=float(inputs[f"{source}.latency"][point]),
        load_token_s=token_bytes / float(inputs[f"{source}.bandwidth"][point]),
    )
    return _NamedTiers(tiers, tuple(names))
