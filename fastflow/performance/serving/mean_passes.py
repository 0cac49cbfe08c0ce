"""Passes of a server at the mean sizes of each point: what it decodes, and what it prefills."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats
from fastflow.performance.serving.overlap.hidden import hidden_of, without_hidden
from fastflow.performance.serving.passes.captured_graphs import captured_sizes
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, PREFILL, TOKENS_PART


class MeanPass(NamedTuple):
    """A pass on every point's server; (points,)."""

    time: Floats  # on the device [s]
    exchange: Floats  # [s]
    energy: Floats  # of a device of one stage [J]
    by: Floats  # time by limiter, (points, limiters) [s]
    throttled: Floats  # of the time, kernels that a power limit slows down [s]
    stall: Floats  # of the time, the wait of a batch for the slowest pipeline stage [s]
    reads: Floats  # of a device from lower tiers of memory [B]


def _read_part(scenario: ServingScenario, part: str, *sizes: Floats) -> MeanPass:
    """Read a part of passes at sizes of each point."""
    tabulated, axes = scenario.passes.parts[part], scenario.passes.axes.of(part)
    floats = [np.asarray(size, dtype=np.float64) for size in sizes]
    tables = (tabulated.time, tabulated.exchange, tabulated.energy, tabulated.by, tabulated.throttled)
    time, exchange, energy, by, throttled = (
        interpolate_at(table, axes, scenario.server, floats) for table in tables
    )
    stall, reads = np.zeros((2, scenario.server.size))
    if part == TOKENS_PART:
        reads = interpolate_at(scenario.passes.reads, axes, scenario.server, floats)
    return MeanPass(time, exchange, energy, by, throttled, stall, reads)


def _sum(*parts: MeanPass) -> MeanPass:
    return MeanPass(*(sum(columns[1:], columns[0]) for columns in zip(*parts, strict=True)))


def _scaled(pass_: MeanPass, factor: Floats) -> MeanPass:
    return MeanPass(*(column * factor.reshape(-1, *(1,) * (column.ndim - 1)) for column in pass_))


def decode_pass(scenario: ServingScenario, requests: Floats, context: Floats) -> MeanPass:
    """Return a pass that decodes some requests of a rank, at the pace of the slowest stage; (points,)."""
    padded, pipeline = captured_sizes(scenario.servers.graph, requests), scenario.servers.pipeline
    rows = 1.0 * np.where(padded > 0.0, padded, requests) * scenario.servers.queries
    tokens, head = _read_part(scenario, TOKENS_PART, rows), _read_part(scenario, HEAD_PART, rows)
    core = _read_part(scenario, DECODE, requests, context)
    hidden_s = hidden_of(scenario.passes.times, scenario.server, rows, core.time, 0.0 * core.time)
    layers = tokens.time + core.time - hidden_s
    slowest = np.maximum(pipeline.widest * layers, pipeline.last * layers + head.time)
    total = _launched(scenario, _overlapped(scenario, _sum(tokens, head, core), hidden_s), padded > 0.0)
    waits = (pipeline.in_flight > 1.0) & (pipeline.in_flight * slowest > total.time)
    time = np.where(waits, pipeline.in_flight * slowest, total.time)
    return total._replace(time=time, stall=time - total.time)


def _overlapped(scenario: ServingScenario, pass_: MeanPass, hidden_s: Floats) -> MeanPass:
    """Return a pass without the time that overlap hides [s], in which devices draw what they do at rest."""
    if not hidden_s.any():
        return pass_
    time, exchange, by, throttled = without_hidden(
        hidden_s, pass_.time, pass_.exchange, pass_.by, pass_.throttled
    )
    energy = pass_.energy - scenario.power.idle * hidden_s
    return pass_._replace(time=time, exchange=exchange, energy=energy, by=by, throttled=throttled)


def _launched(scenario: ServingScenario, decode: MeanPass, is_captured: Bools) -> MeanPass:
    """Return a pass with the time that the host's launches take beyond it, where no captured graph has it."""
    least_s = np.where(is_captured, 0.0, scenario.servers.graph.launch_s)
    late, by = np.maximum(least_s - decode.time, 0.0), decode.by.copy()
    by[:, scenario.passes.limiters.index("launch")] += late
    return decode._replace(time=decode.time + late, by=by)


def prompt_passes(scenario: ServingScenario, prompts: Floats, tokens: Floats, budget: Floats) -> MeanPass:
    """Return the sum of all passes that prefill some prompts of a rank together, in chunks.

    tokens: to compute of each prompt; budget: most tokens of a pass.
    """
    total = prompts * tokens
    pass_tokens = np.minimum(total, budget)
    num_passes = total / pass_tokens
    chunk = np.minimum(tokens, budget)
    chunks = tokens / chunk
    before = scenario.isl - tokens + (tokens - chunk) / 2.0
    core = _scaled(_read_part(scenario, PREFILL, chunk, before), chunks * prompts)
    hidden_s = hidden_of(
        scenario.passes.times, scenario.server, pass_tokens, 0.0 * core.time, core.time / num_passes
    )
    whole = _sum(
        _scaled(_read_part(scenario, TOKENS_PART, pass_tokens), num_passes),
        _read_part(scenario, HEAD_PART, prompts),
        core,
    )
    return _overlapped(scenario, whole, hidden_s * num_passes)
