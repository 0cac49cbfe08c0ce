"""From a prediction to result columns, and to the kernels of one point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel
from fastflow.core.reasons.columns import ReasonColumn, column_of, first_reasons
from fastflow.core.reasons.forms import short_of_memory
from fastflow.core.tables import Columns, Floats, Ints, Texts, broadcast_column, take
from fastflow.performance import sharding_report
from fastflow.performance.chip_results import device_peak, finite, generated_columns, limit_columns
from fastflow.performance.prediction import Prediction
from fastflow.performance.site_power import Site, reasons_of_power, site_of
from fastflow.performance.transformer_results import transformer_columns
from fastflow.physics.carbon.columns import GRAMS, carbon_columns
from fastflow.physics.cost.columns import iteration_columns
from fastflow.physics.cost.system import HOUR
from fastflow.physics.hardware.packages import per_package
from fastflow.physics.network.collectives.algorithms import package_of
from fastflow.physics.network.collectives.custom_all_reduce import NAMES as PEER
from fastflow.physics.network.collectives.nccl import NAMES as NCCL
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.plans import NAMES
from fastflow.physics.parallelism.sharding.layout import LAYERS, SAME, sections
from fastflow.physics.parallelism.strategy import Strategy
from fastflow.physics.site.limits import site_limit_columns
from fastflow.physics.timing.roofline import limiter_names
from fastflow.physics.timing.tiling.traffic import OPERANDS
from fastflow.physics.workload.graph import (
    COLLECTIVES,
    LAYER_KINDS,
    PHASES,
    max_by_point,
    model_flop,
    sum_by_kind,
    sum_by_point,
)
from fastflow.schema import ALGORITHMS, result_order
from fastflow.schema.carbon import CARBON_TOKEN, CARBON_TRAIN
from fastflow.schema.cost import A_MILLION, MILLION, TOKEN, TRAIN
from fastflow.schema.power import A_MEGAWATT, TOKENS_PER_MW

_ROUNDING = 1e-9


def summary(prediction: Prediction) -> Columns:
    """Return the result columns of every point, without its number and the names of the groups' choices.

    A point without a time has NaN, or an empty text, in the columns that follow from a time.
    """
    points = prediction.reason.size
    columns = _chip_columns(prediction)
    for name, column in _timed_columns(prediction).items():
        full: NDArray[Any]
        if column.size == points:
            columns[name] = column
            continue
        if column.dtype.kind == "i":
            full = np.ma.MaskedArray(np.zeros(points, column.dtype), mask=True)
        elif column.dtype.kind != "U":
            full = np.full(points, np.nan)
        else:
            full = np.full(points, "", dtype=column.dtype)
        full[prediction.timed] = column
        columns[name] = full
    site = site_of(prediction)
    columns |= _costs(prediction, site, columns)
    reasons = reasons_of(prediction, site)
    columns["feasible"] = ~reasons.exists
    columns |= reasons.columns()
    columns["no_effect"] = broadcast_column(np.array([""]), points)  # unknown from inputs alone
    names = result_order(len(prediction.chip.levels), prediction.pipeline_blocks is not None)
    order = [name for name in names if name in columns]
    return {name: columns[name] for name in order}


def _costs(prediction: Prediction, site: Site, columns: Columns) -> Columns:
    """Return the power of the site, costs and emissions of every point, from its other result columns."""
    (devices, power, costs), time = site, columns["time_s"]
    costs = costs | site_limit_columns(prediction.inputs)
    costs |= iteration_columns(devices, time, power.site) | carbon_columns([devices], power.site, time)
    if prediction.pipeline_blocks is not None:
        tokens = columns["tokens_per_s"] * time
        costs[TOKENS_PER_MW.name] = A_MEGAWATT * columns["tokens_per_s"] / costs["system_W"]
        costs[TOKEN.name] = costs["iteration_usd"] / tokens
        costs[MILLION.name] = A_MILLION * costs[TOKEN.name]
        costs[TRAIN.name] = costs["usd_per_h"] / HOUR * columns["train_s"]
        costs[CARBON_TOKEN.name] = costs["carbon_g"] / tokens
        costs[CARBON_TRAIN.name] = costs["carbon_g"] / GRAMS / time * columns["train_s"]
    return costs


def reasons_of(prediction: Prediction, site: Site | None = None) -> ReasonColumn:
    """Return why a point is not feasible, (points,): it has no time, lacks memory, or draws too much power.

    site: of the prediction, where it is known.
    """
    return first_reasons(_reasons_of_memory(prediction), reasons_of_power(prediction, site))


def _reasons_of_memory(prediction: Prediction) -> ReasonColumn:
    """Return why a point has no time, or that it lacks memory, (points,)."""
    total, capacity = prediction.footprint.total, prediction.offered[prediction.timed]
    short = np.flatnonzero(~(total <= finite(capacity)))
    if not short.size:
        return prediction.reason
    needed, available = total[short], capacity[short]
    first, inverse = unique_rows([needed, available], short.size)
    distinct = column_of(
        short_of_memory(needed=a, capacity=b)
        for a, b in zip(needed[first].tolist(), available[first].tolist(), strict=True)
    )
    return prediction.reason.replaced(prediction.timed[short], take(distinct, inverse))


def _chip_columns(prediction: Prediction) -> Columns:
    """Return the columns of the generated chip and of the strategy; of every point."""
    columns: Columns = {
        "strategy": prediction.parallelism.printed,
        "layer_strategies": _layer_strategies(prediction),
        "placement_requested": prediction.inputs["placement"],
        "devices": prediction.parallelism.strategies.devices,
        "devices_per_package": per_package(prediction.inputs),
        "compute_flops": finite(device_peak(prediction)),
    }
    return columns | limit_columns(prediction.inputs) | generated_columns(prediction.inputs, prediction.chip)


def _layer_strategies(prediction: Prediction) -> Texts:
    """Return the layers, or kinds of layer, with another strategy than the point's; of every point."""
    inputs = prediction.inputs
    is_set = np.column_stack([inputs[f"parallel.{name}"] != SAME for name in LAYER_KINDS])
    by_layer = inputs[LAYERS] != SAME if LAYERS in inputs else np.zeros(len(is_set), dtype=np.bool_)
    if not is_set.any() and not by_layer.any():
        return np.zeros(len(is_set), dtype=np.str_)
    strategies, layouts, _ = prediction.parallelism
    names, kinds, section = sections(inputs)
    is_set = np.take_along_axis(is_set, kinds[section], axis=1) | by_layer[:, None]
    differs = (layouts.degrees != strategies.degrees[:, None]).any(axis=2)
    differs |= layouts.assignment != strategies.assignment[:, None]
    has_name = layouts.assignment < len(NAMES)  # not those of a file
    assignment = np.where(is_set & differs & has_name, layouts.assignment, -1)
    degrees = layouts.degrees.reshape(len(assignment), -1)
    first, inverse = unique_rows((assignment, degrees, section, by_layer), len(assignment))
    texts = []
    for i in first.tolist():
        fields = np.column_stack([assignment[i], layouts.degrees[i]]).tolist()
        chosen = [Strategy(*values)._replace(pp=1) for values in fields]
        layer_kinds = kinds[section[i]]
        labels = names[section[i]] if by_layer[i] else np.array(LAYER_KINDS)[layer_kinds]
        order = range(len(chosen)) if by_layer[i] else layer_kinds.argsort(kind="stable")
        parts = dict.fromkeys(f"{labels[c]} {chosen[c]}" for c in order if assignment[i, c] >= 0)
        texts.append(", ".join(parts))
    return np.array(texts, dtype=np.str_)[inverse]


