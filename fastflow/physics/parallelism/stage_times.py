"""The blocks of a pipeline of layer runs: times of its virtual stages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.memory.layers import LayerMemory
from fastflow.physics.parallelism.offload import Offload
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.layer_times import MODULES, ONCE, RECOMPUTED, WEIGHTS, LayerTimes
from fastflow.physics.schedule.stage_blocks import BlockPlan, Blocks, BlockTimes, schedule_blocks
from fastflow.physics.schedule.stage_order import splits_backward
from fastflow.physics.schedule.timeline import Timeline
from fastflow.physics.workload.graph import BACKWARD, EMBEDDING, FORWARD, HIDDEN, UPDATE, Graph
from fastflow.physics.workload.precision import Precision


class PipelineBlocks(NamedTuple):
    """Schedules of pipelines in blocks."""

    blocks: Blocks
    plan: BlockPlan
    times: BlockTimes  # (points,)
    update: Floats  # of the stage that takes longest [s], (points,)
    stage: Ints  # the busiest stage, with most work for a micro-batch, (points,)
    idle: Floats  # how long it waits for the update of another stage [s], (points,)
    waits: Floats  # of that stage in an iteration, by layer_times.WAITS [s], (waits, points)
    offload: Floats  # its delay by offloading [s], (points,)
    host: Floats  # its delay by the host that launches kernels [s], (points,)

    @property
    def timeline(self) -> Timeline:
        """The phases of every point."""
        times = self.times
        exposed = (
            self.waits.sum(axis=0)
            + self.offload
            + self.host
            + np.maximum(times.total - times.bubble - times.busiest, 0.0)
        )
        bubble = times.bubble + self.idle
        backward = times.total - times.backward_start
        return Timeline(times.backward_start, backward, self.update, exposed, bubble)


class HostTransfers(NamedTuple):
    """Transfer time of a layer's offloaded tensors, in one direction; (layers of all points,) [s]."""

    optimizer: Floats  # states, once an iteration; where the host updates, that and what it sends back
    activations: Floats  # for the backward pass, of one micro-batch
    checkpoint: Floats  # the same of a recomputed layer
    weights: Floats  # for a pass of one micro-batch
    gradients: Floats  # after the backward pass of one micro-batch


def host_transfers(memory: LayerMemory, offload: Offload, precision: Precision, zero: Ints) -> HostTransfers:
    """Return the transfer times of layers; offload, zero (its stage), precision: (points,).

    An update on the host takes as long as its slowest part: the host's memory, the link, or the drives.
    """
    point = np.repeat(np.arange(zero.size), np.diff(memory.first))
    shards = zero[point] > 0
    weights = np.where(shards, memory.sharded_weights, memory.weights)
    numbers = np.where(shards, memory.sharded_states, memory.states) / np.maximum(weights, 1.0)
    link = np.minimum(offload.bandwidth, offload.nvme)
    state = precision.master[point] + precision.state[point] * numbers
    exchanged = np.maximum(precision.gradient, precision.weight)  # gradients one way, weights the other
    moved = np.where(offload.weights, exchanged, 0.0)[point]
    optimizer_s = np.where(offload.optimizer[point], state + moved, 0.0) / link[point]
    if offload.updates.any():
        moved = np.where(offload.weights, 0.0, exchanged)
        on_host = np.maximum(precision.update_traffic() / offload.host_memory, moved / offload.bandwidth)
        on_host = np.maximum(on_host[point], state / offload.nvme[point])
        optimizer_s = np.where(offload.updates[point], on_host, optimizer_s)
    activation_s = np.where(offload.activations, precision.activation, 0.0) / offload.bandwidth
    weight_s = np.where(offload.weights, precision.weight, 0.0) / link
    gradient_s = np.where(offload.weights, precision.gradient, 0.0) / link
    return HostTransfers(
        optimizer_s * weights,
        activation_s[point] * memory.activations,
        activation_s[point] * memory.checkpoint,
        weight_s[point] * memory.sharded_weights,
        gradient_s[point] * memory.sharded_weights,
    )


class BlockSources(NamedTuple):
    """Inputs of the blocks of all points."""

    chunks: Chunks
    layers: LayerTimes
    plan: BlockPlan
    transfers: HostTransfers
    send_s: Floats  # of a kernel's output, to the next stage, of one layer [s], (kernels,)
    reduce_s: Floats  # of its weight gradients, once an iteration, of one layer [s], (kernels,)
    copies: Bools  # whether the last of several stages has a copy of the first layer's weights, (points,)
    launch_s: Floats  # the host's time for a launch, 0 where it never delays the device [s], (points,)


def schedule_pipeline_blocks(graph: Graph, sources: BlockSources) -> PipelineBlocks:
    """Return the iteration of every point."""
    virtual = int(sources.chunks.offset[-1])
    blocks = Blocks(
        offset=sources.chunks.offset,
        forward_s=np.zeros(virtual),
        input_s=np.zeros(virtual),
        weight_s=np.zeros(virtual),
        send_s=np.zeros(virtual),
        reduce_s=np.zeros(virtual),
        layers=np.ones(virtual, dtype=np.int64),
        gather_s=np.zeros(virtual),
        tail_s=np.zeros(virtual),
    )
    busiest = _busiest_stages(sources, _write_blocks(graph.numbers, sources, blocks))
    times = schedule_blocks(blocks, sources.plan)
    return PipelineBlocks(blocks, sources.plan, times, *busiest)


