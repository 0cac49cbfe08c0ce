"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.iteration.block_order import in_flight as chunks_in_flight
from fastflow.iteration.block_order import waiting
from fastflow.iteration.pipeline_order import in_flight
from fastflow.parallelism.chunks import Chunks
from fastflow.parallelism.shards import Supergraph
from fastflow.parallelism.stages import Pipeline
from fastflow.tables import Bools, Floats, Ints
from fastflow.workload.graph import FORWARD, REDUCE_SCATTER, UPDATE, Graph, most_by_point
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


class _Stages(NamedTuple):
    """What kernels take of a `Pipeline`."""

    stages: Ints
    microbatches: Ints
    order: Ints
    stage: Ints


@lean_kernel
def _owned(graph: Graph, shards: Supergraph, row: int) -> float:
    """Return the weights of which a kernel has one device's share [elements]."""
    owned = 1.0 * graph.weights[row] * shards.batch[row]
    return float(owned * shards.inner[row] * shards.cols[row])


@lean_kernel
def _kept(graph: Graph, shards: Supergraph, row: int) -> float:
    """Return what is kept of a kernel for the backward pass of one micro-batch [elements]."""
    # what was kept per column of the layer is cut as the layer's activations are
    cols = graph.cols[row]
    kept = 1.0 * shards.activation_rows[row] * graph.kept_cols[row] * (shards.activation_cols[row] / cols)
    return float(1.0 * graph.repeat[row] * graph.batch[row] * kept) + _kept_whole(graph, shards, row)


@lean_kernel
def _kept_whole(graph: Graph, shards: Supergraph, row: int) -> float:
    """Return what is kept of a kernel as products read it [elements]."""
    whole = graph.kept_whole_cols[row] * (shards.read_cols[row] / graph.cols[row])
    return float(1.0 * graph.repeat[row] * graph.batch[row] * shards.read_rows[row] * whole)


@kernel
def _fullest_stage(
    graph: Graph, shards: Supergraph, pipeline: _Stages, a_whole: Floats, a_part: Floats, activation: Floats
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
            stage, owned = pipeline.stage[row], _owned(graph, shards, row)
            of_stage[0, stage] += owned
            of_stage[2, stage] += np.ceil(owned / shards.owners[row])
            of_stage[1, stage] += _kept(graph, shards, row)
        needed = -1.0
        for stage in range(stages):
            kept = of_stage[1, stage] * in_flight(pipeline.order[p], stages, stage, pipeline.microbatches[p])
            total = of_stage[0, stage] * a_whole[p] + of_stage[2, stage] * a_part[p]
            total += kept * activation[p]
            if total > needed:
                needed, fullest[p] = total, stage
                weights[p], parts[p], activations[p] = of_stage[0, stage], of_stage[2, stage], kept
    return weights, parts, activations, fullest


@kernel
def _fullest_chunked(
    graph: Graph, shards: Supergraph, pipeline: _Stages, chunks: Chunks,
    a_whole: Floats, a_part: Floats, activation: Floats,
) -> tuple[Floats, Floats, Floats, Ints, Floats]:  # fmt: skip
    """Return the same where layers stand for several, and what the largest layer keeps that is computed
    again, while it is [elements].
    """
    points = graph.offset.size - 1
    weights, parts, activations, worked = (
        np.zeros(points),
        np.zeros(points),
        np.zeros(points),
        np.zeros(points),
    )
    fullest = np.zeros(points, dtype=np.int64)
    for p in range(points):
        layers, stages = chunks.layers[p], pipeline.stages[p]
        of_layer, largest, border = np.zeros((5, layers)), 0.0, 0.0
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer, owned = graph.layer[row], _owned(graph, shards, row)
            of_layer[0, layer] += owned
            of_layer[1, layer] += np.ceil(owned / shards.owners[row])
            if graph.phase[row] != FORWARD:
                continue
            kept = _kept(graph, shards, row)
            of_layer[4, layer] += kept
            if chunks.core[p] and graph.selective[row] > 0:  # what leaves the core is kept
                kept = _kept_whole(graph, shards, row)
            of_layer[2, layer] += kept
            if graph.sends_cols[row] > 0:  # what a layer makes is as large as what it reads
                share = shards.activation_cols[row] / graph.cols[row]
                of_layer[3, layer] = shards.activation_rows[row] * graph.sends_cols[row] * share
                border = of_layer[3, layer]
        needed = -1.0
        for stage in range(stages):
            whole, part, kept = 0.0, 0.0, 0.0
            count = (chunks.offset[p + 1] - chunks.offset[p]) // stages
            for c in range(count):
                for layer in range(layers):
                    at = chunks.at[p] + (c * stages + stage) * layers + layer
                    held, again = chunks.held[at], chunks.again[at]
                    whole += held * of_layer[0, layer]
                    part += held * of_layer[1, layer]
                    kept += (held - again) * of_layer[2, layer] + again * of_layer[3, layer]
                    if again > 0:
                        largest = max(largest, of_layer[4, layer])
                # what a layer reads counts with the one that made it, but a stage keeps what it received
                if c * stages + stage == 0 and count * stages > 1:
                    kept -= border
                if c * stages + stage + 1 == count * stages > 1:
                    kept += border
            flying = chunks_in_flight(pipeline.order[p], stages, stage, count, pipeline.microbatches[p])
            flying += waiting(pipeline.order[p], stages, stage, pipeline.microbatches[p])
            kept *= flying / count
            total = whole * a_whole[p] + part * a_part[p] + kept * activation[p]
            if total > needed:
                needed, fullest[p] = total, stage
                weights[p], parts[p], activations[p], worked[p] = whole, part, kept, largest
    return weights, parts, activations, fullest, worked


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
    worked = np.zeros(zero.size)
    stages = _Stages(pipeline.stages, pipeline.microbatches, pipeline.order, pipeline.stage)
    if pipeline.chunks is None:
        weights, parts, activations, stage = _fullest_stage(
            graph.numbers, shards.numbers, stages, whole, part, precision.activation
        )
    else:
        weights, parts, activations, stage, worked = _fullest_chunked(
            graph.numbers, shards.numbers, stages, pipeline.chunks, whole, part,
            precision.activation,
        )  # fmt: skip
    held = [np.where(zero >= first, parts, weights) for first in (1, 2, 3)]
    return Footprint(
        weights=held[2] * precision.weight + held[0] * precision.master,
        gradients=held[1] * gradient,
        optimizer=held[0] * precision.state,
        activations=activations * precision.activation,
        stage=stage,
        buffers=_buffers(graph, shards, zero) + worked * precision.activation,
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
