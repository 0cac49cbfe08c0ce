"""Result columns of servers in each mode: latencies, rates, limiters, memory, energy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons, no_reasons
from fastflow.core.reasons.forms import out_of_range, stalled
from fastflow.core.tables import Columns, Floats, Ints, Texts, take
from fastflow.performance.serving.analytic.steady_state import steady
from fastflow.performance.serving.attention_columns import attention_columns
from fastflow.performance.serving.disaggregated.predict import predict_disaggregated
from fastflow.performance.serving.encoder_pool.encoders import (
    Encoders,
    encoder_columns,
    encoder_pools,
)
from fastflow.performance.serving.energy import Pool, Work, energy_columns
from fastflow.performance.serving.fleet.metrics import FLEET, GROUPS
from fastflow.performance.serving.fleet.predict import simulate_fleets, stopped_early, too_large
from fastflow.performance.serving.images import has_images, image_tokens
from fastflow.performance.serving.kv_cache import cache_shortage
from fastflow.performance.serving.mean_passes import MeanPass, decode_pass, prompt_passes
from fastflow.performance.serving.memory_columns import memory_columns, read_s, tier_columns
from fastflow.performance.serving.method import predict_requests, without_refused
from fastflow.performance.serving.overload import OVERLOAD, overload
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.policy import simulated_policies
from fastflow.performance.serving.requests.load import STALLED, STOPPED, TAKEN, TOO_LARGE, TOO_LONG
from fastflow.performance.serving.scenario import ServingScenario, select_points
from fastflow.performance.serving.simulator.by_policy import simulate_each
from fastflow.performance.validity import MAX_VALUE
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema.scheduling import KEY as POLICY
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED, ONE_DECODE, ONE_PREFILL

HOST = "host"
STATIONARY = "stationary"
_PERCENTILES = ("p50", "p90", "p95", "p99", "percentile")
_TTFT, _TPOT, _E2E = ([f"{name}_{part}_s" for part in _PERCENTILES] for name in ("ttft", "tpot", "e2e"))
SIMULATED = (*_TTFT, *_TPOT, *_E2E[:-1], "preemptions", *FLEET)  # no limit is of e2e_s
"""Columns of simulated points; the analytic form has some medians."""
TPOT_COLUMNS = ("tpot_s", *_TPOT, "tokens_per_s_per_user")


class PhaseResults(NamedTuple):
    """Result columns of points, and the reasons of points without results; (points,)."""

    columns: Columns
    reason: ReasonColumn


def _decode_host_s(scenario: ServingScenario, requests: Floats) -> Floats:
    """Return the host's time in an iteration that decodes requests, with that of draft tokens [s]."""
    host = scenario.servers.host
    return host.iteration_s + host.row_s * requests + scenario.servers.draft_s


def _work(scenario: ServingScenario, pass_: MeanPass, host: Floats, devices: Floats | Ints) -> Work:
    """Return the work of a pass and of its host; devices: of a stage, as often as it is done."""
    passes = pass_.time - pass_.stall
    times = passes, host, passes - pass_.exchange - read_s(scenario, pass_.by), pass_.throttled
    return Work(pass_.energy * devices, *(time * devices for time in times))


def bound_by(scenario: ServingScenario, pass_: MeanPass, host: Floats) -> Texts:
    """Return the name of the limiter with most of a pass's time, (points,)."""
    names: Texts = np.array([*scenario.passes.limiters, HOST])
    limiters: Texts = names[np.argmax(np.column_stack([pass_.by, host]), axis=1)]
    return limiters


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `_refuse_invalid_results` names the results
def phases_of(scenario: ServingScenario) -> PhaseResults:
    """Return the result columns of all points, of any mode."""
    mode = scenario.inputs["serve.mode"]
    columns: Columns = {}
    reasons = no_reasons(mode.size)
    for modes, predict_mode in (
        ((ONE_PREFILL,), one_prefill),
        ((ONE_DECODE,), one_decode),
        ((CONTINUOUS,), continuous),
        ((DISAGGREGATED,), disaggregated),
    ):
        rows = np.flatnonzero(np.isin(mode, modes))
        if not rows.size:
            continue
        results = _refuse_invalid_results(predict_mode(select_points(scenario, rows)), scenario.osl[rows])
        reasons = reasons.replaced(rows, results.reason)
        for name, column in results.columns.items():
            if name not in columns:
                empty = "" if column.dtype.kind == "U" else np.nan
                columns[name] = np.full(mode.size, empty, dtype=object if empty == "" else np.float64)
            columns[name][rows] = column
    texts = {name: column.astype(np.str_) for name, column in columns.items() if column.dtype == object}
    return PhaseResults(columns | texts, reasons)


