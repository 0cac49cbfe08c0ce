"""What servers do in each phase, as result columns: latencies, rates, what limits them, memory, energy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Ints, Reasons, Texts, first_of, take
from fastflow.performance.serving.analytic.steady_state import steady
from fastflow.performance.serving.disaggregated.predict import run_apart
from fastflow.performance.serving.kv_cache import lacking
from fastflow.performance.serving.method import predict_requests
from fastflow.performance.serving.overload import OVERLOAD, overload_text
from fastflow.performance.serving.passes.interpolate import between
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG
from fastflow.performance.serving.scenario import (
    CONTINUOUS,
    DISAGGREGATED,
    ONE_DECODE,
    ONE_PREFILL,
    ServingScenario,
    some_of,
)
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from fastflow.performance.validity import MAX_VALUE
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, PREFILL, TOKENS_PART

HOST = "host"
STATIONARY = "stationary"
_TTFT = ("ttft_median_s", "ttft_p99_s", "ttft_percentile_s")
_TPOT = ("tpot_median_s", "tpot_p99_s", "tpot_percentile_s")
SIMULATED = (*_TTFT, *_TPOT, "preemptions")
"""Columns of simulated points alone."""
OF_FURTHER_TOKENS = ("tpot_s", *_TPOT, "tokens_per_s_per_user")


class PhaseResults(NamedTuple):
    """Result columns of points, and why one has none; (points,)."""

    columns: Columns
    reason: Texts


class _Pass(NamedTuple):
    """One pass of one kind on every point's server; (points,)."""

    time: Floats  # on the device [s]
    exchange: Floats  # [s]
    energy: Floats  # of a device of one stage [J]
    by: Floats  # time by limiter, (points, limiters) [s]
    stall: Floats  # of the time, what a batch waits for the slowest pipeline stage [s]


def read(asked: ServingScenario, part: str, *sizes: Floats) -> _Pass:
    """Read a part of passes at sizes of each point."""
    own, along = asked.passes.parts[part], asked.passes.axes.of(part)
    floats = [np.asarray(size, dtype=np.float64) for size in sizes]
    tables = (own.time, own.exchange, own.energy, own.by)
    time, exchange, energy, by = (between(table, along, asked.server, floats) for table in tables)
    return _Pass(time, exchange, energy, by, stall=np.zeros(asked.server.size))


def _sum(*parts: _Pass) -> _Pass:
    return _Pass(*(sum(columns[1:], columns[0]) for columns in zip(*parts, strict=True)))


def _times(one: _Pass, factor: Floats) -> _Pass:
    return _Pass(*(column * factor.reshape(-1, *(1,) * (column.ndim - 1)) for column in one))


def decode_pass(asked: ServingScenario, requests: Floats, context: Floats) -> _Pass:
    """Return a pass of so many decoding requests of a rank, at the pace of the slowest stage; (points,)."""
    rows, pipeline = requests * asked.servers.queries, asked.servers.pipeline
    tokens, head = read(asked, TOKENS_PART, rows), read(asked, HEAD_PART, rows)
    core = read(asked, DECODE, requests, context)
    layers = tokens.time + core.time
    slowest = np.maximum(pipeline.widest * layers, pipeline.last * layers + head.time)
    whole = _sum(tokens, head, core)
    waits = (pipeline.in_flight > 1.0) & (pipeline.in_flight * slowest > whole.time)
    time = np.where(waits, pipeline.in_flight * slowest, whole.time)
    return whole._replace(time=time, stall=time - whole.time)


def prompt_passes(asked: ServingScenario, prompts: Floats, tokens: Floats, budget: Floats) -> _Pass:
    """Return all passes over so many prompts of a rank, side by side, in chunks.

    tokens: to compute of each; budget: most of a pass.
    """
    whole = prompts * tokens
    together = np.minimum(whole, budget)
    often = whole / together
    chunk = np.minimum(tokens, budget)
    chunks = tokens / chunk
    before = asked.isl - tokens + (tokens - chunk) / 2.0
    return _sum(
        _times(read(asked, TOKENS_PART, together), often),
        read(asked, HEAD_PART, prompts),
        _times(read(asked, PREFILL, chunk, before), chunks * prompts),
    )