def _quotient(part: Floats, whole: Floats) -> Floats:
    """Return a quotient, NaN where the divisor is 0."""
    quotient = np.full(part.size, np.nan)
    np.divide(part, whole, out=quotient, where=whole > 0.0)
    return quotient


def _share(part: Floats, whole: Floats) -> Floats:
    """Return the share of the whole that a part is, 1 where rounding makes it more."""
    share = _quotient(part, whole)
    share[(share > 1.0) & (share < 1.0 + _ROUNDING)] = 1.0
    return share


def _timed_columns(prediction: Prediction) -> Columns:
    """Return the columns that follow from a time; of the timed points."""
    graph, timing, timeline = prediction.graph, prediction.timing, prediction.timeline
    levels = len(prediction.chip.levels)
    stage, launches = prediction.bottleneck.stage, prediction.bottleneck.launches
    stages = prediction.pipeline.stages
    kernel_s = launches * timing.time  # of the bottleneck stage
    names = limiter_names(levels)
    by_limiter = sum_by_kind(graph.offset, timing.limiter, kernel_s, len(names))
    compute_s = by_limiter.sum(axis=1)
    waits = np.column_stack([by_limiter, timeline.exposed, timeline.bubble])
    flop = model_flop(graph)
    moved = prediction.pipeline.launches * timing.bytes[:, levels]  # by main memory
    devices = prediction.parallelism.strategies.devices[prediction.timed]
    # passes compute on other units than products: shares are of the fastest units in use
    peak = np.maximum(prediction.peaks.device, max_by_point(graph, prediction.peaks.kernels))
    memory, communication = prediction.footprint, prediction.communication
    columns: Columns = {
        "placement": communication.order,
        "time_s": timeline.total,
        "forward_s": timeline.forward,
        "backward_s": timeline.backward,
        "update_s": timeline.update,
        "compute_s": compute_s,
        "comm_s": communication.total,
        "exposed_comm_s": timeline.exposed,
        "bubble_s": timeline.bubble,
        "bottleneck_stage": np.ma.MaskedArray(stage, mask=stages == 1),
        "bound_by": np.array([*names, "network", "pipeline"])[waits.argmax(axis=1)],
        "flop": flop,
        "intensity": _quotient(
            sum_by_point(graph, prediction.pipeline.launches * timing.flop), sum_by_point(graph, moved)
        ),
        "mfu": _share(flop, devices * peak * timeline.total),
        "energy_J": prediction.energy * devices,
        "footprint_B": memory.total,
        "weight_B": memory.weights,
        "gradient_B": memory.gradients,
        "optimizer_B": memory.optimizer,
        "activation_B": memory.activations,
        "buffer_B": memory.buffers,
        "workspace_B": memory.process.workspace,
        "fragment_B": memory.fragments,
        "communicator_B": memory.process.communicators,
        "context_B": memory.process.context,
        "allocated_B": memory.allocated,
        "reserved_B": memory.reserved,
        "peak_memory_stage": memory.stage,
    }
    for axis, name in enumerate(AXES):
        columns[f"{name}_Bps"] = communication.bandwidth[:, axis]
        columns[f"{name}_hops"] = communication.hops[:, axis]
    if prediction.pipeline_blocks is not None:
        columns |= transformer_columns(prediction, kernel_s)
    columns["microbatches"] = prediction.pipeline.microbatches
    columns |= {f"{name}_bound_frac": by_limiter[:, i] / compute_s for i, name in enumerate(names)}
    slower = prediction.peaks.slower
    columns["throttled_frac"] = (
        np.zeros(compute_s.size) if slower is None else sum_by_point(graph, kernel_s * slower) / compute_s
    )
    columns["candidates"] = sum_by_point(graph, timing.candidates.astype(np.float64)).astype(np.int64)
    return columns | _longest_gemm(prediction, prediction.pipeline.launches * timing.time)