class _LayerSums(NamedTuple):
    """Sums over the kernels of each layer of one point; (layers,)."""

    send_s: Floats
    reduce_s: Floats
    hidden: Bools
    embedding: Bools  # whose gradients are ready last


class _Stages(NamedTuple):
    """Times of stages outside of their blocks [s]; those of point p begin where its virtual stages do."""

    work: Floats  # of one micro-batch
    offload_delay: Floats  # by transfers of activations, in an iteration
    host_delay: Floats  # by the host, which launches kernels one after the other, in an iteration
    update: Floats
    optimizer_transfer: Floats  # of offloaded optimizer states


@kernel
def _sum_kernels(graph: Graph, sources: BlockSources, p: int) -> _LayerSums:
    """Return the sums of a point's kernels by layer."""
    layers = sources.chunks.layers[p]
    out = _LayerSums(
        send_s=np.zeros(layers),
        reduce_s=np.zeros(layers),
        hidden=np.zeros(layers, dtype=np.bool_),
        embedding=np.zeros(layers, dtype=np.bool_),
    )
    for row in range(graph.offset[p], graph.offset[p + 1]):
        layer = graph.layer.number[row]
        out.reduce_s[layer] += sources.reduce_s[row]
        out.hidden[layer] |= graph.layer.kind[row] == HIDDEN
        out.embedding[layer] |= graph.layer.kind[row] == EMBEDDING
        if graph.comm.sent_cols[row] > 0 and graph.phase[row] == FORWARD:
            out.send_s[layer] = sources.send_s[row]
    return out


@lean_kernel
def _write_block(
    sources: BlockSources, layer_sums: _LayerSums, p: int, v: int, blocks: Blocks, stages: _Stages
) -> tuple[float, float]:
    """Write the block of a virtual stage of a point, and add to the other times of its stage.

    Returns its delay by tensors that move to the host and back, and by the host's launches [s].
    """
    chunks, layers, transfers = sources.chunks, sources.layers, sources.transfers
    j, num_layers, transfer_s, hidden = v - chunks.offset[p], chunks.layers[p], 0.0, 0
    weights_s, gradients_s, forward_launches, backward_launches = 0.0, 0.0, 0.0, 0.0
    stage, begin = chunks.offset[p] + chunks.stage[v], chunks.first_count[p] + j * num_layers
    for layer in range(num_layers):
        count, recompute = chunks.layer_counts[begin + layer], chunks.recompute_counts[begin + layer]
        index = layers.first[p] + layer
        # weights are gathered once for recomputation and the backward pass, in the latter
        recompute_s = layers.forward[index] - layers.waits[FORWARD, WEIGHTS, index]
        if layers.once[index] > 0.0:
            recompute_s -= layers.once[index] - layers.waits[ONCE, WEIGHTS, index]
        blocks.forward_s[v] += count * layers.forward[index]
        blocks.input_s[v] += count * layers.backward[index] + recompute * recompute_s
        blocks.input_s[v] += (count - recompute) * layers.recomputed[index]
        blocks.weight_s[v] += count * layers.weight[index]
        forward_launches += count * layers.launches[FORWARD, index]
        backward_launches += count * layers.launches[BACKWARD, index]
        backward_launches += recompute * layers.launches[FORWARD, index]
        backward_launches += (count - recompute) * layers.launches[MODULES, index]
        if layer_sums.embedding[layer]:
            blocks.tail_s[v] += count * layer_sums.reduce_s[layer]
        else:
            blocks.reduce_s[v] += count * layer_sums.reduce_s[layer]
        blocks.gather_s[v] += count * layers.gather[index]
        stages.update[stage] += count * layers.update[index]
        stages.optimizer_transfer[stage] += count * transfers.optimizer[index]
        weights_s += count * transfers.weights[index]
        gradients_s += count * transfers.gradients[index]
        if layer_sums.hidden[layer]:
            transfer_s += (count - recompute) * transfers.activations[
                index
            ] + recompute * transfers.checkpoint[index]
            hidden += count
    blocks.layers[v] = max(hidden, 1)
    blocks.send_s[v] = layer_sums.send_s[chunks.last_layer[v]]
    # the host runs ahead of the device, until a whole block takes it longer than the device
    forward_host = max(0.0, forward_launches * sources.launch_s[p] - blocks.forward_s[v])
    backward_s = blocks.input_s[v] + blocks.weight_s[v]
    backward_host = max(0.0, backward_launches * sources.launch_s[p] - backward_s)
    blocks.forward_s[v] += forward_host
    blocks.input_s[v] += backward_host
    # activations to the host during the forward block, and back during the backward block; weights to the
    # device during both, and gradients to the host
    forward_delay = max(0.0, max(transfer_s, weights_s) - blocks.forward_s[v])
    blocks.forward_s[v] += forward_delay
    transfer_s = max(transfer_s + weights_s, gradients_s)
    backward_delay = max(0.0, transfer_s - blocks.input_s[v] - blocks.weight_s[v])
    blocks.input_s[v] += backward_delay
    return float(forward_delay + backward_delay), float(forward_host + backward_host)


