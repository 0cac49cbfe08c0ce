"""Disaggregated serving: devices, layouts and passes of both phases, and metrics of requests.

`serve.prefill.devices` of the devices prefill; the others decode (Zhong et al., DistServe, OSDI 2024; Patel
et al., Splitwise, ISCA 2024). A prefill server makes the first token. The wait for a server of decode and the
transfer of the cache delay the second token, and count in the time per output token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, Reason, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, column_of, first_reasons
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, replace_rows, take
from fastflow.performance.serving.attention_pool.devices import (
    ATTENTION_DEVICES,
    has_pool,
    invalid_pool,
    other_devices,
)
from fastflow.performance.serving.disaggregated.simulate import Pools, simulate_disaggregated
from fastflow.performance.serving.disaggregated.steady_state import steady_disaggregated
from fastflow.performance.serving.encoder_pool.devices import (
    ENCODER_DEVICES,
    has_encoders,
    without_encoders,
)
from fastflow.performance.serving.encoder_pool.encoders import unconnected, with_encoders
from fastflow.performance.serving.fleet.predict import (
    Handover,
    run_split_fleet,
    simulate_split_fleets,
    stopped_early,
    too_large,
)
from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.performance.serving.kv_cache import cache_shortage
from fastflow.performance.serving.layout import STRATEGY, ServerLayouts, server_layouts
from fastflow.performance.serving.method import predict_requests, without_refused
from fastflow.performance.serving.other_chips import has_chip, with_chip
from fastflow.performance.serving.overload import overload
from fastflow.performance.serving.requests.load import STOPPED, TOO_LARGE, TOO_LONG, TOO_MANY
from fastflow.performance.serving.scenario import ServingScenario, build_scenario
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.validity import MAX_VALUE
from fastflow.physics.hardware.power import LIMIT, PREFILL_LIMIT
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.strategy import parse
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema import OF_PREFILL
from fastflow.schema.serving import DISAGGREGATED

DEVICES, PREFILL_DEVICES = "system.devices", "serve.prefill.devices"
PREFILL_STRATEGY, BANDWIDTH = "serve.prefill.strategy", "serve.bandwidth"
SAME = "same"
FIRST_TOKEN, OF_DECODE = "serve.first_token", "decode"
LAYERWISE = "serve.layerwise_transfer"


class PhaseLayouts(NamedTuple):
    """Servers of both phases; (points,)."""

    decode: ServerLayouts
    prefill: ServerLayouts  # the same as `decode` where servers do both
    reason: ReasonColumn  # why a point has none of either phase


class _CacheTransfer(NamedTuple):
    """Time of a transfer of a prompt's cache [s]; (points,)."""

    latency: Floats
    sending: Floats  # of its bytes
    layers: Ints  # parts of it, each sent once it is computed; 1: it is sent as a whole


class DisaggregatedResults(NamedTuple):
    """Servers of prefill, and metrics of requests; (points,)."""

    prefill: ServingScenario
    metrics: Columns
    reason: ReasonColumn


def is_disaggregated(inputs: Inputs) -> Bools:
    """Say which points have separate servers for prefill and decode."""
    return np.asarray(inputs["serve.mode"] == DISAGGREGATED, dtype=np.bool_)


def decode_inputs(inputs: Inputs) -> Inputs:
    """Return inputs with the devices that decode, for points of any mode: all but those of prefill.

    Without those of attention and of encoders, where these have devices of their own.
    """
    return other_devices(_decoding(inputs))


def _decoding(inputs: Inputs) -> Inputs:
    """Return inputs with all devices that decode."""
    rows, inputs = is_disaggregated(inputs), without_encoders(inputs)
    if not rows.any():
        return inputs
    columns = dict(inputs)
    decoding = np.maximum(inputs[DEVICES] - inputs[PREFILL_DEVICES], 1)
    columns[DEVICES] = np.where(rows, decoding, inputs[DEVICES])
    return columns


def prefill_inputs(inputs: Inputs) -> Inputs:
    """Return inputs of the devices that prefill, for points that have them."""
    columns, points = with_prefill_chip(inputs), inputs[DEVICES].size
    strategies = [
        single_server_strategy(text) if prefill == SAME else prefill
        for text, prefill in zip(inputs[STRATEGY].tolist(), inputs[PREFILL_STRATEGY].tolist(), strict=True)
    ]
    columns[DEVICES] = np.maximum(inputs[PREFILL_DEVICES], 1)
    columns[STRATEGY] = np.array(strategies)
    columns["serve.concurrency"] = np.ones(points, dtype=np.int64)  # their passes decode nothing
    columns[ATTENTION_DEVICES] = np.zeros(points, dtype=np.int64)  # of servers that decode
    columns["serve.num_speculative_tokens"] = np.zeros(points, dtype=np.int64)
    return columns


