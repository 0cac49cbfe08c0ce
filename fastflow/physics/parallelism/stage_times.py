"""The blocks of a pipeline whose layers stand for several: what its virtual stages take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.layer_memory import LayerMemory, Offload
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.layer_times import WEIGHTS, LayerTimes
from fastflow.physics.schedule.pipeline_order import ZERO_BUBBLE
from fastflow.physics.schedule.stage_blocks import BlockPlan, Blocks, BlockTimes, schedule_blocks
from fastflow.physics.schedule.timeline import Timeline
from fastflow.physics.workload.graph import BACKWARD, EMBEDDING, FORWARD, HIDDEN, UPDATE, Graph
from fastflow.physics.workload.precision import Precision


class Stacks(NamedTuple):
    """Iterations of pipelines in blocks."""

    blocks: Blocks
    plan: BlockPlan
    times: BlockTimes  # (points,)
    update: Floats  # of the stage that takes longest [s], (points,)
    stage: Ints  # the busiest one, which has most work for a micro-batch and sets the pace, (points,)
    idle: Floats  # how long it waits for the update of another stage [s], (points,)
    waits: Floats  # of that stage in an iteration, by layer_times.WAITS [s], (waits, points)
    offload: Floats  # how much longer it takes for what the host has [s], (points,)

    @property
    def timeline(self) -> Timeline:
        """The phases of every point."""
        times = self.times
        exposed = (
            self.waits.sum(axis=0)
            + self.offload
            + np.maximum(times.total - times.bubble - times.busiest, 0.0)
        )
        bubble = times.bubble + self.idle
        backward = times.total - times.backward_start
        return Timeline(times.backward_start, backward, self.update, exposed, bubble)


class Streamed(NamedTuple):
    """How long it takes to move what the host has of a layer, one way; (layers of all points,) [s]."""

    states: Floats  # of the optimizer, once an iteration
    kept: Floats  # for the backward pass, of one micro-batch
    border: Floats  # the same of a layer that is computed again


def streamed(memory: LayerMemory, offload: Offload, numbers: Precision, zero: Ints) -> Streamed:
    """Return what layers move between device and host; offload, zero (its stage), numbers: (points,)."""
    point = np.repeat(np.arange(zero.size), np.diff(memory.first))
    states = np.where(offload.optimizer, numbers.master + numbers.state, 0.0) / offload.bandwidth
    kept = np.where(offload.activations, numbers.activation, 0.0) / offload.bandwidth
    owned = np.where(zero[point] > 0, memory.parts, memory.weights)
    return Streamed(states[point] * owned, kept[point] * memory.kept, kept[point] * memory.border)


class BlockSources(NamedTuple):
    """What the blocks of all points are made of."""

    chunks: Chunks
    layers: LayerTimes
    plan: BlockPlan
    streamed: Streamed
    send_s: Floats  # of what a kernel makes, to the next stage, of one layer [s], (kernels,)
    reduce_s: Floats  # of its weight gradients, once an iteration, of one layer [s], (kernels,)
    copies: Bools  # whether the last one of several stages has a copy of the first layer's weights, (points,)


def run_stacks(graph: Graph, sources: BlockSources) -> Stacks:
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
    busiest = _wait(sources, _hold(graph.numbers, sources, blocks))
    times = schedule_blocks(blocks, sources.plan)
    return Stacks(blocks, sources.plan, times, *busiest)


class _Layers(NamedTuple):
    """What the kernels of one point's layers add up to; (layers,)."""

    send_s: Floats
    reduce_s: Floats
    hidden: Bools
    embedding: Bools  # whose gradients are ready last


class _Stages(NamedTuple):
    """What stages take beside their blocks [s]; those of point p begin where its virtual stages do."""

    work: Floats  # of one micro-batch
    beside: Floats  # how much longer it is in an iteration for what the host has
    update: Floats
    states: Floats  # to move what the host has of the optimizer


@kernel
def _sum_kernels(graph: Graph, sources: BlockSources, p: int) -> _Layers:
    """Return the sums of a point's kernels by layer."""
    count = sources.chunks.layers[p]
    out = _Layers(
        send_s=np.zeros(count),
        reduce_s=np.zeros(count),
        hidden=np.zeros(count, dtype=np.bool_),
        embedding=np.zeros(count, dtype=np.bool_),
    )
    for row in range(graph.offset[p], graph.offset[p + 1]):
        layer = graph.layer[row]
        out.reduce_s[layer] += sources.reduce_s[row]
        out.hidden[layer] |= graph.layer_kind[row] == HIDDEN
        out.embedding[layer] |= graph.layer_kind[row] == EMBEDDING
        if graph.sends_cols[row] > 0 and graph.phase[row] == FORWARD:
            out.send_s[layer] = sources.send_s[row]
    return out


