"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.defaults import sums_each_microbatch, zero_stage
from fastflow.physics.parallelism.memory.layers import (
    LayerMemory,
    conversion_buffer,
    kept_activations,
    offload_of,
    owned_weights,
)
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.local_graph import LocalKernels, Supergraph
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.stage_order import in_flight, waiting
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import BASE_BYTES, REDUCE_SCATTER, TRAINED, UPDATE, Graph, max_by_point
from fastflow.physics.workload.precision import Precision


class Footprint(NamedTuple):
    """Bytes of one device of the pipeline stage that needs most, by kind; shape (points,)."""

    weights: Floats  # master copies included
    gradients: Floats
    optimizer: Floats
    activations: Floats  # kept from the forward to the backward pass, of all micro-batches in flight
    stage: Ints  # which stage that is
    buffers: Floats  # full copies of sharded weights and gradients
    host: Floats  # offloaded tensors, in the host's memory; not part of the total

    @property
    def total(self) -> Floats:
        """All of it [B]."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


class _Stages(NamedTuple):
    """The columns of a `Pipeline` that kernels take."""

    stages: Ints
    microbatches: Ints
    order: Ints
    stage: Ints


class _Sizes(NamedTuple):
    """Bytes that a device has of an element; (points,)."""

    weight: Floats  # of every trained weight of its stage
    frozen: Floats  # of every frozen weight of its stage
    shard: Floats  # of every weight in the device's shard of them, in addition
    activation: Floats


class _Fullest(NamedTuple):
    """The stage of every point with the largest memory, and its device's tensors; (points,) [elements]."""

    stage: Ints
    weights: Floats
    sharded_weights: Floats  # of them, where devices with the same weights shard them
    frozen: Floats  # weights without gradient and optimizer state
    activations: Floats
    recomputed: Floats  # activations of the largest recomputed layer, during recomputation
    offloaded: Floats  # activations in the host's memory


@kernel
def _fullest_stage(
    graph: Graph, local: LocalKernels, pipeline: _Stages, sizes: _Sizes, out: _Fullest
) -> None:
    """Write the stages with the largest memory, of graphs with all layers."""
    points = graph.offset.size - 1
    max_stages = 1
    for p in range(points):
        max_stages = max(max_stages, pipeline.stages[p])
    stage_sums = np.empty((3, max_stages))
    for p in range(points):
        stages = pipeline.stages[p]
        stage_sums[:, :stages] = 0.0
        for row in range(graph.offset[p], graph.offset[p + 1]):
            stage, weights = pipeline.stage[row], owned_weights(graph, local, row, TRAINED)
            stage_sums[0, stage] += weights
            stage_sums[2, stage] += np.ceil(weights / local.owners[row])
            stage_sums[1, stage] += kept_activations(graph, local, row, True)
        peak = -1.0
        for stage in range(stages):
            num_in_flight = in_flight(pipeline.order[p], stages, stage, 1, pipeline.microbatches[p])
            activations = stage_sums[1, stage] * num_in_flight
            total = stage_sums[0, stage] * sizes.weight[p] + stage_sums[2, stage] * sizes.shard[p]
            total += activations * sizes.activation[p]
            if total > peak:
                peak, out.stage[p] = total, stage
                out.weights[p], out.sharded_weights[p] = stage_sums[0, stage], stage_sums[2, stage]
                out.activations[p] = activations


@lean_kernel
def _two_largest(largest: tuple[float, float], value: float, count: int) -> tuple[float, float]:
    """Return the two largest values, the larger first, of two values and `count` copies of another."""
    if count > 0 and value > largest[0]:
        return value, value if count > 1 else largest[0]
    if count > 0 and value > largest[1]:
        return largest[0], value
    return largest


class _StageMemory(NamedTuple):
    """Memory of the device of one stage, as in `_Fullest` [elements]."""

    weights: float
    sharded_weights: float
    frozen: float
    activations: float
    recomputed: float
    offloaded: float


@lean_kernel
def _stage_memory(
    layers: LayerMemory, pipeline: _Stages, chunks: Chunks, p: int, stage: int, offloads: bool
) -> _StageMemory:
    """Return the memory of a stage of a point.

    offloads: whether activations of hidden layers are offloaded, of which the device keeps those of two
    layers.
    """
    first, num_layers, stages = layers.first[p], chunks.layers[p], pipeline.stages[p]
    per_stage = (chunks.offset[p + 1] - chunks.offset[p]) // stages
    weights, sharded_weights, activations, recomputed, offloadable = 0.0, 0.0, 0.0, 0.0, 0.0
    frozen = 0.0
    on_device = (0.0, 0.0)  # activations of the two largest hidden layers
    if stage + 1 == stages > 1:
        weights, sharded_weights = layers.copied_weights[p], layers.copied_sharded_weights[p]
    for chunk in range(per_stage):
        virtual = chunk * stages + stage
        for layer in range(num_layers):
            entry, index = chunks.first_count[p] + virtual * num_layers + layer, first + layer
            count, recompute = chunks.layer_counts[entry], chunks.recompute_counts[entry]
            weights += count * layers.weights[index]
            sharded_weights += count * layers.sharded_weights[index]
            frozen += count * layers.frozen[index]
            layer_sum = (count - recompute) * layers.activations[index] + recompute * layers.checkpoint[index]
            activations += layer_sum
            if recompute > 0:
                recomputed = max(recomputed, layers.activations_without_recompute[index])
            if layers.hidden[index]:
                offloadable += layer_sum
                on_device = _two_largest(on_device, layers.checkpoint[index], recompute)
                on_device = _two_largest(on_device, layers.activations[index], count - recompute)
        # a layer's input counts with its producer, but a stage keeps what it received, and not what it made
        # for the next
        at = chunks.offset[p] + virtual
        if virtual > 0:
            activations += layers.sent[first + chunks.last_layer[at - 1]]
        if virtual + 1 < per_stage * stages:
            activations -= layers.output[first + chunks.last_layer[at]]
    in_flight_chunks = in_flight(pipeline.order[p], stages, stage, per_stage, pipeline.microbatches[p])
    in_flight_chunks += waiting(pipeline.order[p], stages, stage, pipeline.microbatches[p])
    activations *= in_flight_chunks / per_stage
    offloaded = 0.0
    if offloads:
        offloaded = max(offloadable * in_flight_chunks / per_stage - on_device[0] - on_device[1], 0.0)
    return _StageMemory(weights, sharded_weights, frozen, activations - offloaded, recomputed, offloaded)


