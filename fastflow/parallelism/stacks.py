"""The blocks of a pipeline whose layers stand for several: what its virtual stages take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.iteration.blocks import BlockPlan, Blocks, BlockTimes, schedule_blocks
from fastflow.iteration.layers import WAITS, LayerTimes
from fastflow.iteration.pipeline_order import ZERO_BUBBLE
from fastflow.iteration.schedule import Timeline
from fastflow.parallelism.chunks import Chunks
from fastflow.parallelism.layer_memory import LayerMemory, Offload
from fastflow.tables import Floats, Ints
from fastflow.workload.graph import BACKWARD, EMBEDDING, FORWARD, HIDDEN, Graph
from fastflow.workload.precision import Precision


class Stacks(NamedTuple):
    """Iterations of pipelines in blocks."""

    blocks: Blocks
    plan: BlockPlan
    times: BlockTimes  # (points,)
    update: Floats  # of the stage that takes longest [s], (points,)
    waits: Floats  # of the busiest stage in an iteration, by iteration.layers.WAITS [s], (waits, points)
    offload: Floats  # how much longer that stage takes for what the host has [s], (points,)

    @property
    def timeline(self) -> Timeline:
        """The phases of every point."""
        times = self.times
        exposed = (
            self.waits.sum(axis=0)
            + self.offload
            + np.maximum(times.total - times.bubble - times.busiest, 0.0)
        )
        return Timeline(times.turn, times.total - times.turn, self.update, exposed, times.bubble)


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
    streamed: Streamed,
) -> Stacks:  # fmt: skip
    """Return the iteration of every point.

    send_s: of what a kernel makes, to the next stage; reduce_s: of its weight gradients, once an iteration
    [s], both of one layer, (kernels,); streamed: what layers move between device and host.
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
    update, offload = np.zeros((2, plan.stages.size))
    waits = np.zeros((len(WAITS), plan.stages.size))
    _lay_blocks(
        graph.numbers, chunks, layers, plan, send_s, reduce_s, streamed, blocks, update, waits, offload
    )
    return Stacks(blocks, plan, schedule_blocks(blocks, plan), update, waits, offload)


@kernel
def _lay_blocks(
    graph: Graph, chunks: Chunks, layers: LayerTimes, plan: BlockPlan, send_s: Floats, reduce_s: Floats,
    streamed: Streamed, blocks: Blocks, update: Floats, waits: Floats, offload: Floats,
) -> None:  # fmt: skip
    """Write what every virtual stage takes, the update, and the waits of the stage that has most to do."""
    for p in range(update.size):
        count, stages = chunks.layers[p], plan.stages[p]
        reduced, sent, hidden = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.bool_)
        table = np.zeros(count, dtype=np.bool_)  # whose gradients are ready last
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer = graph.layer[row]
            reduced[layer] += reduce_s[row]
            hidden[layer] |= graph.layer_kind[row] == HIDDEN
            table[layer] |= graph.layer_kind[row] == EMBEDDING
            if graph.sends_cols[row] > 0 and graph.phase[row] == FORWARD:
                sent[layer] = send_s[row]
        updated, most = np.zeros(stages), -1.0
        work, waiting = np.zeros(stages), np.zeros((stages, waits.shape[0]))
        states, beside = np.zeros(stages), np.zeros(stages)
        split = plan.order[p] == ZERO_BUBBLE
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            v, stage, held_layers, moved = chunks.offset[p] + j, j % stages, 0, 0.0
            for layer in range(count):
                held = chunks.held[chunks.at[p] + j * count + layer]
                again, own = chunks.again[chunks.at[p] + j * count + layer], layers.first[p] + layer
                core = held - again if chunks.core[p] else 0
                blocks.forward_s[v] += held * layers.forward[own]
                blocks.input_s[v] += held * layers.backward[own] + again * layers.forward[own]
                blocks.input_s[v] += core * layers.core[own]
                blocks.weight_s[v] += held * layers.weight[own]
                if table[layer]:
                    blocks.tail_s[v] += held * reduced[layer]
                else:
                    blocks.reduce_s[v] += held * reduced[layer]
                blocks.gather_s[v] += held * layers.gather[own]
                updated[stage] += held * layers.update[own]
                states[stage] += held * streamed.states[own]
                moved += (held - again) * streamed.kept[own] + again * streamed.border[own]
                held_layers += held * hidden[layer]
                for kind in range(waits.shape[0]):
                    waiting[stage, kind] += (held + again) * layers.waits[FORWARD, kind, own]
                    waiting[stage, kind] += held * layers.waits[BACKWARD, kind, own]
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
        for stage in range(stages):
            update[p] = max(update[p], updated[stage], states[stage])
            if work[stage] > most:
                most = work[stage]
                waits[:, p] = plan.microbatches[p] * waiting[stage]
                offload[p] = beside[stage] + max(0.0, states[stage] - updated[stage])