def bound_by(asked: ServingScenario, one: _Pass, host: Floats) -> Texts:
    """Name what limits most of a pass's time, (points,)."""
    names: Texts = np.array([*asked.passes.limiters, HOST])
    found: Texts = names[np.argmax(np.column_stack([one.by, host]), axis=1)]
    return found


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `_numbered` names what comes of it
def phases_of(asked: ServingScenario) -> PhaseResults:
    """Return the result columns of all points, of whatever mode."""
    mode = asked.inputs["serve.mode"]
    columns: Columns = {}
    reasons = np.full(mode.size, "", dtype=object)
    for names, answer in (
        ((ONE_PREFILL,), one_prefill),
        ((ONE_DECODE,), one_decode),
        ((CONTINUOUS,), continuous),
        ((DISAGGREGATED,), disaggregated),
    ):
        rows = np.flatnonzero(np.isin(mode, names))
        if not rows.size:
            continue
        found = _numbered(answer(some_of(asked, rows)), asked.osl[rows])
        reasons[rows] = found.reason
        for name, column in found.columns.items():
            if name not in columns:
                empty = "" if column.dtype.kind == "U" else np.nan
                columns[name] = np.full(mode.size, empty, dtype=object if empty == "" else np.float64)
            columns[name][rows] = column
    texts = {name: column.astype(np.str_) for name, column in columns.items() if column.dtype == object}
    return PhaseResults(columns | texts, reasons.astype(np.str_))


def _numbered(answer: PhaseResults, osl: Floats) -> PhaseResults:
    """Return an answer whose results are numbers that mean something, or say which one is none.

    An answer of one token has no time per further token, and the fast form no percentiles.
    """
    floats = {name: column for name, column in answer.columns.items() if column.dtype.kind == "f"}
    if not floats:
        return answer
    table = np.array(list(floats.values()))
    may_lack = np.array([(name in (*SIMULATED, STATIONARY), name in OF_FURTHER_TOKENS) for name in floats])
    has_none = np.isnan(table) & (may_lack[:, :1] | (may_lack[:, 1:] & (osl <= 1.0)))
    unsound = (answer.reason == "") & ~((table >= 0.0) & (table <= MAX_VALUE)) & ~has_none
    if not unsound.any():
        return answer
    reason = Reasons(answer.reason.size)
    for (name, column), rows in zip(floats.items(), unsound, strict=True):
        for i in reason.without(rows):
            reason.add(i, f"{name} would be {column[i]:.3g}, outside 0 to {MAX_VALUE:g}")
    wrong = reason.texts()
    columns = {name: np.where(wrong == "", column, np.nan) for name, column in floats.items()}
    return PhaseResults(answer.columns | columns, first_of(answer.reason, wrong))


