"""The bottleneck stage of each point's pipeline, and its kernel launches.

A pipelined iteration takes as many turns as there are micro-batches, each as long as that of the slowest
stage. So its time is made of the kernels and waits of that stage alone; the idle time of the stage is the
bubble.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.stage_times import PipelineBlocks
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.workload.graph import FORWARD, UPDATE, Graph
from fastflow.physics.workload.recompute_modules import NEVER, is_recomputed


class Bottleneck(NamedTuple):
    """The stage that sets the pace of every point."""

    stage: Ints  # counted from 0, (points,)
    launches: Ints  # of every kernel on that stage in an iteration, (kernels,)
    recompute_launches: Ints | None  # those of them for recomputation; None: of models that recompute nothing


def bottleneck(
    graph: Graph, pipe: Pipeline, blocks: PipelineBlocks | None, copies: Bools, kernel_s: Floats
) -> Bottleneck:
    """Return the stage of every point that sets the pace.

    With layer runs, it is the stage with most work for a micro-batch, exposed communication included; else
    the stage whose kernels take longest.

    copies: whether the last of several stages has a copy of the first layer's weights, (points,);
    kernel_s: time of a launch of every kernel [s], (kernels,).
    """
    launches = pipe.launches
    is_pipelined = bool((pipe.stages > 1).any())
    if blocks is None or pipe.chunks is None:
        if not is_pipelined:
            return Bottleneck(np.zeros_like(pipe.stages), launches, None)
        stage = _slowest_stage(graph, pipe, launches * kernel_s)
        return Bottleneck(stage, np.where(pipe.stage == stage[graph.point], launches, 0), None)
    if not is_pipelined:
        return Bottleneck(blocks.stage, launches, pipe.recompute_launches)
    stage_launches, recompute = _stage_launches(
        graph.numbers, pipe.chunks, pipe.stages, pipe.microbatches, blocks.stage, copies
    )
    return Bottleneck(blocks.stage, stage_launches, recompute)


def _slowest_stage(graph: Graph, pipe: Pipeline, values: Floats) -> Ints:
    """Return the stage that has most of a quantity of kernels, the first of several, (points,)."""
    shape = pipe.stages.size, int(pipe.stages.max())
    totals = np.bincount(graph.point * shape[1] + pipe.stage, values, shape[0] * shape[1])
    stage: Ints = totals.reshape(shape).argmax(axis=1)
    return stage


@kernel
def _stage_launches(
    graph: Graph, chunks: Chunks, stages: Ints, microbatches: Ints, stage: Ints, copies: Bools
) -> tuple[Ints, Ints]:
    """Return the launches of every kernel on a point's stage, and those of recomputation, (kernels,)."""
    launches, recompute_launches = np.zeros((2, graph.point.size), dtype=np.int64)
    for p in range(stages.size):
        layers, virtual = chunks.layers[p], chunks.offset[p + 1] - chunks.offset[p]
        layer_counts, recompute_counts = np.zeros((2, layers), dtype=np.int64)
        for j in range(virtual):
            for layer in range(layers if chunks.stage[chunks.offset[p] + j] == stage[p] else 0):
                layer_counts[layer] += chunks.layer_counts[chunks.first_count[p] + j * layers + layer]
                recompute_counts[layer] += chunks.recompute_counts[chunks.first_count[p] + j * layers + layer]
        has_copy = copies[p] and stages[p] > 1 and stage[p] == stages[p] - 1
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer, turns = graph.layer.number[row], graph.launches.repeat[row] * microbatches[p]
            if graph.phase[row] == UPDATE:
                launches[row] = graph.launches.repeat[row] * (layer_counts[layer] + (has_copy and layer == 0))
                continue
            if graph.phase[row] == FORWARD:
                of_module = graph.memory.modules[row]
                recomputes = is_recomputed(of_module, chunks.modules[p])
                count = layer_counts[layer] if recomputes else recompute_counts[layer]
                if of_module == NEVER:
                    count = 0
                recompute_launches[row] = turns * count
            launches[row] = turns * layer_counts[layer] + recompute_launches[row]
    return launches, recompute_launches