def _refuse_invalid_results(results: PhaseResults, osl: Floats) -> PhaseResults:
    """Return results with a reason, and NaN, where a column is not finite or outside its bounds.

    A request with one output token has no time per output token, and the analytic form few percentiles.
    """
    floats = {name: column for name, column in results.columns.items() if column.dtype.kind == "f"}
    if not floats:
        return results
    table = np.array(list(floats.values()))
    may_lack = np.array([(name in (*SIMULATED, STATIONARY), name in TPOT_COLUMNS) for name in floats])
    may_be_nan = np.isnan(table) & (may_lack[:, :1] | (may_lack[:, 1:] & (osl <= 1.0)))
    invalid = ~results.reason.exists & ~((table >= 0.0) & (table <= MAX_VALUE)) & ~may_be_nan
    if not invalid.any():
        return results
    reason = Reasons(results.reason.size)
    for (name, column), rows in zip(floats.items(), invalid, strict=True):
        for i in reason.without(rows):
            reason.add(i, out_of_range(quantity=name, value=float(column[i]), most=MAX_VALUE))
    refused = reason.column()
    columns = {name: np.where(refused.exists, np.nan, column) for name, column in floats.items()}
    return PhaseResults(results.columns | columns, first_reasons(results.reason, refused))


def one_prefill(scenario: ServingScenario) -> PhaseResults:
    """Return the results of a pass over whole prompts, `serve.batch` of them at once."""
    inputs, layouts = scenario.inputs, scenario.layouts
    prompts = -(-inputs["serve.batch"] // (layouts.ranks * layouts.replicas))
    computed = scenario.computed_tokens
    prefill = prompt_passes(scenario, 1.0 * prompts, computed, np.full(prompts.size, np.inf))
    pass_s = prefill.time + inputs["server.step_overhead"]
    ttft = pass_s + scenario.request_s
    columns = {
        "ttft_s": ttft, "time_s": pass_s, "requests_per_s": inputs["serve.batch"] / pass_s,
        "prefill_tokens_per_s": inputs["serve.batch"] * computed / pass_s,
        "prefill_bound_by": bound_by(scenario, prefill, inputs["server.step_overhead"]),
        "exchange_s": prefill.exchange, "pipeline_stall_s": prefill.stall,
        "serve_host_s": inputs["server.step_overhead"],
        "running_requests": 1.0 * inputs["serve.batch"], "kv_B": scenario.cache.of(scenario.isl) * prompts,
    } | tier_columns(scenario, prefill.by, prefill.reads)  # fmt: skip
    columns |= _of_images(scenario, scenario.encoders)
    work = _work(scenario, prefill, inputs["server.step_overhead"], layouts.stage * layouts.replicas)
    pool = Pool(scenario.power, _devices(scenario), work)
    columns |= energy_columns([pool], inputs["serve.batch"], scenario.isl, pass_s)
    overflow = _cache_overflow(scenario, columns["kv_B"])
    return PhaseResults(columns | memory_columns(scenario, columns["kv_B"], scenario.isl), overflow)


def one_decode(scenario: ServingScenario) -> PhaseResults:
    """Return the results of a pass that decodes `serve.batch` requests."""
    inputs, layouts = scenario.inputs, scenario.layouts
    requests = 1.0 * -(-inputs["serve.batch"] // (layouts.ranks * layouts.slots * layouts.replicas))
    context = np.where(inputs["serve.context"] > 0, inputs["serve.context"], scenario.mean_context)
    decode = decode_pass(scenario, requests, context)
    host = _decode_host_s(scenario, requests)
    pass_s = decode.time + host
    tokens = inputs["serve.batch"] * scenario.servers.per_pass
    columns = {
        "tpot_s": pass_s / scenario.servers.per_pass, "time_s": pass_s,
        "decode_bound_by": bound_by(scenario, decode, host), "exchange_s": decode.exchange,
        "serve_host_s": host,
        "pipeline_stall_s": decode.stall, "running_requests": 1.0 * inputs["serve.batch"],
        "kv_B": scenario.cache.of(context) * requests * layouts.slots,
    } | tier_columns(scenario, decode.by, decode.reads)  # fmt: skip
    columns |= attention_columns(scenario, requests, context)
    columns |= _rates(tokens / pass_s, pass_s / scenario.servers.per_pass, _devices(scenario))
    work = _work(scenario, decode, host, layouts.stage * layouts.slots * layouts.replicas)
    pool = Pool(scenario.power, _devices(scenario), work)
    columns |= energy_columns([pool], tokens, np.ones(tokens.size), pass_s)
    overflow = _cache_overflow(scenario, columns["kv_B"])
    return PhaseResults(columns | memory_columns(scenario, columns["kv_B"], context), overflow)


def continuous(scenario: ServingScenario) -> PhaseResults:
    """Return the results of servers with continuous batching."""
    times, policies = scenario.passes.times, simulated_policies(scenario.inputs)
    if TRACE in scenario.inputs:
        columns = simulate_fleets(scenario)
        scenario = scenario._replace(loads=scenario.loads._replace(prefix=columns["prefix_hit_rate"]))
    else:
        columns = predict_requests(
            scenario.inputs, scenario.loads, scenario.active, np.ones(scenario.server.size, dtype=np.bool_),
            lambda rows: steady(times, take(scenario.servers, rows), take(scenario.loads, rows)),
            lambda rows, loads: simulate_each(times, take(scenario.servers, rows), loads, policies[rows]),
        )  # fmt: skip
    refused = columns.pop("refused").astype(np.int64)
    reason = _refusals(scenario, refused, columns)
    return PhaseResults(_continuous_columns(scenario, without_refused(columns, refused)), reason)


def disaggregated(scenario: ServingScenario) -> PhaseResults:
    """Return the results of disaggregated servers; scenario: of those that decode."""
    result = predict_disaggregated(scenario)
    inputs, prefill, metrics = scenario.inputs, result.prefill, result.metrics
    if not metrics:
        return PhaseResults({}, result.reason)
    if TRACE in inputs:
        scenario = scenario._replace(loads=scenario.loads._replace(prefix=metrics["prefix_hit_rate"]))
    layouts, servers, request = scenario.layouts, scenario.servers, scenario.request_s
    batch = np.maximum(metrics["decoding"] / (layouts.ranks * layouts.slots * layouts.replicas), 1.0)
    decode = decode_pass(scenario, batch, scenario.mean_context)
    host = _decode_host_s(scenario, batch)
    computed = scenario.computed_tokens
    prompt = prompt_passes(prefill, np.ones(batch.size), computed, prefill.servers.budget.astype(np.float64))
    passes = (scenario.osl - 1.0) / servers.per_pass
    rate, tpot = metrics["requests_per_s"], np.where(scenario.osl > 1.0, metrics["tpot_s"], np.nan)
    pools = [
        Pool(
            scenario.power,
            _devices(scenario),
            _work(scenario, decode, host, passes / batch * layouts.rank_devices),
        ),
        Pool(
            prefill.power,
            inputs["serve.prefill.devices"],
            _work(prefill, prompt, prefill.servers.host.iteration_s, prefill.layouts.rank_devices),
        ),
        *encoder_pools(scenario.encoders),
    ]
    devices = _devices(scenario) + inputs["serve.prefill.devices"] + scenario.encoders.devices
    iterations = metrics["prefill_iterations"] + metrics["decode_iterations"]
    columns: Columns = {
        "ttft_s": metrics["ttft_s"] + request, "tpot_s": tpot, "e2e_s": metrics["e2e_s"] + request,
        "requests_per_s": rate,
        "time_s": decode.time + host,
        "running_requests": metrics["decoding"], "waiting_requests": metrics["queue"],
        "transfer_s": metrics["transfer_s"],
        "prefill_share": metrics["prefill_iterations"] / iterations, "serve_host_s": host,
        "exchange_s": decode.exchange, "pipeline_stall_s": decode.stall,
        "prefill_tokens_per_s": rate * computed,
        "kv_B": metrics["cache"] * scenario.room.caches, "decode_bound_by": bound_by(scenario, decode, host),
        "prefill_bound_by": bound_by(prefill, prompt, prefill.servers.host.iteration_s),
        "simulated": metrics["simulated"], STATIONARY: metrics[STATIONARY], OVERLOAD: metrics[OVERLOAD],
    } | _of_images(prefill, scenario.encoders) | tier_columns(scenario, decode.by, decode.reads)  # fmt: skip
    columns |= _simulated_columns(scenario, metrics)
    columns |= attention_columns(scenario, batch, scenario.mean_context)
    columns |= _of_encoders(scenario, prefill.servers, metrics, rate)
    columns |= _rates(rate * scenario.osl, tpot, devices)
    columns |= energy_columns(pools, np.ones(batch.size), scenario.osl, 1.0 / rate)
    memory = memory_columns(scenario, columns["kv_B"], scenario.mean_context)
    return PhaseResults(columns | memory, result.reason)


def _refusals(scenario: ServingScenario, refused: Ints, columns: Columns) -> ReasonColumn:
    """Say why servers refuse a load; columns: with the rate that they serve, where it is too high [1/s]."""
    reason, carried = Reasons(refused.size), columns["requests_per_s"] * scenario.active
    for i in np.flatnonzero(refused != TAKEN).tolist():
        if refused[i] == TOO_LONG:
            request, adapter = scenario.longest_request_cache[i], scenario.adapter_bytes[i]
            reason.add(i, _cache_shortage(scenario, i, float(request), float(adapter)))
        elif refused[i] == TOO_LARGE:
            reason.add(i, too_large(scenario, i))
        elif refused[i] == STOPPED:
            reason.add(i, stopped_early(scenario, i, columns))
        elif refused[i] == STALLED:
            reason.add(i, stalled(policy=str(scenario.inputs[POLICY][i])))
        else:
            reason.add(i, overload(float(carried[i]), float(scenario.inputs["serve.request_rate"][i])))
    return reason.column()


def _cache_overflow(scenario: ServingScenario, cache_bytes: Floats) -> ReasonColumn:
    """Say where the cache of a pass exceeds the memory."""
    reason = Reasons(cache_bytes.size)
    for i in np.flatnonzero(cache_bytes > scenario.room.caches).tolist():
        reason.add(i, _cache_shortage(scenario, i, float(cache_bytes[i])))
    return reason.column()


def _cache_shortage(scenario: ServingScenario, i: int, cache_bytes: float, adapter: float = 0.0) -> Reason:
    budget, slots = int(scenario.servers.budget[i]), int(scenario.layouts.slots[i])
    return cache_shortage(scenario.room, i, cache_bytes + adapter, budget, slots, adapter=adapter)


def _continuous_columns(scenario: ServingScenario, metrics: Columns) -> Columns:
    """Return the result columns; metrics: of the requests of one server."""
    inputs, layouts, servers = scenario.inputs, scenario.layouts, scenario.servers
    active = 1.0 * scenario.active
    # a server's share of a closed loop is rounded up
    share = np.where(
        inputs["serve.concurrency"] > 0,
        inputs["serve.concurrency"] / np.maximum(active * scenario.loads.concurrency, 1.0),
        1.0,
    )
    requests_per_s = metrics["requests_per_s"] * active * share
    tpot = np.where(scenario.osl > 1.0, metrics["tpot_s"], np.nan)
    batch = np.maximum(metrics["decoding"] / (layouts.ranks * layouts.slots), 1e-9)
    decode = decode_pass(scenario, np.maximum(batch, 1.0), scenario.mean_context)
    host = _decode_host_s(scenario, batch)
    computed = scenario.computed_tokens
    prompt = prompt_passes(scenario, np.ones(batch.size), computed, servers.budget.astype(np.float64))
    often = scenario.osl / servers.per_pass / np.maximum(batch, 1.0) * layouts.rank_devices
    decoded = _work(scenario, decode, host, often)
    read = _work(scenario, prompt, np.zeros(batch.size), layouts.rank_devices)
    work = Work(*(both[0] + both[1] for both in zip(decoded, read, strict=True)))
    columns: Columns = {
        "ttft_s": metrics["ttft_s"] + scenario.request_s, "tpot_s": tpot,
        "e2e_s": metrics["e2e_s"] + scenario.request_s,
        "requests_per_s": requests_per_s, "time_s": decode.time + host,
        "running_requests": metrics["decoding"] * active * share,
        "waiting_requests": metrics["queue"] * active,
        "prefill_share": metrics["prefill_share"], "serve_host_s": host, "exchange_s": decode.exchange,
        "pipeline_stall_s": decode.stall, "prefill_tokens_per_s": requests_per_s * computed,
        "kv_B": metrics["cache"] * scenario.room.caches,
        "decode_bound_by": bound_by(scenario, decode, host),
        "prefill_bound_by": bound_by(scenario, prompt, servers.host.iteration_s),
        "simulated": metrics["simulated"],
        STATIONARY: metrics[STATIONARY], OVERLOAD: metrics[OVERLOAD] * active,
    } | _of_images(scenario, scenario.encoders) | tier_columns(scenario, decode.by, decode.reads)  # fmt: skip
    columns |= _simulated_columns(scenario, metrics)
    columns |= attention_columns(scenario, np.maximum(batch, 1.0), scenario.mean_context)
    columns |= _of_encoders(scenario, servers, metrics, requests_per_s)
    encoders, devices = scenario.encoders, _devices(scenario)
    columns |= _rates(requests_per_s * scenario.osl, tpot, devices + encoders.devices)
    pools = [Pool(scenario.power, devices, work), *encoder_pools(encoders)]
    columns |= energy_columns(pools, np.ones(batch.size), scenario.osl, 1.0 / requests_per_s)
    return columns | memory_columns(scenario, columns["kv_B"], scenario.mean_context)


def _simulated_columns(scenario: ServingScenario, metrics: Columns) -> Columns:
    """Return the columns of `SIMULATED`; times from sending on with the host's time, as in their means."""
    columns = {name: metrics[name] for name in (*SIMULATED, *GROUPS) if name in metrics}
    for name in columns.keys() & {*_TTFT, *_E2E}:
        columns[name] = columns[name] + scenario.request_s
    for name in columns.keys() & {*_TPOT}:
        columns[name] = np.where(scenario.osl > 1.0, columns[name], np.nan)
    return columns


def _of_encoders(scenario: ServingScenario, servers: Servers, metrics: Columns, rate: Floats) -> Columns:
    """Return the columns of encoders on devices of their own; servers: those that compute prompts."""
    if not scenario.encoders.devices.any():
        return {}
    encoders, send_s = scenario.encoders, servers.intake.send_s
    wait_s = metrics.get("encode_wait_s", metrics["arrival_s"] - encoders.encode_s - send_s)
    return encoder_columns(encoders, send_s, np.maximum(wait_s, 0.0), rate)


def _devices(scenario: ServingScenario) -> Ints:
    return scenario.layouts.devices * scenario.layouts.replicas


def _rates(tokens_per_s: Floats, tpot: Floats, devices: Ints) -> Columns:
    return {
        "tokens_per_s": tokens_per_s, "tokens_per_s_per_device": tokens_per_s / devices,
        "tokens_per_s_per_user": 1.0 / tpot,
    }  # fmt: skip


def _of_images(scenario: ServingScenario, encoders: Encoders) -> Columns:
    """Return the columns of requests' images; none where no request has any.

    scenario: of servers that compute prompts; encoders: on devices of their own.
    """
    if not has_images(scenario.inputs):
        return {}
    encode_s = np.where(encoders.devices > 0, encoders.encode_s, scenario.encoder.seconds)
    return {"image_tokens": 1.0 * image_tokens(scenario.inputs), "encode_s": encode_s}
