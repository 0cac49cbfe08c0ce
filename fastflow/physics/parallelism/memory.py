"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.defaults import sums_each_microbatch, zero_stage
from fastflow.physics.parallelism.layer_memory import LayerMemory, kept_of_kernel, offload_of, owned_weights
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.pipeline_order import in_flight
from fastflow.physics.schedule.stage_order import in_flight as chunks_in_flight
from fastflow.physics.schedule.stage_order import waiting
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import REDUCE_SCATTER, UPDATE, Graph, max_by_point
from fastflow.physics.workload.precision import Precision


class Footprint(NamedTuple):
    """Bytes of one device of the pipeline stage that needs most, by kind; shape (points,)."""

    weights: Floats  # master copies included
    gradients: Floats
    optimizer: Floats
    activations: Floats  # kept from the forward to the backward pass, of all micro-batches in flight
    stage: Ints  # which stage that is
    buffers: Floats  # copies of weights and gradients of which it holds a part
    host: Floats  # what is offloaded, in the host's memory; not part of the total

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


class _Sizes(NamedTuple):
    """Bytes that a device has of an element; (points,)."""

    weight: Floats  # of every weight of its stage
    part: Floats  # of every weight in the device's part of them, beside that
    activation: Floats


class _Fullest(NamedTuple):
    """The stage of every point that needs most, and what its device stores; (points,) [elements]."""

    stage: Ints
    weights: Floats
    parts: Floats  # of them, where devices with the same weights have a part each
    activations: Floats
    recomputed: Floats  # what the largest layer keeps that is computed again, while it is
    offloaded: Floats  # activations that lie with the host


@kernel
def _fullest_stage(graph: Graph, shards: Supergraph, pipeline: _Stages, sizes: _Sizes, out: _Fullest) -> None:
    """Write the stages that need most, where each layer has its kernels."""
    points = graph.offset.size - 1
    most = 1
    for p in range(points):
        most = max(most, pipeline.stages[p])
    of_stage = np.empty((3, most))
    for p in range(points):
        stages = pipeline.stages[p]
        of_stage[:, :stages] = 0.0
        for row in range(graph.offset[p], graph.offset[p + 1]):
            stage, owned = pipeline.stage[row], owned_weights(graph, shards, row)
            of_stage[0, stage] += owned
            of_stage[2, stage] += np.ceil(owned / shards.owners[row])
            of_stage[1, stage] += kept_of_kernel(graph, shards, row, True)
        needed = -1.0
        for stage in range(stages):
            kept = of_stage[1, stage] * in_flight(pipeline.order[p], stages, stage, pipeline.microbatches[p])
            total = of_stage[0, stage] * sizes.weight[p] + of_stage[2, stage] * sizes.part[p]
            total += kept * sizes.activation[p]
            if total > needed:
                needed, out.stage[p] = total, stage
                out.weights[p], out.parts[p] = of_stage[0, stage], of_stage[2, stage]
                out.activations[p] = kept


@lean_kernel
def _two_largest(largest: tuple[float, float], value: float, count: int) -> tuple[float, float]:
    """Return the two largest of two values, the larger one first, and a value that is there so many times."""
    if count > 0 and value > largest[0]:
        return value, value if count > 1 else largest[0]
    if count > 0 and value > largest[1]:
        return largest[0], value
    return largest


class _Stored(NamedTuple):
    """What the device of one stage stores, as in `_Fullest` [elements]."""

    weights: float
    parts: float
    activations: float
    recomputed: float
    offloaded: float


@lean_kernel
def _store(
    layers: LayerMemory, pipeline: _Stages, chunks: Chunks, p: int, stage: int, border: float, offloads: bool
) -> _Stored:
    """Return what a stage of a point stores.

    border: what it receives, the largest of what layers read; offloads: whether activations of hidden layers
    lie with the host, of which the device has what two layers keep.
    """
    first, count, stages = layers.first[p], chunks.layers[p], pipeline.stages[p]
    per_stage = (chunks.offset[p + 1] - chunks.offset[p]) // stages
    weights, parts, kept, recomputed, movable = 0.0, 0.0, 0.0, 0.0, 0.0
    on_device = (0.0, 0.0)  # what the two largest hidden layers keep
    if stage + 1 == stages > 1:
        weights, parts = layers.copied[p], layers.copied_parts[p]
    for chunk in range(per_stage):
        virtual = chunk * stages + stage
        for layer in range(count):
            at, own = chunks.at[p] + virtual * count + layer, first + layer
            held, again = chunks.held[at], chunks.again[at]
            weights += held * layers.weights[own]
            parts += held * layers.parts[own]
            of_layer = (held - again) * layers.kept[own] + again * layers.border[own]
            kept += of_layer
            if again > 0:
                recomputed = max(recomputed, layers.whole[own])
            if layers.hidden[own]:
                movable += of_layer
                on_device = _two_largest(on_device, layers.border[own], again)
                on_device = _two_largest(on_device, layers.kept[own], held - again)
        # what a layer reads counts with the one that made it, but a stage keeps what it received
        if virtual == 0 and per_stage * stages > 1:
            kept -= border
        if virtual + 1 == per_stage * stages > 1:
            kept += border
    flying = chunks_in_flight(pipeline.order[p], stages, stage, per_stage, pipeline.microbatches[p])
    flying += waiting(pipeline.order[p], stages, stage, pipeline.microbatches[p])
    kept *= flying / per_stage
    offloaded = 0.0
    if offloads:
        offloaded = max(movable * flying / per_stage - on_device[0] - on_device[1], 0.0)
    return _Stored(weights, parts, kept - offloaded, recomputed, offloaded)


