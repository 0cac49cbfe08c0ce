"""Memory that one device needs: weights, gradients, optimizer state, activations, and its process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.defaults import frees_weights, sums_each_microbatch, zero_stage
from fastflow.physics.parallelism.memory.buffers import Buffers, zero_buffers
from fastflow.physics.parallelism.memory.gradients import gradient_buffers
from fastflow.physics.parallelism.memory.layers import (
    LayerMemory,
    conversion_buffer,
    kept_activations,
    owned_states,
    owned_weights,
)
from fastflow.physics.parallelism.memory.process import Process, process_of
from fastflow.physics.parallelism.offload import offload_of
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.local_graph import LocalKernels, Supergraph
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.stage_order import in_flight, virtual_stage
from fastflow.physics.schedule.stage_programs import most_kept
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import BASE_BYTES, TRAINED, Graph
from fastflow.physics.workload.optimizers import StateNumbers, state_numbers
from fastflow.physics.workload.precision import Precision

ZERO_INIT = "parallel.zero_init"


class Footprint(NamedTuple):
    """Bytes of one device of the pipeline stage that needs most, by kind; shape (points,)."""

    weights: Floats  # master copies included
    gradients: Floats
    optimizer: Floats
    activations: Floats  # kept from the forward to the backward pass, of all micro-batches in flight
    stage: Ints  # which stage that is
    buffer_parts: Buffers
    host: Floats  # offloaded tensors, in the host's memory; not part of the total
    process: Process  # what the process occupies beside these
    unsharded: Floats  # the stage's weights before ZeRO shards them, where a program has them first

    @property
    def buffers(self) -> Floats:
        """What a device has during some kernels alone, all of it at once [B]."""
        return self.buffer_parts.total

    @property
    def allocated(self) -> Floats:
        """Tensors at the peak, and the workspaces of libraries [B]."""
        tensors = self.weights + self.gradients + self.optimizer + self.activations + self.buffers
        return tensors + self.process.workspace

    @property
    def fragments(self) -> Floats:
        """What the allocator holds beside: pieces between tensors, and memory of unsharded weights [B].

        Tensors of an iteration take the place of the unsharded weights.
        """
        kept: Floats = np.maximum(
            self.process.fragmentation * self.allocated, self.unsharded - self.allocated
        )
        return kept

    @property
    def reserved(self) -> Floats:
        """All that the allocator holds [B]."""
        return self.allocated + self.fragments

    @property
    def total(self) -> Floats:
        """All of it [B]."""
        return self.reserved + self.process.context + self.process.communicators


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
    state: Floats  # of every number of optimizer state of its stage
    shard_state: Floats  # of every such number in the device's shard, in addition
    activation: Floats


class _Fullest(NamedTuple):
    """The stage of every point with the largest memory, and its device's tensors; (points,) [elements]."""

    stage: Ints
    weights: Floats
    sharded_weights: Floats  # of them, where devices with the same weights shard them
    states: Floats  # numbers of optimizer state
    sharded_states: Floats
    frozen: Floats  # weights without gradient and optimizer state
    activations: Floats
    recomputed: Floats  # activations of the largest recomputed layer, or of one kernel, during it
    offloaded: Floats  # activations in the host's memory


@kernel
def _fullest_stage(
    graph: Graph, local: LocalKernels, pipeline: _Stages, sizes: _Sizes, states: StateNumbers, out: _Fullest
) -> None:
    """Write the stages with the largest memory, of graphs with all layers."""
    points = graph.offset.size - 1
    max_stages = 1
    for p in range(points):
        max_stages = max(max_stages, pipeline.stages[p])
    stage_sums = np.empty((5, max_stages))
    for p in range(points):
        stages = pipeline.stages[p]
        stage_sums[:, :stages] = 0.0
        for row in range(graph.offset[p], graph.offset[p + 1]):
            stage, weights = pipeline.stage[row], owned_weights(graph, local, row, TRAINED)
            stage_sums[0, stage] += weights
            sharded = np.ceil(weights / local.owners[row])
            stage_sums[2, stage] += sharded
            stage_sums[3, stage] += owned_states(graph, local, row, weights, states)
            stage_sums[4, stage] += owned_states(graph, local, row, sharded, states)
            stage_sums[1, stage] += kept_activations(graph, local, row)
        peak = -1.0
        for stage in range(stages):
            num_in_flight = in_flight(pipeline.order[p], stages, stage, 1, pipeline.microbatches[p])
            activations = stage_sums[1, stage] * num_in_flight
            total = stage_sums[0, stage] * sizes.weight[p] + stage_sums[2, stage] * sizes.shard[p]
            total += stage_sums[3, stage] * sizes.state[p] + stage_sums[4, stage] * sizes.shard_state[p]
            total += activations * sizes.activation[p]
            if total > peak:
                peak, out.stage[p] = total, stage
                out.weights[p], out.sharded_weights[p] = stage_sums[0, stage], stage_sums[2, stage]
                out.states[p], out.sharded_states[p] = stage_sums[3, stage], stage_sums[4, stage]
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
    states: float
    sharded_states: float
    frozen: float
    activations: float
    recomputed: float
    transient: float  # activations that a device has during one kernel alone
    offloaded: float