@kernel
def _write_blocks(graph: Graph, sources: BlockSources, blocks: Blocks) -> _Stages:
    """Write the blocks of every virtual stage, and return the other times of its stage."""
    chunks, plan = sources.chunks, sources.plan
    virtual = blocks.forward_s.size
    work, offload_delay, host_delay, update, transfer = np.zeros((5, virtual))
    stages = _Stages(work, offload_delay, host_delay, update, transfer)
    for p in range(chunks.layers.size):
        layer_sums = _sum_kernels(graph, sources, p)
        for v in range(chunks.offset[p], chunks.offset[p + 1]):
            stage = chunks.offset[p] + chunks.stage[v]
            offload_s, host_s = _write_block(sources, layer_sums, p, v, blocks, stages)
            stages.offload_delay[stage] += plan.microbatches[p] * offload_s
            stages.host_delay[stage] += plan.microbatches[p] * host_s
            stages.work[stage] += blocks.forward_s[v] + blocks.input_s[v] + blocks.weight_s[v]
            if not splits_backward(plan.order[p]):
                blocks.input_s[v] += blocks.weight_s[v]
                blocks.weight_s[v] = 0.0
        if sources.copies[p] and plan.stages[p] > 1:
            last, first = chunks.offset[p + 1] - 1, sources.layers.first[p]
            stage = chunks.offset[p] + plan.stages[p] - 1
            blocks.reduce_s[last] += layer_sums.reduce_s[0]
            blocks.gather_s[last] += sources.layers.gather[first]
            stages.update[stage] += sources.layers.update[first]
            stages.optimizer_transfer[stage] += sources.transfers.optimizer[first]
    return stages


class _Busiest(NamedTuple):
    """The busiest stage of every point; (points,), as in `PipelineBlocks`."""

    update: Floats
    stage: Ints
    idle: Floats
    waits: Floats
    offload: Floats
    host: Floats


@kernel
def _busiest_stages(sources: BlockSources, stages: _Stages) -> _Busiest:
    """Return the busiest stage of every point, and its exposed communication."""
    chunks, layers, plan = sources.chunks, sources.layers, sources.plan
    points, kinds = plan.stages.size, layers.waits.shape[1]
    out = _Busiest(
        update=np.zeros(points),
        stage=np.zeros(points, dtype=np.int64),
        idle=np.zeros(points),
        waits=np.zeros((kinds, points)),
        offload=np.zeros(points),
        host=np.zeros(points),
    )
    for p in range(points):
        begin, virtual = chunks.offset[p], chunks.offset[p + 1] - chunks.offset[p]
        max_work = -1.0
        for stage in range(plan.stages[p]):
            row = begin + stage
            out.update[p] = max(out.update[p], stages.update[row], stages.optimizer_transfer[row])
            if stages.work[row] > max_work:
                max_work, out.stage[p] = stages.work[row], stage
        busiest = begin + out.stage[p]
        update, transfer = stages.update[busiest], stages.optimizer_transfer[busiest]
        out.idle[p] = out.update[p] - max(update, transfer)
        out.host[p] = stages.host_delay[busiest]
        out.offload[p] = stages.offload_delay[busiest] + max(0.0, transfer - update)
        for j in range(virtual):
            if chunks.stage[begin + j] != out.stage[p]:
                continue
            has_copy = sources.copies[p] and plan.stages[p] > 1 and j == virtual - 1
            _add_waits(sources, p, j, has_copy, out.waits)
    return out


@lean_kernel
def _add_waits(sources: BlockSources, p: int, j: int, has_copy: bool, waits: Floats) -> None:
    """Add the exposed communication of a virtual stage of a point in an iteration [s], (waits, points).

    has_copy: whether it has a copy of the first layer's weights.
    """
    chunks, layers, microbatches = sources.chunks, sources.layers, sources.plan.microbatches[p]
    num_layers = chunks.layers[p]
    for layer in range(num_layers):
        index, entry = layers.first[p] + layer, chunks.first_count[p] + j * num_layers + layer
        count, recompute = chunks.layer_counts[entry], chunks.recompute_counts[entry]
        has_first_layer = has_copy and layer == 0
        for kind in range(waits.shape[0]):
            forward_count = count if kind == WEIGHTS else count + recompute
            wait_s = (
                forward_count * layers.waits[FORWARD, kind, index]
                + count * layers.waits[BACKWARD, kind, index]
                + (count - recompute) * layers.waits[RECOMPUTED, kind, index]
            )
            if kind != WEIGHTS and layers.once[index] > 0.0:
                wait_s -= recompute * layers.waits[ONCE, kind, index]
            waits[kind, p] += microbatches * wait_s
            waits[kind, p] += (count + has_first_layer) * layers.waits[UPDATE, kind, index]
