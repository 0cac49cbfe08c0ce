"""Pipelines: the layers of each stage, and the micro-batches of a batch (3.3, 5.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.jit import kernel
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.offload import refuse_offloads
from fastflow.physics.parallelism.options import AUTO, DUALPIPE, SCHEDULES
from fastflow.physics.parallelism.pipeline_layout import KEY as LAYOUT
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.partition import all_launches
from fastflow.physics.parallelism.strategy import Strategies, parse
from fastflow.physics.parallelism.virtual_stages import (
    BALANCED,
    NONE,
    Chunks,
    LayerPartition,
    crossings,
    max_chunked_stage_sum,
    partition_layers,
    recompute_launches_of,
    recompute_of,
)
from fastflow.physics.schedule.pipeline_order import (
    DUALPIPE_V,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
    ZERO_BUBBLE_2P,
    ZERO_BUBBLE_V,
    balance,
)
from fastflow.physics.workload import default_microbatch, has_layer_runs
from fastflow.physics.workload.graph import BACKWARD, FORWARD, Graph

_ORDERS = (
    GPIPE,
    ONE_F_ONE_B,
    INTERLEAVED,
    ZERO_BUBBLE,
    ZERO_BUBBLE_2P,
    ZERO_BUBBLE_V,
    DUALPIPE_V,
    DUALPIPE_V,
)
ORDERS = dict(zip(SCHEDULES, _ORDERS, strict=True))
# Micro-batches of a stage that leave the bubble negligible (Huang et al., GPipe, NeurIPS 2019, section 2.3)
MICROBATCHES_A_STAGE = 4


class Pipeline(NamedTuple):
    """Pipelines; shape (points,), but for the stage of every kernel."""

    stages: Ints
    microbatches: Ints
    order: Ints  # of `pipeline_order`
    stage: Ints  # of every kernel, (kernels,)
    crosses: Ints  # layers of a kernel whose output goes to another stage, (kernels,)
    launches: Ints  # of every kernel in an iteration, recomputation included, (kernels,)
    busiest: Floats  # time of the kernels of the busiest stage in an iteration [s]
    # of graphs with layer runs
    chunks: Chunks | None = None  # layers of the virtual stages
    recompute_launches: Ints | None = None  # launches for recomputation, (kernels,)

    def max_stage_sum(self, graph: Graph, values: Floats) -> Floats:
        """Return the sum of a quantity of kernels over the stage that has most of it, (points,)."""
        if self.chunks is None:
            return max_stage_sum(graph.offset, self.stage, self.stages, values)
        return max_chunked_stage_sum(graph.numbers, self.chunks, self.stages, values)


def microbatches(
    inputs: Inputs, rows: Ints, indivisible: Bools, layouts: Layouts, stages: Ints
) -> tuple[Ints, ReasonColumn]:
    """Return every point's number of micro-batches, and why its rows cannot be split so.

    inputs: `parallel.microbatches`; 0 stands for micro-batches of `parallel.microbatch` sequences, in
    training by default those of the family; else for one without a pipeline, and otherwise for four a stage
    as far as a device has rows for them. rows: the parts that rows can be split into; indivisible: into no
    more.
    """
    requested, shards = inputs["parallel.microbatches"], layouts.row_shards.max(axis=1)
    max_microbatches = np.where(indivisible, rows // shards, -(-rows // shards))
    default = np.where(
        stages > 1, np.minimum(MICROBATCHES_A_STAGE * stages, np.maximum(max_microbatches, 1)), 1
    )
    reason = Reasons(requested.size)
    for i in reason.without(max_microbatches < 1):
        parts = "1 part" if rows[i] == 1 else f"{rows[i]} parts"
        allowed = f"a strategy that cuts the batch into at most {parts}, the number of sequences"
        if inputs["parallel.schedule"][i] == DUALPIPE:
            allowed += f", of which parallel.schedule={DUALPIPE} takes two for each d"
        conflicts: list[tuple[str, object]] = []
        if inputs.get("model.batch", rows)[i] == rows[i]:
            allowed += f" (model.batch={rows[i]})"
            conflicts = [("model.batch", rows[i])]
        strategy = inputs["parallel.strategy"][i]
        reason.add(i, rejected(Code.BATCH, "parallel.strategy", strategy, allowed, conflicts=conflicts))
    uneven = rows % shards > 0
    for i in reason.without(uneven) if uneven.any() and has_layer_runs(inputs) else ():
        batch, strategy = inputs["model.batch"][i], inputs["parallel.strategy"][i]
        allowed = f"a strategy whose data parallelism divides model.batch={batch}"
        conflicts = [("model.batch", batch)]
        reason.add(i, rejected(Code.BATCH, "parallel.strategy", strategy, allowed, conflicts=conflicts))
    for i in reason.without(requested > max_microbatches):
        units = "sequences" if indivisible[i] else "rows"
        allowed = f"at most {max_microbatches[i]}, the number of {units} of one device"
        reason.add(i, rejected(Code.BATCH, "parallel.microbatches", int(requested[i]), allowed))
    sequences = inputs["parallel.microbatch"]
    default_size = np.where(inputs["model.training"], default_microbatch(inputs), 0)
    size = np.where((sequences == 0) & (requested == 0), default_size, sequences)
    has_size = size > 0
    if has_size.any():
        divisor = np.maximum(size, 1)
        uneven = has_size & (max_microbatches % divisor > 0)
        for i in reason.without(uneven):
            units = "sequences" if indivisible[i] else "rows"
            allowed = f"a divisor of the {max_microbatches[i]} {units} of one device"
            reason.add(i, rejected(Code.BATCH, "parallel.microbatch", int(size[i]), allowed))
        for i in reason.without(has_size & (requested > 0) & (requested != max_microbatches // divisor)):
            allowed = f"0, or the {max_microbatches[i] // divisor[i]} of parallel.microbatch={size[i]}"
            key, conflicts = "parallel.microbatches", [("parallel.microbatch", size[i])]
            reason.add(i, rejected(Code.BATCH, key, int(requested[i]), allowed, conflicts=conflicts))
        default = np.where(has_size, np.maximum(max_microbatches // divisor, 1), default)
    return np.where(requested > 0, requested, default), reason.column()


def invalid_schedule(
    inputs: Inputs, strategies: Strategies, num_microbatches: Ints, layer_runs: bool
) -> ReasonColumn:
    """Say for every point why its schedule is invalid for its pipeline, (points,).

    inputs: `parallel.schedule`, `.strategy`, `.recompute`, `.offload`; num_microbatches: (points,);
    layer_runs: whether the models' graphs have layer runs.
    """
    schedule, chunks, stages = inputs["parallel.schedule"], strategies.chunks, strategies.pp
    order, reason = map_values(ORDERS, schedule), Reasons(schedule.size)
    if not layer_runs:
        for i in reason.without(chunks > 1):
            allowed = "pipeline stages without chunks, which layers of transformers alone are dealt to"
            reason.add(
                i, rejected(Code.SCHEDULE, "parallel.strategy", inputs["parallel.strategy"][i], allowed)
            )
        for i in reason.without(~np.isin(inputs["parallel.recompute"], (AUTO, NONE))):
            allowed = f"{NONE}, but for a transformer"
            reason.add(
                i,
                rejected(Code.SCHEDULE, "parallel.recompute", inputs["parallel.recompute"][i], allowed),
            )
        for i in reason.without(inputs["parallel.offload"] != NONE):
            allowed = f"{NONE}, but for a transformer"
            reason.add(i, rejected(Code.SCHEDULE, "parallel.offload", inputs["parallel.offload"][i], allowed))
        for i in reason.without(order > ONE_F_ONE_B):
            allowed = "1f1b or gpipe, but for a transformer"
            reason.add(i, rejected(Code.SCHEDULE, "parallel.schedule", schedule[i], allowed))
        return reason.column()
    refuse_offloads(inputs, reason)
    for i in reason.without((chunks > 1) & np.isin(order, (ZERO_BUBBLE, ZERO_BUBBLE_2P))):
        allowed = "1f1b, interleaved, gpipe, zb-v or dualpipe-v, where stages have chunks"
        reason.add(i, rejected(Code.SCHEDULE, "parallel.schedule", schedule[i], allowed))
    folds = np.isin(order, (ZERO_BUBBLE_V, DUALPIPE_V))
    for i in reason.without(folds & ~inputs["model.training"] & (stages * chunks > 1)):
        allowed = "1f1b, interleaved or gpipe with model.training=false"
        reason.add(i, rejected(Code.SCHEDULE, "parallel.schedule", schedule[i], allowed))
    uneven = (stages > 1) & (chunks != 2)
    for i in np.flatnonzero(schedule == DUALPIPE).tolist():
        uneven[i] |= parse(str(inputs["parallel.strategy"][i])).chunks > 1
    for i in reason.without(folds & uneven):
        key, value = "parallel.strategy", inputs["parallel.strategy"][i]
        allowed = f"stages of two chunks with parallel.schedule={schedule[i]}, such as p{stages[i]}x2"
        if schedule[i] == DUALPIPE:
            allowed = f"an even number of stages without chunks with parallel.schedule={DUALPIPE}"
        reason.add(i, rejected(Code.SCHEDULE, key, value, allowed))
    least = np.where(order == DUALPIPE_V, 2, 1) * stages
    in_turns = (chunks > 1) & np.isin(order, (ONE_F_ONE_B, INTERLEAVED, DUALPIPE_V))
    for i in reason.without(in_turns & (num_microbatches < least)):
        key, value = "parallel.microbatches", inputs["parallel.microbatches"][i]
        allowed = f"at least {least[i]} for {stages[i]} stages with chunks"
        if value == 0:  # it follows from the batch
            key, value = "parallel.strategy", inputs["parallel.strategy"][i]
            allowed = (
                f"stages for which the {num_microbatches[i]} micro-batches of a device are enough "
                f"(parallel.schedule={schedule[i]} takes {least[i]} at least)"
            )
        reason.add(i, rejected(Code.BATCH, key, value, allowed))
    return reason.column()


@kernel
def max_stage_sum(offset: Ints, stage: Ints, stages: Ints, values: Floats) -> Floats:
    """Return the sum of a quantity over the stage that has most of it, (points,)."""
    largest = np.zeros(stages.size)
    for p in range(stages.size):
        stage_sums = np.zeros(stages[p])
        for row in range(offset[p], offset[p + 1]):
            stage_sums[stage[row]] += values[row]
        for index in range(stages[p]):
            largest[p] = np.maximum(largest[p], stage_sums[index])
    return largest


@kernel
def _balance_stages(
    offset: Ints, phase: Ints, layer: Ints, sends: Ints, stages: Ints, time: Floats
) -> tuple[Ints, Ints]:
    """Return every kernel's stage, and whether it sends to another stage.

    phase, layer, sends (columns at the layer's border), time: (kernels,).
    """
    stage, crosses = np.zeros(layer.size, dtype=np.int64), np.zeros(layer.size, dtype=np.int64)
    for p in range(stages.size):
        if stages[p] == 1:
            continue
        layers = 0
        for row in range(offset[p], offset[p + 1]):
            layers = max(layers, layer[row] + 1)
        layer_s = np.zeros(layers)
        for row in range(offset[p], offset[p + 1]):
            layer_s[layer[row]] += time[row]
        first = balance(layer_s, stages[p])
        for row in range(offset[p], offset[p + 1]):
            while stage[row] + 1 < stages[p] and layer[row] >= first[stage[row] + 1]:
                stage[row] += 1
            current = stage[row]
            if sends[row] > 0 and phase[row] == FORWARD:
                crosses[row] = current + 1 < stages[p] and layer[row] + 1 == first[current + 1]
            elif sends[row] > 0 and phase[row] == BACKWARD:
                crosses[row] = current > 0 and layer[row] == first[current]
    return stage, crosses


def pipeline(
    inputs: Inputs, graph: Graph, layer_partition: LayerPartition | None, strategies: Strategies,
    num_microbatches: Ints, kernel_s: Floats,
) -> Pipeline:  # fmt: skip
    """Partition the layers of every point into stages, so that the slowest stage is as fast as possible.

    Layer runs are assigned to chunks of stages instead (`virtual_stages`).

    inputs: `parallel.schedule`, `.pipeline_partition`, `.pipeline_layout`, `.recompute`, `model.training`;
    layer_partition: of models with layer runs; strategies, num_microbatches: (points,); kernel_s: time of a
    launch of every kernel [s], (kernels,).
    """
    stages, launches = strategies.pp, all_launches(graph, num_microbatches)
    order = map_values(ORDERS, inputs["parallel.schedule"]).astype(np.int64)
    if layer_partition is not None:
        order = np.where((strategies.chunks > 1) & (order == ONE_F_ONE_B), INTERLEAVED, order)
        order = np.where((stages * strategies.chunks == 1) & (order > ZERO_BUBBLE), ONE_F_ONE_B, order)
        even = inputs["parallel.pipeline_partition"] != BALANCED
        chunks = partition_layers(
            graph, layer_partition, even, recompute_of(inputs), launches * kernel_s, inputs[LAYOUT], stages,
            order,
        )  # fmt: skip
        recompute_launches = recompute_launches_of(graph.numbers, chunks, num_microbatches)
        zeros = np.zeros(graph.point.size, dtype=np.int64)
        crosses = crossings(graph.numbers, chunks)
        launches = launches + recompute_launches
        busiest = max_chunked_stage_sum(graph.numbers, chunks, stages, launches * kernel_s)
        return Pipeline(
            stages, num_microbatches, order, zeros, crosses, launches, busiest, chunks, recompute_launches
        )
    kernel_total_s = launches * kernel_s
    stage, crosses = _balance_stages(
        graph.offset, graph.phase, graph.layer.number, graph.comm.sent_cols, stages, kernel_total_s
    )
    busiest = max_stage_sum(graph.offset, stage, stages, kernel_total_s)
    return Pipeline(stages, num_microbatches, order, stage, crosses, launches, busiest)