@lean_kernel
def _stage_memory(
    layers: LayerMemory, pipeline: _Stages, chunks: Chunks, p: int, stage: int, offloads: bool
) -> _StageMemory:
    """Return the memory of a stage of a point.

    offloads: whether activations of hidden layers are offloaded, of which the device keeps those of two
    layers.
    """
    first, num_layers, stages, order = (
        layers.first[p],
        chunks.layers[p],
        pipeline.stages[p],
        pipeline.order[p],
    )
    per_stage = (chunks.offset[p + 1] - chunks.offset[p]) // stages
    weights, sharded_weights, activations, recomputed, offloadable = 0.0, 0.0, 0.0, 0.0, 0.0
    frozen, states, sharded_states, transient = 0.0, 0.0, 0.0, 0.0
    on_device = (0.0, 0.0)  # activations of the two largest hidden layers
    if stage + 1 == stages > 1:
        weights, sharded_weights = layers.copied_weights[p], layers.copied_sharded_weights[p]
        states, sharded_states = layers.copied_states[p], layers.copied_sharded_states[p]
    for chunk in range(per_stage):
        virtual = virtual_stage(order, stages, stage, chunk)
        for layer in range(num_layers):
            entry, index = chunks.first_count[p] + virtual * num_layers + layer, first + layer
            count, recompute = chunks.layer_counts[entry], chunks.recompute_counts[entry]
            weights += count * layers.weights[index]
            sharded_weights += count * layers.sharded_weights[index]
            states += count * layers.states[index]
            sharded_states += count * layers.sharded_states[index]
            frozen += count * layers.frozen[index]
            layer_sum = (count - recompute) * layers.activations[index] + recompute * layers.checkpoint[index]
            activations += layer_sum
            if count > 0:
                transient = max(transient, layers.transient[index])
            if count > recompute:
                recomputed = max(recomputed, layers.recomputed_activations[index])
            if recompute > 0:
                recomputed = max(recomputed, layers.activations_without_recompute[index])
            if layers.hidden[index]:
                offloadable += layer_sum
                on_device = _two_largest(on_device, layers.checkpoint[index], recompute)
                on_device = _two_largest(on_device, layers.activations[index], count - recompute)
        # a layer's input counts with its producer, but a stage keeps what it received, and not what it made
        # for the next
        at = chunks.offset[p] + virtual
        if virtual > 0 and chunks.stage[at - 1] != stage:
            activations += layers.sent[first + chunks.last_layer[at - 1]]
        if virtual + 1 < per_stage * stages and chunks.stage[at + 1] != stage:
            activations -= layers.output[first + chunks.last_layer[at]]
    kept_chunks = most_kept(order, stages, stage, per_stage, pipeline.microbatches[p])
    activations *= kept_chunks / per_stage
    offloaded = 0.0
    if offloads:
        offloaded = max(offloadable * kept_chunks / per_stage - on_device[0] - on_device[1], 0.0)
    activations -= offloaded
    return _StageMemory(
        weights, sharded_weights, states, sharded_states, frozen, activations, recomputed, transient,
        offloaded,
    )  # fmt: skip


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
            needed += memory.states * sizes.state[p] + memory.sharded_states * sizes.shard_state[p]
            needed += memory.activations * sizes.activation[p] + memory.frozen * sizes.frozen[p]
            needed += memory.transient * sizes.activation[p]
            if needed > peak:
                peak, out.stage[p] = needed, stage
                out.weights[p], out.sharded_weights[p] = memory.weights, memory.sharded_weights
                out.states[p], out.sharded_states[p] = memory.states, memory.sharded_states
                out.activations[p], out.offloaded[p] = memory.activations, memory.offloaded
                out.recomputed[p] = max(memory.recomputed, memory.transient)
                out.frozen[p] = memory.frozen