@kernel
def _fullest_chunked(
    layers: LayerMemory, pipeline: _Stages, chunks: Chunks, offloads: Bools, sizes: _Sizes, out: _Fullest
) -> None:
    """Write the stages with the largest memory, of graphs with layer runs.

    offloads: whether activations are offloaded, (points,).
    """
    for p in range(offloads.size):
        peak = -1.0
        for stage in range(pipeline.stages[p]):
            memory = _stage_memory(layers, pipeline, chunks, p, stage, offloads[p])
            needed = memory.weights * sizes.weight[p] + memory.sharded_weights * sizes.shard[p]
            needed += memory.activations * sizes.activation[p] + memory.frozen * sizes.frozen[p]
            if needed > peak:
                peak, out.stage[p] = needed, stage
                out.weights[p], out.sharded_weights[p] = memory.weights, memory.sharded_weights
                out.activations[p], out.offloaded[p] = memory.activations, memory.offloaded
                out.recomputed[p], out.frozen[p] = memory.recomputed, memory.frozen


def footprint(
    inputs: Inputs, graph: Graph, shards: Supergraph, pipeline: Pipeline, layers: LayerMemory | None,
    precision: Precision,
) -> Footprint:  # fmt: skip
    """Return the memory of a device of the stage that needs most.

    Every weight has a gradient when training, also an embedding row that no token touched. Activations are
    those that the backward pass reads, for all steps and for as many micro-batches as the schedule has
    in flight. By the stage of ZeRO (arXiv:1910.02054) devices with the same weights shard optimizer state and
    masters (1), gradients (2), weights (3), but keep weights gathered from the forward pass on where they do
    not reshard.

    inputs: `model.training`, `parallel.zero_stage`, `.reshard`, `.reduce`, `.offload`; layers: of points with
    layer runs.
    """
    zero, offload = zero_stage(inputs), offload_of(inputs)
    gradient = np.where(inputs["model.training"], precision.gradient, 0.0)
    master, state = (np.where(offload.optimizer, 0.0, size) for size in (precision.master, precision.state))
    weight = precision.weight + precision.copies
    element_bytes = (master + state, gradient, weight)
    full_bytes, shard_bytes = np.zeros((2, zero.size))
    # until the last micro-batch, a device has all of its gradients where nothing reduces them before
    shards_grad = (zero >= 2) & (sums_each_microbatch(inputs, pipeline.stages) | (not has_layer_runs(inputs)))
    sharded = [zero >= 1, shards_grad, (zero >= 3) & inputs["parallel.reshard_after_forward"]]
    for is_sharded, size in zip(sharded, element_bytes, strict=True):
        full_bytes += np.where(is_sharded, 0.0, size)
        shard_bytes += np.where(is_sharded, size, 0.0)
    activation_size = precision.activation
    fullest = _Fullest(np.zeros(zero.size, dtype=np.int64), *np.zeros((6, zero.size)))
    stages = _Stages(pipeline.stages, pipeline.microbatches, pipeline.order, pipeline.stage)
    if pipeline.chunks is None or layers is None:
        sizes = _Sizes(full_bytes, precision.weight, shard_bytes, activation_size)
        _fullest_stage(graph.numbers, shards.kernels, stages, sizes, fullest)
    else:
        # without training no backward pass reads the layers' activations
        activation_size = np.where(inputs["model.training"], activation_size, 0.0)
        sizes = _Sizes(full_bytes, precision.weight, shard_bytes, activation_size)
        _fullest_chunked(layers, stages, pipeline.chunks, offload.activations, sizes, fullest)
    buffers = _buffers(graph, shards, zero) + fullest.recomputed * activation_size
    if BASE_BYTES in graph.attributes:
        buffers += conversion_buffer(graph, shards.kernels, precision)
    elements = [np.where(is_sharded, fullest.sharded_weights, fullest.weights) for is_sharded in sharded]
    return Footprint(
        weights=elements[2] * weight + elements[0] * master + fullest.frozen * precision.weight,
        gradients=elements[1] * gradient,
        optimizer=elements[0] * state,
        activations=fullest.activations * activation_size,
        stage=fullest.stage,
        buffers=buffers,
        host=elements[0] * (precision.master - master + precision.state - state)
        + fullest.offloaded * activation_size,
    )


def _buffers(graph: Graph, shards: Supergraph, zero: Ints) -> Floats:
    """Return the bytes of the largest gathered weights, and of the largest gradient to be scattered."""
    if not (zero > 1).any():
        return np.zeros(zero.size)
    kernel_zero, is_scattered = zero[graph.point], shards.gradient.collective == REDUCE_SCATTER
    is_gathered = (kernel_zero == 3) & (graph.phase != UPDATE)
    gathered = np.where(is_gathered, shards.fetch.bytes * graph.launches.repeat, 0.0)
    scattered = np.where((kernel_zero > 1) & is_scattered, shards.gradient.bytes, 0.0)
    return max_by_point(graph, gathered) + max_by_point(graph, scattered)