def _longest_gemm(prediction: Prediction, kernel_s: Floats) -> Columns:
    """Return the columns of the longest GEMM; of the timed points. kernel_s: of all launches."""
    graph, timing, levels = prediction.graph, prediction.timing, len(prediction.chip.levels)
    rows = _longest(graph.offset, prediction.shards.kernels.m, kernel_s)
    tiling = timing.tiling[rows]
    names = limiter_names(levels)
    # of a product the rate of its units; of a pass, as for mfu
    fastest = np.maximum(prediction.peaks.device, prediction.peaks.kernels[rows])
    columns: Columns = {
        "gemm": graph.names[graph.label[rows]],
        "gemm_s": timing.time[rows],
        "gemm_bound_by": np.array(names)[timing.limiter[rows]],
        "gemm_utilization": _share(timing.flop[rows], fastest * timing.time[rows]),
        "gemm_waves": timing.waves[rows],
        "gemm_split_k": timing.parts[rows],
        "gemm_busy_frac": _share(timing.busy[rows], np.ones(rows.size)),
        "gemm_compute_s": timing.times[rows, 0],
    }
    for number, name in enumerate(names[1:-1]):
        columns[f"gemm_{name}_moved_B"] = timing.bytes[rows, number]
        columns[f"gemm_{name}_s"] = timing.times[rows, 1 + number]
    for level in range(levels):
        columns[f"gemm_l{level}_tile"] = _format_tiles(timing.tile[tiling, level])
        columns[f"gemm_l{level}_stationary"] = np.array(["", *OPERANDS])[timing.stationary[tiling, level] + 1]
    return columns