def footprint(
    inputs: Inputs, graph: Graph, shards: Supergraph, pipeline: Pipeline, layers: LayerMemory | None,
    precision: Precision, communicators: Ints,
) -> Footprint:  # fmt: skip
    """Return the memory of a device of the stage that needs most.

    Every weight has a gradient when training, also an embedding row that no token touched. Activations are
    those that the backward pass reads, for all steps and for as many micro-batches as the schedule has
    in flight. By the stage of ZeRO (arXiv:1910.02054) devices with the same weights shard optimizer state and
    masters (1), gradients (2), weights (3), but keep weights gathered from the forward pass on where they do
    not reshard.

    inputs: `model.training`, `parallel.zero_stage`, `.reshard`, `.reduce`, `.offload`, `.zero_init`; layers:
    of points with layer runs; communicators: of a device, (points,).
    """
    zero, offload = zero_stage(inputs), offload_of(inputs)
    gradient = np.where(inputs["model.training"], precision.gradient, 0.0)
    master, state = (np.where(offload.optimizer, 0.0, size) for size in (precision.master, precision.state))
    trained = precision.weight + precision.copies
    offloaded_gradient = np.where(offload.weights, gradient, 0.0)
    weight, gradient = np.where(offload.weights, 0.0, trained), gradient - offloaded_gradient
    element_bytes = (master, gradient, weight)
    full_bytes, shard_bytes = np.zeros((2, zero.size))
    # until the last micro-batch, a device has all of its gradients where nothing reduces them before
    shards_grad = (zero >= 2) & (sums_each_microbatch(inputs, pipeline.stages) | (not has_layer_runs(inputs)))
    sharded = [zero >= 1, shards_grad, frees_weights(inputs)]
    for is_sharded, size in zip(sharded, element_bytes, strict=True):
        full_bytes += np.where(is_sharded, 0.0, size)
        shard_bytes += np.where(is_sharded, size, 0.0)
    activation_size = precision.activation
    of_states = np.where(sharded[0], 0.0, state), np.where(sharded[0], state, 0.0)
    fullest = _Fullest(np.zeros(zero.size, dtype=np.int64), *np.zeros((8, zero.size)))
    stages = _Stages(pipeline.stages, pipeline.microbatches, pipeline.order, pipeline.stage)
    if pipeline.chunks is None or layers is None:
        sizes = _Sizes(full_bytes, precision.weight, shard_bytes, *of_states, activation_size)
        numbers = state_numbers(precision.optimizer)
        _fullest_stage(graph.numbers, shards.kernels, stages, sizes, numbers, fullest)
    else:
        # without training no backward pass reads the layers' activations
        activation_size = np.where(inputs["model.training"], activation_size, 0.0)
        sizes = _Sizes(full_bytes, precision.weight, shard_bytes, *of_states, activation_size)
        _fullest_chunked(layers, stages, pipeline.chunks, offload.activations, sizes, fullest)
    gathered, scattered = zero_buffers(inputs, graph, shards, fullest.weights, precision)
    has_base = BASE_BYTES in graph.attributes
    buffers = Buffers(
        gathered=gathered,
        scattered=scattered,
        gradients=gradient_buffers(inputs, graph, shards.kernels, pipeline, precision, zero),
        recomputed=fullest.recomputed * activation_size,
        converted=conversion_buffer(graph, shards.kernels, precision) if has_base else np.zeros(zero.size),
    )
    elements = [np.where(is_sharded, fullest.sharded_weights, fullest.weights) for is_sharded in sharded]
    states = np.where(sharded[0], fullest.sharded_states, fullest.states)
    return Footprint(
        weights=elements[2] * weight + elements[0] * master + fullest.frozen * precision.weight,
        gradients=elements[1] * gradient,
        optimizer=states * state,
        activations=fullest.activations * activation_size,
        stage=fullest.stage,
        buffer_parts=buffers,
        host=elements[0] * (precision.master - master)
        + states * (precision.state - state)
        + elements[2] * (trained - weight)
        + elements[1] * offloaded_gradient
        + fullest.offloaded * activation_size,
        process=process_of(inputs, communicators),
        unsharded=np.where(inputs[ZERO_INIT], 0.0, (fullest.weights + fullest.frozen) * precision.weight),
    )