def one_prefill(asked: ServingScenario) -> PhaseResults:
    """Return a pass over whole prompts, `serve.batch` of them at once."""
    own, layouts = asked.inputs, asked.layouts
    prompts = -(-own["serve.batch"] // (layouts.ranks * layouts.replicas))
    computed = np.maximum(asked.isl * (1.0 - asked.loads.prefix), 1.0)
    one = prompt_passes(asked, 1.0 * prompts, computed, np.full(prompts.size, np.inf))
    took = one.time + own["server.iteration"]
    seen = took + own["server.request"]
    columns = {
        "ttft_s": seen, "time_s": took, "requests_per_s": own["serve.batch"] / took,
        "prefill_tokens_per_s": own["serve.batch"] * computed / took,
        "prefill_bound_by": bound_by(asked, one, own["server.iteration"]), "exchange_s": one.exchange,
        "pipeline_stall_s": one.stall, "serve_host_s": own["server.iteration"],
        "batch_in_flight": 1.0 * own["serve.batch"], "kv_B": asked.cache.of(asked.isl) * prompts,
    }  # fmt: skip
    columns |= _energy(
        one.energy * layouts.stage * layouts.replicas, own["serve.batch"], asked.isl, took, _devices(asked)
    )
    return PhaseResults(_whole(columns | _memory(asked)), _overfull(asked, columns["kv_B"]))


def one_decode(asked: ServingScenario) -> PhaseResults:
    """Return a pass that decodes `serve.batch` requests."""
    own, layouts = asked.inputs, asked.layouts
    requests = 1.0 * -(-own["serve.batch"] // (layouts.ranks * layouts.slots * layouts.replicas))
    context = np.where(own["serve.context"] > 0, own["serve.context"], asked.isl + asked.osl / 2.0)
    one, host = decode_pass(asked, requests, context), own["server.iteration"] + own["server.row"] * requests
    host = host + asked.servers.draft_s
    took = one.time + host
    tokens = own["serve.batch"] * asked.servers.per_pass
    columns = {
        "tpot_s": took / asked.servers.per_pass, "time_s": took,
        "decode_bound_by": bound_by(asked, one, host), "exchange_s": one.exchange, "serve_host_s": host,
        "pipeline_stall_s": one.stall, "batch_in_flight": 1.0 * own["serve.batch"],
        "kv_B": asked.cache.of(context) * requests * layouts.slots,
    } | _rates(tokens / took, took / asked.servers.per_pass, _devices(asked))  # fmt: skip
    columns |= _energy(
        one.energy * layouts.stage * layouts.slots * layouts.replicas,
        tokens,
        np.ones(tokens.size),
        took,
        _devices(asked),
    )
    return PhaseResults(_whole(columns | _memory(asked)), _overfull(asked, columns["kv_B"]))


def continuous(asked: ServingScenario) -> PhaseResults:
    """Return what requests of servers see that batch them in flight."""
    times = asked.passes.times
    columns = predict_requests(
        asked.inputs, asked.loads, asked.active, np.ones(asked.server.size, dtype=np.bool_),
        lambda rows: steady(times, take(asked.servers, rows), take(asked.loads, rows)),
        lambda rows, loads: columns_of(simulate(times, take(asked.servers, rows), loads)),
    )  # fmt: skip
    refused = columns.pop("refused").astype(np.int64)
    reason = _refused(asked, refused, columns["requests_per_s"] * asked.active)
    columns = {name: np.where(refused == TAKEN, column, np.nan) for name, column in columns.items()}
    return PhaseResults(_served(asked, columns), reason)


def disaggregated(asked: ServingScenario) -> PhaseResults:
    """Return what requests see whose prompts have servers of their own; asked: of those that decode."""
    found = run_apart(asked)
    own, prefill, seen = asked.inputs, found.prefill, found.seen
    if not seen:
        return PhaseResults({}, found.reason)
    layouts, servers, request = asked.layouts, asked.servers, own["server.request"]
    batch = np.maximum(seen["decoding"] / (layouts.ranks * layouts.slots * layouts.replicas), 1.0)
    one = decode_pass(asked, batch, asked.isl + asked.osl / 2.0)
    host = servers.host.iteration_s + servers.host.row_s * batch + servers.draft_s
    computed = np.maximum(asked.isl * (1.0 - asked.loads.prefix), 1.0)
    prompt = prompt_passes(prefill, np.ones(batch.size), computed, prefill.servers.budget.astype(np.float64))
    passes = (asked.osl - 1.0) / servers.per_pass
    spent = one.energy * passes / (batch * layouts.ranks) * layouts.stage
    spent += prompt.energy / prefill.layouts.ranks * prefill.layouts.stage
    rate, tpot = seen["requests_per_s"], np.where(asked.osl > 1.0, seen["tpot_s"], np.nan)
    devices = layouts.each * layouts.replicas + own["serve.prefill.devices"]
    iterations = seen["prefill_iterations"] + seen["decode_iterations"]
    columns: Columns = {
        "ttft_s": seen["ttft_s"] + request, "tpot_s": tpot, "requests_per_s": rate, "time_s": one.time + host,
        "batch_in_flight": seen["decoding"], "queue": seen["queue"], "transfer_s": seen["transfer_s"],
        "prefill_share": seen["prefill_iterations"] / iterations, "serve_host_s": host,
        "exchange_s": one.exchange, "pipeline_stall_s": one.stall, "prefill_tokens_per_s": rate * computed,
        "kv_B": seen["cache"] * asked.room.caches, "decode_bound_by": bound_by(asked, one, host),
        "prefill_bound_by": bound_by(prefill, prompt, prefill.servers.host.iteration_s),
        "simulated": seen["simulated"], STATIONARY: seen[STATIONARY], OVERLOAD: seen[OVERLOAD],
    }  # fmt: skip
    columns |= _of_simulated(asked, seen)
    columns |= _rates(rate * asked.osl, tpot, devices)
    columns |= _energy(spent, np.ones(batch.size), asked.osl, 1.0 / rate, devices)
    return PhaseResults(_whole(columns | _memory(asked)), found.reason)


def _refused(asked: ServingScenario, refused: Ints, carried: Floats) -> Texts:
    """Say why servers do not take a load; or ""; carried: requests a second, where they are too many."""
    reason = np.full(refused.size, "", dtype=object)
    for i in np.flatnonzero(refused != TAKEN).tolist():
        if refused[i] == TOO_LONG:
            reason[i] = _lacks(asked, i, float(asked.held_by_longest[i]))
        else:
            reason[i] = overload_text(float(carried[i]), float(asked.inputs["serve.rate"][i]))
    return reason.astype(np.str_)


def _overfull(asked: ServingScenario, held: Floats) -> Texts:
    """Say where the cache of a pass has no room; or ""."""
    reason = np.full(held.size, "", dtype=object)
    for i in np.flatnonzero(held > asked.room.caches).tolist():
        reason[i] = _lacks(asked, i, float(held[i]))
    return reason.astype(np.str_)


def _lacks(asked: ServingScenario, i: int, held: float) -> str:
    return lacking(asked.room, i, held, int(asked.servers.budget[i]), int(asked.layouts.slots[i]))


def _served(asked: ServingScenario, seen: Columns) -> Columns:
    """Return the result columns of what requests of one server see."""
    own, layouts, servers = asked.inputs, asked.layouts, asked.servers
    active = 1.0 * asked.active
    # a server's share of a closed loop is rounded up
    there = np.where(
        own["serve.concurrency"] > 0,
        own["serve.concurrency"] / np.maximum(active * asked.loads.concurrency, 1.0),
        1.0,
    )
    requests_per_s, decoding = seen["requests_per_s"] * active * there, seen["decoding"] * active * there
    ttft, tpot = seen["ttft_s"] + own["server.request"], np.where(asked.osl > 1.0, seen["tpot_s"], np.nan)
    batch = np.maximum(seen["decoding"] / (layouts.ranks * layouts.slots), 1e-9)
    context = asked.isl + asked.osl / 2.0
    one = decode_pass(asked, np.maximum(batch, 1.0), context)
    host = servers.host.iteration_s + servers.host.row_s * batch + servers.draft_s
    computed = np.maximum(asked.isl * (1.0 - asked.loads.prefix), 1.0)
    prompt = prompt_passes(asked, np.ones(batch.size), computed, servers.budget.astype(np.float64))
    passes = asked.osl / servers.per_pass
    spent = one.energy * passes / (np.maximum(batch, 1.0) * layouts.ranks) + prompt.energy / layouts.ranks
    columns: Columns = {
        "ttft_s": ttft, "tpot_s": tpot, "requests_per_s": requests_per_s, "time_s": one.time + host,
        "batch_in_flight": decoding, "queue": seen["queue"] * active,
        "prefill_share": seen["prefill_share"], "serve_host_s": host, "exchange_s": one.exchange,
        "pipeline_stall_s": one.stall, "prefill_tokens_per_s": requests_per_s * computed,
        "kv_B": seen["cache"] * asked.room.caches,
        "decode_bound_by": bound_by(asked, one, host),
        "prefill_bound_by": bound_by(asked, prompt, servers.host.iteration_s), "simulated": seen["simulated"],
        STATIONARY: seen[STATIONARY], OVERLOAD: seen[OVERLOAD] * active,
    }  # fmt: skip
    columns |= _of_simulated(asked, seen)
    columns |= _rates(requests_per_s * asked.osl, tpot, _devices(asked))
    columns |= _energy(
        spent * layouts.stage, np.ones(batch.size), asked.osl, 1.0 / requests_per_s, _devices(asked)
    )
    return _whole(columns | _memory(asked))


def _of_simulated(asked: ServingScenario, seen: Columns) -> Columns:
    """Return what simulated points alone have; with what the host adds to a first token, as in the mean."""
    found = {name: seen[name] for name in SIMULATED if name in seen}
    for name in found.keys() & {*_TTFT}:
        found[name] = found[name] + asked.inputs["server.request"]
    for name in found.keys() & {*_TPOT}:
        found[name] = np.where(asked.osl > 1.0, found[name], np.nan)
    return found


def _devices(asked: ServingScenario) -> Ints:
    return asked.layouts.each * asked.layouts.replicas


def _rates(tokens_per_s: Floats, tpot: Floats, devices: Ints) -> Columns:
    return {
        "tokens_per_s": tokens_per_s, "tokens_per_s_per_device": tokens_per_s / devices,
        "tokens_per_s_per_user": 1.0 / tpot,
    }  # fmt: skip


def _energy(joules: Floats, requests: Floats, tokens: Floats, seconds: Floats, devices: Ints) -> Columns:
    """Return energy and power; joules: of all devices for so many requests of so many tokens in a time."""
    return {
        "energy_J": joules / requests, "joules_per_token": joules / (requests * tokens),
        "power_W": joules / seconds / devices,
    }  # fmt: skip


def _memory(asked: ServingScenario) -> Columns:
    """Return what a device's memory holds."""
    room, layouts = asked.room, asked.layouts
    most = np.floor(np.maximum(room.caches, 0.0) / asked.held) * layouts.ranks * layouts.replicas
    return {
        "footprint_B": room.weights + room.work, "weight_B": room.weights,
        "kv_token_B": asked.cache.token + asked.cache.windowed, "kv_room_B": np.maximum(room.caches, 0.0),
        "most_requests": most, "compute_flops": asked.passes.peak[asked.server],
    }  # fmt: skip


def _whole(columns: Columns) -> Columns:
    """Count the caches among what a device's memory holds."""
    return columns | {"footprint_B": columns["footprint_B"] + columns["kv_B"]}
