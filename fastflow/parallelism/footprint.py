"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.iteration.pipeline_order import in_flight
from fastflow.parallelism.shards import Supergraph
from fastflow.parallelism.stages import Pipeline
from fastflow.tables import Bools, Floats, Ints
from fastflow.workload.graph import REDUCE_SCATTER, UPDATE, Graph, most_by_point
from fastflow.workload.precision import Precision


class Footprint(NamedTuple):
    """Bytes of one device of the pipeline stage that needs most, by kind; shape (points,)."""

    weights: Floats  # master copies included
    gradients: Floats
    optimizer: Floats
    activations: Floats  # kept from the forward to the backward pass, of all micro-batches in flight
    stage: Ints  # which stage that is
    buffers: Floats  # copies of weights and gradients of which it holds a part

    @property
    def total(self) -> Floats:
        """All of it [B]."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


@kernel
def _fullest_stage(
    graph: Graph, shards: Supergraph, pipeline: Pipeline, a_whole: Floats, a_part: Floats, activation: Floats
) -> tuple[Floats, Floats, Floats, Ints]:
    """Return weights, a device's part of them, and kept activations of the stage that needs most [elements],
    and which it is. a_whole, a_part: bytes that a device has of every weight, and of one in its part.
    """
    points = graph.offset.size - 1
    weights, parts, activations = np.zeros(points), np.zeros(points), np.zeros(points)
    fullest = np.zeros(points, dtype=np.int64)
    most = 1
    for p in range(points):
        most = max(most, pipeline.stages[p])
    of_stage = np.empty((3, most))
    for p in range(points):
        stages = pipeline.stages[p]
        of_stage[:, :stages] = 0.0
        for row in range(graph.offset[p], graph.offset[p + 1]):
            stage, cols = pipeline.stage[row], graph.cols[row]
            owned = 1.0 * graph.weights[row] * shards.batch[row]
            owned *= shards.inner[row] * shards.cols[row]
            of_stage[0, stage] += owned
            of_stage[2, stage] += np.ceil(owned / shards.owners[row])
            # what was kept per column of the layer is cut as the layer's activations are
            kept = (
                1.0
                * shards.activation_rows[row]
                * graph.kept_cols[row]
                * (shards.activation_cols[row] / cols)
            )
            whole = graph.kept_whole_cols[row] * (shards.read_cols[row] / cols)
            kept += shards.read_rows[row] * whole
            of_stage[1, stage] += 1.0 * graph.repeat[row] * graph.batch[row] * kept
        needed = -1.0
        for stage in range(stages):
            kept = of_stage[1, stage] * in_flight(pipeline.order[p], stages, stage, pipeline.microbatches[p])
            total = of_stage[0, stage] * a_whole[p] + of_stage[2, stage] * a_part[p]
            total += kept * activation[p]
            if total > needed:
                needed, fullest[p] = total, stage
                weights[p], parts[p], activations[p] = of_stage[0, stage], of_stage[2, stage], kept
    return weights, parts, activations, fullest


def footprint(
    graph: Graph, shards: Supergraph, pipeline: Pipeline, precision: Precision, training: Bools, zero: Ints
) -> Footprint:
    """Return what a device of the stage that needs most memory holds.

    Every weight has a gradient when training, also an embedding row that no token touched. Activations are
    those that the backward pass reads again, for all steps and for as many micro-batches as the schedule has
    in flight. zero: the stage of ZeRO (arXiv:1910.02054): devices with the same weights have a part each of
    optimizer state and masters (1), gradients (2), weights (3).
    """
    gradient = np.where(training, precision.gradient, 0.0)
    by_stage = (precision.master + precision.state, gradient, precision.weight)
    whole, part = np.zeros((2, zero.size))
    for first, size in enumerate(by_stage, start=1):
        whole += np.where(zero < first, size, 0.0)
        part += np.where(zero >= first, size, 0.0)
    weights, parts, activations, stage = _fullest_stage(
        graph.numbers, shards.numbers, pipeline, whole, part, precision.activation
    )
    held = [np.where(zero >= first, parts, weights) for first in (1, 2, 3)]
    return Footprint(
        weights=held[2] * precision.weight + held[0] * precision.master,
        gradients=held[1] * gradient,
        optimizer=held[0] * precision.state,
        activations=activations * precision.activation,
        stage=stage,
        buffers=_buffers(graph, shards, zero),
    )


def _buffers(graph: Graph, shards: Supergraph, zero: Ints) -> Floats:
    """Return the bytes of the largest weights that are gathered, and of the largest gradient dealt out."""
    if not (zero > 1).any():
        return np.zeros(zero.size)
    of_kernel, dealt = zero[graph.point], shards.gradient.collective == REDUCE_SCATTER
    used = (of_kernel == 3) & (graph.phase != UPDATE)
    gathered = np.where(used, shards.fetch.bytes * graph.repeat, 0.0)
    made = np.where((of_kernel > 1) & dealt, shards.gradient.bytes, 0.0)
    return most_by_point(graph, gathered) + most_by_point(graph, made)