def has_prefill_chip(inputs: Inputs) -> bool:
    """Say whether the inputs have a separate prefill chip."""
    return has_chip(inputs, OF_PREFILL)


def with_prefill_chip(inputs: Inputs) -> Columns:
    """Return inputs with the prefill chip, where there is one, in place of the decode chip, and its limit."""
    columns = with_chip(inputs, OF_PREFILL)
    if PREFILL_LIMIT in inputs:
        columns[LIMIT] = inputs[PREFILL_LIMIT]
    return columns


def single_server_strategy(text: str) -> str:
    """Return the strategy of a single server of a strategy."""
    strategy = parse(text)
    degrees, _ = strategy.on_mesh(whole_experts=True)
    return str(strategy._replace(dp=degrees[AXES.index("ep")]))


def phase_layouts(inputs: Inputs) -> PhaseLayouts:
    """Return the servers of both phases; inputs: of points of any mode, with all devices."""
    is_split = is_disaggregated(inputs)
    decoding = np.where(is_split, f"{DEVICES} - {PREFILL_DEVICES}", DEVICES)
    decoding = np.where(has_encoders(inputs), np.char.add(decoding, f" - {ENCODER_DEVICES}"), decoding)
    decoding = np.where(has_pool(inputs), np.char.add(decoding, f" - {ATTENTION_DEVICES}"), decoding)
    decode, rows = server_layouts(decode_inputs(inputs), devices_key=decoding), np.flatnonzero(is_split)
    of_pool = invalid_pool(_decoding(inputs), decode)
    decode = decode._replace(reason=first_reasons(of_pool, decode.reason))
    if not rows.size:
        return PhaseLayouts(decode, decode, decode.reason)
    columns = take(dict(inputs), rows)
    prefilling = np.full(rows.size, PREFILL_DEVICES)
    prefill = server_layouts(prefill_inputs(columns), PREFILL_STRATEGY, prefilling)
    invalid_split = Reasons(rows.size)
    devices, prefills = without_encoders(columns)[DEVICES], columns[PREFILL_DEVICES]
    for i in invalid_split.without(devices < 2):
        allowed = "at least 2 for prefill and decode apart"
        invalid_split.add(i, rejected(Code.STRATEGY, DEVICES, int(devices[i]), allowed))
    for i in invalid_split.without((prefills < 1) | (prefills >= devices)):
        allowed = (
            f"1 to {devices[i] - 1} of the {devices[i]} devices of system.devices, or 0 with {STRATEGY}=auto"
        )
        invalid_split.add(i, rejected(Code.STRATEGY, PREFILL_DEVICES, int(prefills[i]), allowed))
    of_split = first_reasons(invalid_split.column(), take(decode.reason, rows), prefill.reason)
    reason = decode.reason.replaced(rows, of_split)
    return PhaseLayouts(decode, replace_rows(decode, rows, prefill), reason)


def predict_disaggregated(scenario: ServingScenario) -> DisaggregatedResults:
    """Return metrics of requests; scenario: of servers that decode."""
    prefill = _prefill_scenario(scenario)
    transfer = _cache_transfer(scenario, prefill)
    sending_s = transfer.sending
    pools = Pools(
        prefill=prefill.servers,
        decode=scenario.servers._replace(reserves=np.ones(sending_s.size, dtype=np.bool_)),
        prefills=prefill.layouts.replicas,
        decodes=scenario.layouts.replicas,
        transfer_latency_s=transfer.latency,
        transfer_token_s=sending_s / scenario.isl,
        transfer_layers=transfer.layers,
        streams=_streams(scenario.inputs),
    )
    at_once = scenario.inputs["serve.concurrency"]
    loads = scenario.loads._replace(
        concurrency=at_once, rate=scenario.inputs["serve.request_rate"], requests=scenario.requests
    )
    reason = first_reasons(
        _with_prefill_limit(take(prefill.passes.reason, prefill.server), scenario.inputs),
        _invalid_transfer_times(scenario.inputs, sending_s),
        unconnected(scenario.inputs, prefill.servers.intake.send_s),
    )
    pass_times = prefill.passes.times, scenario.passes.times
    if TRACE in scenario.inputs:
        handover = _handover(scenario, transfer)
        columns = simulate_split_fleets(prefill, scenario, handover, pools.streams)
    else:
        columns = predict_requests(
            scenario.inputs, loads, np.ones(sending_s.size, dtype=np.int64),
            ~reason.exists,
            lambda rows: steady_disaggregated(*pass_times, take(pools, rows), take(loads, rows)),
            lambda rows, loads: columns_of(simulate_disaggregated(*pass_times, take(pools, rows), loads)),
        )  # fmt: skip
    refused = columns.pop("refused", np.full(sending_s.size, np.nan))
    refusals = Reasons(sending_s.size)
    for i in np.flatnonzero(refused == TOO_MANY).tolist():
        refusals.add(i, overload(float(columns["requests_per_s"][i]), float(loads.rate[i])))
    for i in np.flatnonzero(refused == TOO_LARGE).tolist():
        refusals.add(i, too_large(scenario, i))
    for i in np.flatnonzero(refused == STOPPED).tolist():
        refusals.add(i, stopped_early(scenario, i, columns))
    for i in np.flatnonzero(refused == TOO_LONG).tolist():
        refusals.add(i, _refusal(scenario, prefill, i))
    reason = first_reasons(refusals.column(), reason)
    return DisaggregatedResults(prefill, without_refused(columns, refused), reason)