@kernel
def _fullest_chunked(
    layers: LayerMemory, pipeline: _Stages, chunks: Chunks, offloads: Bools, sizes: _Sizes, out: _Fullest
) -> None:
    """Write the stages that need most, where layers stand for several.

    offloads: whether activations lie with the host, (points,).
    """
    for p in range(offloads.size):
        most, border = -1.0, 0.0
        for layer in range(layers.first[p], layers.first[p + 1]):
            border = max(border, layers.border[layer])
        for stage in range(pipeline.stages[p]):
            here = _store(layers, pipeline, chunks, p, stage, border, offloads[p])
            needed = here.weights * sizes.weight[p] + here.parts * sizes.part[p]
            needed += here.activations * sizes.activation[p]
            if needed > most:
                most, out.stage[p] = needed, stage
                out.weights[p], out.parts[p] = here.weights, here.parts
                out.activations[p], out.offloaded[p] = here.activations, here.offloaded
                out.recomputed[p] = here.recomputed


def footprint(
    inputs: Inputs, graph: Graph, shards: Supergraph, pipeline: Pipeline, layers: LayerMemory | None,
    precision: Precision,
) -> Footprint:  # fmt: skip
    """Return what a device of the stage that needs most memory holds.

    Every weight has a gradient when training, also an embedding row that no token touched. Activations are
    those that the backward pass reads again, for all steps and for as many micro-batches as the schedule has
    in flight. By the stage of ZeRO (arXiv:1910.02054) devices with the same weights have a part each of
    optimizer state and masters (1), gradients (2), weights (3), or from the forward pass on whole ones again
    where it does not reshard.

    inputs: `model.training`, `parallel.zero`, `.reshard`, `.reduce`, `.offload`; layers: of points whose
    layers stand for several.
    """
    zero, offload = zero_stage(inputs), offload_of(inputs)
    gradient = np.where(inputs["model.training"], precision.gradient, 0.0)
    master, state = (np.where(offload.optimizer, 0.0, size) for size in (precision.master, precision.state))
    weight = precision.weight + precision.copies
    by_stage = (master + state, gradient, weight)
    whole, part = np.zeros((2, zero.size))
    # until the last micro-batch, a device has all gradients of its own where nothing sums them before
    dealt = (zero >= 2) & (sums_each_microbatch(inputs, pipeline.stages) | (not has_layer_runs(inputs)))
    sharded = [zero >= 1, dealt, (zero >= 3) & inputs["parallel.reshard"]]
    for is_part, size in zip(sharded, by_stage, strict=True):
        whole += np.where(is_part, 0.0, size)
        part += np.where(is_part, size, 0.0)
    kept = precision.activation
    fullest = _Fullest(np.zeros(zero.size, dtype=np.int64), *np.zeros((5, zero.size)))
    stages = _Stages(pipeline.stages, pipeline.microbatches, pipeline.order, pipeline.stage)
    if pipeline.chunks is None or layers is None:
        _fullest_stage(graph.numbers, shards.numbers, stages, _Sizes(whole, part, kept), fullest)
    else:
        kept = np.where(inputs["model.training"], kept, 0.0)  # of layers; else no backward pass reads them
        sizes = _Sizes(whole, part, kept)
        _fullest_chunked(layers, stages, pipeline.chunks, offload.activations, sizes, fullest)
    held = [np.where(is_part, fullest.parts, fullest.weights) for is_part in sharded]
    return Footprint(
        weights=held[2] * weight + held[0] * master,
        gradients=held[1] * gradient,
        optimizer=held[0] * state,
        activations=fullest.activations * kept,
        stage=fullest.stage,
        buffers=_buffers(graph, shards, zero) + fullest.recomputed * kept,
        host=held[0] * (precision.master - master + precision.state - state) + fullest.offloaded * kept,
    )


def _buffers(graph: Graph, shards: Supergraph, zero: Ints) -> Floats:
    """Return the bytes of the largest weights that are gathered, and of the largest gradient dealt out."""
    if not (zero > 1).any():
        return np.zeros(zero.size)
    of_kernel, dealt = zero[graph.point], shards.gradient.collective == REDUCE_SCATTER
    used = (of_kernel == 3) & (graph.phase != UPDATE)
    gathered = np.where(used, shards.fetch.bytes * graph.repeat, 0.0)
    made = np.where((of_kernel > 1) & dealt, shards.gradient.bytes, 0.0)
    return max_by_point(graph, gathered) + max_by_point(graph, made)
