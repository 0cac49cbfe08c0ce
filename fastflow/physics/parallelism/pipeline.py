"""Pipelines: which layers make a stage, and into how many micro-batches a batch is cut (3.3, 5.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Reasons, Texts
from fastflow.physics.parallelism.options import AUTO, SCHEDULES
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.partition import all_launches
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.parallelism.virtual_stages import (
    BALANCED,
    NONE,
    Chunks,
    LayerPartition,
    crossings,
    deal,
    launched_again,
    most_of_chunks,
    recompute_of,
)
from fastflow.physics.schedule.pipeline_order import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE, balance
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import BACKWARD, FORWARD, Graph

ORDERS = dict(zip(SCHEDULES, (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE), strict=True))
# Micro-batches of a stage that leave the bubble negligible (Huang et al., GPipe, NeurIPS 2019, section 2.3)
MICROBATCHES_A_STAGE = 4


class Pipeline(NamedTuple):
    """Pipelines; shape (points,), but for the stage of every kernel."""

    stages: Ints
    microbatches: Ints
    order: Ints  # GPIPE or ONE_F_ONE_B
    stage: Ints  # of every kernel, (kernels,)
    crosses: Ints  # from how many of its layers what a kernel makes goes to another stage, (kernels,)
    launches: Ints  # of every kernel in an iteration, with those for what is computed again, (kernels,)
    busiest: Floats  # what the kernels of the stage that has most to do take in an iteration [s]
    # where layers of the graph stand for several
    chunks: Chunks | None = None  # what stages hold
    again: Ints | None = None  # launches for what is computed again, (kernels,)

    def most_of_a_stage(self, graph: Graph, values: Floats) -> Floats:
        """Return the sum of a quantity of kernels over the stage that has most of it, (points,)."""
        if self.chunks is None:
            return most_of_a_stage(graph.offset, self.stage, self.stages, values)
        return most_of_chunks(graph.numbers, self.chunks, self.stages, values)


def microbatches(
    inputs: Inputs, rows: Ints, indivisible: Bools, layouts: Layouts, stages: Ints
) -> tuple[Ints, Texts]:
    """Return every point's number of micro-batches, and why its rows cannot be cut so (or "").

    inputs: `parallel.microbatches`; 0 stands for as many as have `parallel.microbatch` sequences, of a
    transformer at least one; else for one without a pipeline, and otherwise for four a stage as far as a
    device has rows for them. rows: the parts that rows can be cut into, and whether into no more.
    """
    asked, shards = inputs["parallel.microbatches"], layouts.row_shards.max(axis=1)
    most = np.where(indivisible, rows // shards, -(-rows // shards))
    usual = np.where(stages > 1, np.minimum(MICROBATCHES_A_STAGE * stages, np.maximum(most, 1)), 1)
    reason = Reasons(asked.size)
    for i in reason.without(most < 1):
        parts = "1 part" if rows[i] == 1 else f"{rows[i]} parts"
        allowed = f"a strategy that cuts the batch into at most {parts}, the number of sequences"
        if inputs.get("model.batch", rows)[i] == rows[i]:
            allowed += f" (model.batch={rows[i]})"
        reason.add(i, str(InputError("parallel.strategy", inputs["parallel.strategy"][i], allowed)))
    uneven = rows % shards > 0
    for i in reason.without(uneven) if uneven.any() and has_layer_runs(inputs) else ():
        allowed = f"a strategy whose data parallelism divides model.batch={inputs['model.batch'][i]}"
        reason.add(i, str(InputError("parallel.strategy", inputs["parallel.strategy"][i], allowed)))
    for i in reason.without(asked > most):
        allowed = (
            f"at most {most[i]}, the number of {'sequences' if indivisible[i] else 'rows'} of one device"
        )
        reason.add(i, str(InputError("parallel.microbatches", int(asked[i]), allowed)))
    sequences = inputs["parallel.microbatch"]
    each = np.where((sequences == 0) & (asked == 0) & has_layer_runs(inputs), 1, sequences)
    given = each > 0
    if given.any():
        whole = np.maximum(each, 1)
        uneven = given & (most % whole > 0)
        for i in reason.without(uneven):
            allowed = f"a divisor of the {most[i]} {'sequences' if indivisible[i] else 'rows'} of one device"
            reason.add(i, str(InputError("parallel.microbatch", int(each[i]), allowed)))
        for i in reason.without(given & (asked > 0) & (asked != most // whole)):
            allowed = f"0, or the {most[i] // whole[i]} of parallel.microbatch={each[i]}"
            reason.add(i, str(InputError("parallel.microbatches", int(asked[i]), allowed)))
        usual = np.where(given, np.maximum(most // whole, 1), usual)
    return np.where(asked > 0, asked, usual), reason.texts()


def invalid_schedule(inputs: Inputs, strategies: Strategies, microbatched: Ints, stacked: bool) -> Texts:
    """Say for every point why its schedule is none for its pipeline; or "", (points,).

    inputs: `parallel.schedule`, `.strategy`, `.recompute`, `.offload`; microbatched: micro-batches; stacked:
    of models whose layers stand for several.
    """
    schedule, chunks, stages = inputs["parallel.schedule"], strategies.chunks, strategies.lp
    order, reason = map_values(ORDERS, schedule), Reasons(schedule.size)
    if not stacked:
        for i in reason.without(chunks > 1):
            allowed = "pipeline stages without chunks, which layers of transformers alone are dealt to"
            reason.add(i, str(InputError("parallel.strategy", inputs["parallel.strategy"][i], allowed)))
        for i in reason.without(~np.isin(inputs["parallel.recompute"], (AUTO, NONE))):
            allowed = f"{NONE}, but for a transformer"
            reason.add(i, str(InputError("parallel.recompute", inputs["parallel.recompute"][i], allowed)))
        for i in reason.without(inputs["parallel.offload"] != NONE):
            allowed = f"{NONE}, but for a transformer"
            reason.add(i, str(InputError("parallel.offload", inputs["parallel.offload"][i], allowed)))
        for i in reason.without(order > ONE_F_ONE_B):
            allowed = "1f1b or gpipe, but for a transformer"
            reason.add(i, str(InputError("parallel.schedule", schedule[i], allowed)))
        return reason.texts()
    for i in reason.without((chunks > 1) & (order == ZERO_BUBBLE)):
        allowed = "1f1b, interleaved or gpipe, where stages have chunks"
        reason.add(i, str(InputError("parallel.schedule", schedule[i], allowed)))
    interleaved = (chunks > 1) & (order != GPIPE)
    for i in reason.without(interleaved & (microbatched % stages > 0)):
        key, value = "parallel.microbatches", inputs["parallel.microbatches"][i]
        allowed = f"a multiple of the {stages[i]} stages, which take so many at a time where they have chunks"
        if value == 0:  # it follows from the batch
            key, value = "parallel.strategy", inputs["parallel.strategy"][i]
            allowed = f"stages with chunks that divide the {microbatched[i]} micro-batches of a device"
        reason.add(i, str(InputError(key, value, allowed)))
    return reason.texts()


@kernel
def most_of_a_stage(offset: Ints, stage: Ints, stages: Ints, values: Floats) -> Floats:
    """Return the sum of a quantity over the stage that has most of it, (points,)."""
    most = np.zeros(stages.size)
    for p in range(stages.size):
        of_stage = np.zeros(stages[p])
        for row in range(offset[p], offset[p + 1]):
            of_stage[stage[row]] += values[row]
        for stage_of in range(stages[p]):
            most[p] = np.maximum(most[p], of_stage[stage_of])
    return most


@kernel
def _split(
    offset: Ints, phase: Ints, layer: Ints, sends: Ints, stages: Ints, time: Floats
) -> tuple[Ints, Ints]:
    """Return every kernel's stage, and whether it sends to another one.

    phase, layer, sends (columns at the layer's border), time: (kernels,).
    """
    stage, crosses = np.zeros(layer.size, dtype=np.int64), np.zeros(layer.size, dtype=np.int64)
    for p in range(stages.size):
        if stages[p] == 1:
            continue
        layers = 0
        for row in range(offset[p], offset[p + 1]):
            layers = max(layers, layer[row] + 1)
        of_layer = np.zeros(layers)
        for row in range(offset[p], offset[p + 1]):
            of_layer[layer[row]] += time[row]
        first = balance(of_layer, stages[p])
        for row in range(offset[p], offset[p + 1]):
            while stage[row] + 1 < stages[p] and layer[row] >= first[stage[row] + 1]:
                stage[row] += 1
            own = stage[row]
            if sends[row] > 0 and phase[row] == FORWARD:
                crosses[row] = own + 1 < stages[p] and layer[row] + 1 == first[own + 1]
            elif sends[row] > 0 and phase[row] == BACKWARD:
                crosses[row] = own > 0 and layer[row] == first[own]
    return stage, crosses


def pipeline(
    inputs: Inputs, graph: Graph, layer_partition: LayerPartition | None, strategies: Strategies,
    microbatched: Ints, kernel_s: Floats,
) -> Pipeline:  # fmt: skip
    """Cut the layers of every point into stages, so that the slowest one takes as little as it can.

    Layers that stand for several are dealt to chunks of stages instead (`virtual_stages`).

    inputs: `parallel.schedule`, `.split`, `.recompute`, `model.training`; layer_partition: of their models'
    layers, where some stand for several; strategies, microbatched (micro-batches): (points,); kernel_s: what
    a launch of every kernel takes [s], (kernels,).
    """
    stages, launches = strategies.lp, all_launches(graph, microbatched)
    order = map_values(ORDERS, inputs["parallel.schedule"]).astype(np.int64)
    if layer_partition is not None:
        order = np.where((strategies.chunks > 1) & (order == ONE_F_ONE_B), INTERLEAVED, order)
        even = inputs["parallel.split"] != BALANCED
        chunks = deal(graph, layer_partition, even, recompute_of(inputs), launches * kernel_s)
        again = launched_again(graph.numbers, chunks, microbatched)
        none = np.zeros(graph.point.size, dtype=np.int64)
        crosses = crossings(graph.numbers, chunks)
        launches = launches + again
        busiest = most_of_chunks(graph.numbers, chunks, stages, launches * kernel_s)
        return Pipeline(stages, microbatched, order, none, crosses, launches, busiest, chunks, again)
    spent = launches * kernel_s
    stage, crosses = _split(graph.offset, graph.phase, graph.layer, graph.sends_cols, stages, spent)
    busiest = most_of_a_stage(graph.offset, stage, stages, spent)
    return Pipeline(stages, microbatched, order, stage, crosses, launches, busiest)