@lean_kernel
def _write_block(
    sources: BlockSources, own: _Layers, p: int, v: int, blocks: Blocks, stages: _Stages
) -> float:
    """Write the block of a virtual stage of a point, and add to what its stage takes beside.

    Returns how much longer it takes for activations that move to the host and back [s].
    """
    chunks, layers, streamed = sources.chunks, sources.layers, sources.streamed
    j, count, moved, hidden = v - chunks.offset[p], chunks.layers[p], 0.0, 0
    stage, begin = chunks.offset[p] + j % sources.plan.stages[p], chunks.at[p] + j * count
    for layer in range(count):
        held, again = chunks.held[begin + layer], chunks.again[begin + layer]
        at = layers.first[p] + layer
        core = held - again if chunks.core[p] else 0
        # weights are gathered once for what is computed again and the backward pass, in that
        recomputed = layers.forward[at] - layers.waits[FORWARD, WEIGHTS, at]
        blocks.forward_s[v] += held * layers.forward[at]
        blocks.input_s[v] += held * layers.backward[at] + again * recomputed
        blocks.input_s[v] += core * layers.core[at]
        blocks.weight_s[v] += held * layers.weight[at]
        if own.embedding[layer]:
            blocks.tail_s[v] += held * own.reduce_s[layer]
        else:
            blocks.reduce_s[v] += held * own.reduce_s[layer]
        blocks.gather_s[v] += held * layers.gather[at]
        stages.update[stage] += held * layers.update[at]
        stages.states[stage] += held * streamed.states[at]
        if own.hidden[layer]:
            moved += (held - again) * streamed.kept[at] + again * streamed.border[at]
            hidden += held
    blocks.layers[v] = max(hidden, 1)
    blocks.send_s[v] = own.send_s[chunks.last[v]]
    # out beside the forward block, in beside the backward one
    later = max(0.0, moved - blocks.forward_s[v])
    blocks.forward_s[v] += later
    slower = max(0.0, moved - blocks.input_s[v] - blocks.weight_s[v])
    blocks.input_s[v] += slower
    return float(later + slower)


@kernel
def _hold(graph: Graph, sources: BlockSources, blocks: Blocks) -> _Stages:
    """Write the blocks of every virtual stage, and return what else it takes."""
    chunks, plan = sources.chunks, sources.plan
    virtual = blocks.forward_s.size
    stages = _Stages(np.zeros(virtual), np.zeros(virtual), np.zeros(virtual), np.zeros(virtual))
    for p in range(chunks.layers.size):
        own = _sum_kernels(graph, sources, p)
        for v in range(chunks.offset[p], chunks.offset[p + 1]):
            stage = chunks.offset[p] + (v - chunks.offset[p]) % plan.stages[p]
            longer = _write_block(sources, own, p, v, blocks, stages)
            stages.beside[stage] += plan.microbatches[p] * longer
            stages.work[stage] += blocks.forward_s[v] + blocks.input_s[v] + blocks.weight_s[v]
            if plan.order[p] != ZERO_BUBBLE:
                blocks.input_s[v] += blocks.weight_s[v]
                blocks.weight_s[v] = 0.0
        if sources.copies[p] and plan.stages[p] > 1:
            last, first = chunks.offset[p + 1] - 1, sources.layers.first[p]
            stage = chunks.offset[p] + plan.stages[p] - 1
            blocks.reduce_s[last] += own.reduce_s[0]
            blocks.gather_s[last] += sources.layers.gather[first]
            stages.update[stage] += sources.layers.update[first]
            stages.states[stage] += sources.streamed.states[first]
    return stages


class _Busiest(NamedTuple):
    """The stage of every point that has most to do; (points,), as in `Stacks`."""

    update: Floats
    stage: Ints
    idle: Floats
    waits: Floats
    offload: Floats


@kernel
def _wait(sources: BlockSources, stages: _Stages) -> _Busiest:
    """Return the stage of every point that has most to do, and what it waits for."""
    chunks, layers, plan = sources.chunks, sources.layers, sources.plan
    points, kinds = plan.stages.size, layers.waits.shape[1]
    out = _Busiest(
        update=np.zeros(points),
        stage=np.zeros(points, dtype=np.int64),
        idle=np.zeros(points),
        waits=np.zeros((kinds, points)),
        offload=np.zeros(points),
    )
    for p in range(points):
        begin, virtual = chunks.offset[p], chunks.offset[p + 1] - chunks.offset[p]
        most = -1.0
        for stage in range(plan.stages[p]):
            at = begin + stage
            out.update[p] = max(out.update[p], stages.update[at], stages.states[at])
            if stages.work[at] > most:
                most, out.stage[p] = stages.work[at], stage
        busiest = begin + out.stage[p]
        updated, states = stages.update[busiest], stages.states[busiest]
        out.idle[p] = out.update[p] - max(updated, states)
        out.offload[p] = stages.beside[busiest] + max(0.0, states - updated)
        for j in range(out.stage[p], virtual, plan.stages[p]):
            has_copy = sources.copies[p] and plan.stages[p] > 1 and j == virtual - 1
            _add_waits(sources, p, j, has_copy, out.waits)
    return out


@lean_kernel
def _add_waits(sources: BlockSources, p: int, j: int, has_copy: bool, waits: Floats) -> None:
    """Add what a virtual stage of a point waits for in an iteration [s], (waits, points).

    has_copy: whether it has one of the first layer's weights.
    """
    chunks, layers, microbatches = sources.chunks, sources.layers, sources.plan.microbatches[p]
    count = chunks.layers[p]
    for layer in range(count):
        at, which = layers.first[p] + layer, chunks.at[p] + j * count + layer
        held, again = chunks.held[which], chunks.again[which]
        copied = has_copy and layer == 0
        for kind in range(waits.shape[0]):
            run = held if kind == WEIGHTS else held + again
            turn = run * layers.waits[FORWARD, kind, at] + held * layers.waits[BACKWARD, kind, at]
            waits[kind, p] += microbatches * turn
            waits[kind, p] += (held + copied) * layers.waits[UPDATE, kind, at]
