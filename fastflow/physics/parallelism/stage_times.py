"""The blocks of a pipeline whose layers stand for several: what its virtual stages take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
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
        return Timeline(times.turn, times.total - times.turn, self.update, exposed, bubble)


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


def run_stacks(
    graph: Graph, chunks: Chunks, layers: LayerTimes, plan: BlockPlan, send_s: Floats, reduce_s: Floats,
    streamed: Streamed, copies: Bools,
) -> Stacks:  # fmt: skip
    """Return the iteration of every point.

    send_s: of what a kernel makes, to the next stage; reduce_s: of its weight gradients, once an iteration
    [s], both of one layer, (kernels,); streamed: what layers move between device and host; copies: whether
    the last one of several stages has a copy of the first layer's weights, (points,).
    """
    virtual = int(chunks.offset[-1])
    blocks = Blocks(
        offset=chunks.offset,
        forward_s=np.zeros(virtual),
        input_s=np.zeros(virtual),
        weight_s=np.zeros(virtual),
        send_s=np.zeros(virtual),
        reduce_s=np.zeros(virtual),
        layers=np.ones(virtual, dtype=np.int64),
        gather_s=np.zeros(virtual),
        tail_s=np.zeros(virtual),
    )
    own = _hold(graph.numbers, chunks, layers, plan, send_s, reduce_s, streamed, copies, blocks)
    stage, waits, update, idle, offload = _wait(chunks, layers, plan, copies, own)
    return Stacks(blocks, plan, schedule_blocks(blocks, plan), update, stage, idle, waits, offload)


class _Stages(NamedTuple):
    """What stages take beside their blocks [s]; those of point p begin where its virtual stages do."""

    work: Floats  # of one micro-batch
    beside: Floats  # how much longer it is in an iteration for what the host has
    update: Floats
    states: Floats  # to move what the host has of the optimizer


@kernel
def _hold(
    graph: Graph, chunks: Chunks, layers: LayerTimes, plan: BlockPlan, send_s: Floats, reduce_s: Floats,
    streamed: Streamed, copies: Bools, blocks: Blocks,
) -> _Stages:  # fmt: skip
    """Write the blocks of every virtual stage, and return what else it takes."""
    own = np.zeros((4, blocks.forward_s.size))
    work, beside, update, states = own
    for p in range(chunks.layers.size):
        count, stages, split = chunks.layers[p], plan.stages[p], plan.order[p] == ZERO_BUBBLE
        reduced, sent, hidden = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.bool_)
        table = np.zeros(count, dtype=np.bool_)  # whose gradients are ready last
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer = graph.layer[row]
            reduced[layer] += reduce_s[row]
            hidden[layer] |= graph.layer_kind[row] == HIDDEN
            table[layer] |= graph.layer_kind[row] == EMBEDDING
            if graph.sends_cols[row] > 0 and graph.phase[row] == FORWARD:
                sent[layer] = send_s[row]
        for v in range(chunks.offset[p], chunks.offset[p + 1]):
            j, held_layers, moved = v - chunks.offset[p], 0, 0.0
            stage, begin = chunks.offset[p] + j % stages, chunks.at[p] + j * count
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
                if table[layer]:
                    blocks.tail_s[v] += held * reduced[layer]
                else:
                    blocks.reduce_s[v] += held * reduced[layer]
                blocks.gather_s[v] += held * layers.gather[at]
                update[stage] += held * layers.update[at]
                states[stage] += held * streamed.states[at]
                if hidden[layer]:
                    moved += (held - again) * streamed.kept[at] + again * streamed.border[at]
                held_layers += held * hidden[layer]
            blocks.layers[v] = max(held_layers, 1)
            blocks.send_s[v] = sent[chunks.last[v]]
            # out beside the forward block, in beside the backward one
            later = max(0.0, moved - blocks.forward_s[v])
            blocks.forward_s[v] += later
            slower = max(0.0, moved - blocks.input_s[v] - blocks.weight_s[v])
            blocks.input_s[v] += slower
            beside[stage] += plan.microbatches[p] * (later + slower)
            work[stage] += blocks.forward_s[v] + blocks.input_s[v] + blocks.weight_s[v]
            if not split:
                blocks.input_s[v] += blocks.weight_s[v]
                blocks.weight_s[v] = 0.0
        if copies[p] and stages > 1:
            last, first = chunks.offset[p + 1] - 1, layers.first[p]
            blocks.reduce_s[last] += reduced[0]
            blocks.gather_s[last] += layers.gather[first]
            update[chunks.offset[p] + stages - 1] += layers.update[first]
            states[chunks.offset[p] + stages - 1] += streamed.states[first]
    return _Stages(work, beside, update, states)


@kernel
def _wait(
    chunks: Chunks, layers: LayerTimes, plan: BlockPlan, copies: Bools, own: _Stages
) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """Return the stage of every point that has most to do, its waits, the update, how long the stage is idle
    in that, and what the host adds to the stage [s].
    """
    points, kinds = plan.stages.size, layers.waits.shape[1]
    waits, (update, idle, offload) = np.zeros((kinds, points)), np.zeros((3, points))
    found = np.zeros(points, dtype=np.int64)
    for p in range(points):
        begin, end, stages = chunks.offset[p], chunks.offset[p + 1], plan.stages[p]
        most, busiest = -1.0, 0
        for stage in range(stages):
            updated, states = own.update[begin + stage], own.states[begin + stage]
            update[p] = max(update[p], updated, states)
            if own.work[begin + stage] > most:
                most, busiest = own.work[begin + stage], stage
        updated, states = own.update[begin + busiest], own.states[begin + busiest]
        found[p], idle[p] = busiest, update[p] - max(updated, states)
        offload[p] = own.beside[begin + busiest] + max(0.0, states - updated)
        count = chunks.layers[p]
        for j in range(busiest, end - begin, stages):
            for layer in range(count):
                at, which = layers.first[p] + layer, chunks.at[p] + j * count + layer
                held, again = chunks.held[which], chunks.again[which]
                copied = copies[p] and stages > 1 and j == end - begin - 1 and layer == 0
                for kind in range(kinds):
                    run = held if kind == WEIGHTS else held + again
                    turn = run * layers.waits[FORWARD, kind, at] + held * layers.waits[BACKWARD, kind, at]
                    waits[kind, p] += plan.microbatches[p] * turn
                    waits[kind, p] += (held + copied) * layers.waits[UPDATE, kind, at]
    return found, waits, update, idle, offload