def run_split(scenario: ServingScenario) -> FleetRun:
    """Simulate the fleet of the first point; raises InputError. scenario: of servers that decode."""
    prefill = _prefill_scenario(scenario)
    handover = _handover(scenario, _cache_transfer(scenario, prefill))
    return run_split_fleet(prefill, scenario, handover, bool(_streams(scenario.inputs)[0]), 0)


def _prefill_scenario(scenario: ServingScenario) -> ServingScenario:
    """Return the scenario of servers that prefill, all of which share the encoders; scenario: of decode."""
    prefill = build_scenario(prefill_inputs(scenario.inputs), scenario.prefill_layouts, prefills=True)
    links, encoders = prefill.links_of_device, scenario.encoders
    servers = with_encoders(prefill.servers, encoders, encoders.devices, scenario.inputs, links)
    return prefill._replace(servers=servers)


def _streams(inputs: Inputs) -> Bools:
    """Say where the first token comes from the server that decodes, (points,)."""
    return np.asarray(inputs[FIRST_TOKEN] == OF_DECODE, dtype=np.bool_)


def _handover(scenario: ServingScenario, transfer: _CacheTransfer) -> Handover:
    """Return the times of transfers, by their tokens."""
    return Handover(transfer.latency, transfer.sending / scenario.isl, transfer.layers)


def _with_prefill_limit(reason: ReasonColumn, inputs: Inputs) -> ReasonColumn:
    """Return reasons of prefill chips, (points,), in which a power limit has the key that sets it."""
    rows = np.flatnonzero((reason.code == Code.POWER_LIMIT) & (PREFILL_LIMIT in inputs))
    return reason.replaced(
        rows, column_of(said and said.with_fields(key=PREFILL_LIMIT) for said in map(reason.at, rows))
    )


def _cache_transfer(scenario: ServingScenario, prefill: ServingScenario) -> _CacheTransfer:
    """Return the time of a transfer of a prompt's cache.

    Every device sends or receives its shard; the larger shard counts.
    """
    inputs = scenario.inputs
    links = np.minimum(scenario.links_of_device, prefill.links_of_device)
    bandwidth = np.where(inputs[BANDWIDTH] > 0.0, inputs[BANDWIDTH], links)
    cache_bytes = np.maximum(scenario.cache.of(scenario.isl), prefill.cache.of(scenario.isl))
    with np.errstate(over="ignore", divide="ignore"):  # `_invalid_transfer_times` names it
        sending_s = cache_bytes / bandwidth
    layers = np.where(inputs[LAYERWISE], inputs["model.layers"], 1)
    return _CacheTransfer(inputs["net.inter.latency"], sending_s, layers)


def _invalid_transfer_times(inputs: Inputs, sending_s: Floats) -> ReasonColumn:
    """Say for every point why its caches do not reach the devices that decode; sending_s: [s]."""
    reason = Reasons(sending_s.size)
    for i in reason.without(~(sending_s <= MAX_VALUE)):
        value = float(inputs[BANDWIDTH][i])
        allowed = f"a bandwidth with which a cache comes to a device that decodes in at most {MAX_VALUE:g} s"
        if value == 0.0:
            allowed = "a bandwidth, since these devices have no links between packages"
        reason.add(i, rejected(Code.NETWORK, BANDWIDTH, value, allowed))
    return reason.column()


def _refusal(scenario: ServingScenario, prefill: ServingScenario, i: int) -> Reason:
    """Say which servers have too little memory for the longest request."""
    longest = scenario.longest_lengths
    for name, phase, tokens in (("prefill", prefill, longest.isl), ("decode", scenario, longest.both)):
        adapter, room = float(phase.adapter_bytes[i]), max(float(phase.room.caches[i]), 0.0)
        cache_bytes = float(phase.cache.of(tokens)[i]) + adapter
        slots, budget = int(phase.servers.slots[i]), int(phase.servers.budget[i])
        if cache_bytes > room / slots or name == "decode":
            return cache_shortage(phase.room, i, cache_bytes, budget, slots, f"device of {name}", adapter)
    raise AssertionError