@kernel
def _longest(offset: Ints, m: Ints, time: Floats) -> Ints:
    """Return the longest GEMM of each point, the first of several; m, time: (kernels,).

    Where no GEMM takes any time, the first kernel.
    """
    longest = offset[:-1].copy()
    for p in range(longest.size):
        longest_s = 0.0
        for row in range(offset[p], offset[p + 1]):
            if m[row] > 0 and time[row] > longest_s:
                longest[p], longest_s = row, time[row]
    return longest


def _format_tiles(tiles: Ints) -> Texts:
    """Write tiles as m x k x n, "" for none; (rows, 3) to (rows,)."""
    first, inverse = unique_rows(tiles.T, len(tiles))
    names = ["x".join(map(str, tile)) if any(tile) else "" for tile in tiles[first].tolist()]
    return take(np.array(names, dtype=np.str_), inverse)


def explain(prediction: Prediction, point: int, of_stage: bool = False) -> Columns:
    """Return the kernels of one point in their order, each column of shape (kernels,).

    Times and bytes of a level are those of one launch; `time_s` and `comm_s` of all launches on all stages of
    a pipeline, or with of_stage on the bottleneck stage, where every `time_s` is a part of `compute_s`.
    Empty for a point without a time.
    """
    timed_row = np.flatnonzero(prediction.timed == point)
    graph, timing = prediction.graph, prediction.timing
    rows = np.zeros(0, dtype=np.int64)
    if timed_row.size:
        rows = np.arange(*graph.offset[timed_row[0] : timed_row[0] + 2])
    all_launches = prediction.bottleneck.launches if of_stage else prediction.pipeline.launches
    rows = rows[all_launches[rows] > 0]
    local, exchange_times = take((prediction.shards.kernels, prediction.communication.exchanges), rows)
    launches, tiling = all_launches[rows], timing.tiling[rows]
    levels = len(prediction.chip.levels)
    names = limiter_names(levels)
    waited, gradient = prediction.shards.waited[rows], prediction.shards.gradient.collective[rows]
    has_gradient = gradient > 0
    collective = str(prediction.inputs["system.collective"][point])
    columns: Columns = {
        "kernel": graph.names[graph.label[rows]],
        "phase": np.array(PHASES)[graph.phase[rows]],
        "layer": graph.layer.number[rows],
        "stage": prediction.pipeline.stage[rows],
        "repeat": launches,
        "m": local.m,
        "k": local.k,
        "n": local.n,
        "time_s": launches * timing.time[rows],
        "bound_by": np.array(names)[timing.limiter[rows]],
        "comm": np.array(COLLECTIVES)[np.where(has_gradient, gradient, waited)],
        "comm_s": launches * (exchange_times.sync_s + exchange_times.send_s) + exchange_times.gradient_s,
        "algorithm": np.array([*ALGORITHMS, package_of(collective), *NCCL, *PEER])[
            np.where(has_gradient, exchange_times.gradient_by, exchange_times.sync_by)
        ],
        "flop": timing.flop[rows],
    }
    columns |= {
        "waves": timing.waves[rows],
        "parts": timing.parts[rows],
        "busy_frac": timing.busy[rows],
        "candidates": timing.candidates[rows],
    }
    columns |= {f"{name}_s": timing.times[rows, i] for i, name in enumerate(names)}
    columns |= {f"{name}_B": timing.bytes[rows, i] for i, name in enumerate(names[1:-1])}
    for level in range(levels):
        columns[f"l{level}_tile"] = _format_tiles(timing.tile[tiling, level])
        columns[f"l{level}_stationary"] = np.array(["", *OPERANDS])[timing.stationary[tiling, level] + 1]
    return columns


def explain_sharding(prediction: Prediction, point: int) -> list[sharding_report.KernelSharding]:
    """Return the sharding of every kernel of a point and the exchanges after it, in order.

    Empty for a point without a time.
    """
    row = np.flatnonzero(prediction.timed == point)
    if not row.size:
        return []
    layouts = take(prediction.parallelism.layouts, prediction.timed)
    layout_sections = sections(prediction.inputs)
    return sharding_report.explain(
        prediction.graph, prediction.shards, layouts, prediction.pipeline, int(row[0]),
        layout_sections.names[layout_sections.structure[point]].tolist(),
    )  # fmt: skip
