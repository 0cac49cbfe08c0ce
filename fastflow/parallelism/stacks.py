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
from fastflow.tables import Floats
from fastflow.workload.graph import BACKWARD, FORWARD, HIDDEN, Graph


class Stacks(NamedTuple):
    """Iterations of pipelines in blocks."""

    blocks: Blocks
    plan: BlockPlan
    times: BlockTimes  # (points,)
    update: Floats  # of the stage that takes longest [s], (points,)
    waits: Floats  # of the busiest stage in an iteration, by iteration.layers.WAITS [s], (waits, points)

    @property
    def timeline(self) -> Timeline:
        """The phases of every point."""
        times = self.times
        exposed = self.waits.sum(axis=0) + np.maximum(times.total - times.bubble - times.busiest, 0.0)
        return Timeline(times.turn, times.total - times.turn, self.update, exposed, times.bubble)


def run_stacks(
    graph: Graph, chunks: Chunks, layers: LayerTimes, plan: BlockPlan, send_s: Floats, reduce_s: Floats
) -> Stacks:
    """Return the iteration of every point.

    send_s: of what a kernel makes, to the next stage; reduce_s: of its weight gradients, once an iteration
    [s], both of one layer, (kernels,).
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
    )
    update, waits = np.zeros(plan.stages.size), np.zeros((len(WAITS), plan.stages.size))
    _lay_blocks(graph.numbers, chunks, layers, plan, send_s, reduce_s, blocks, update, waits)
    return Stacks(blocks, plan, schedule_blocks(blocks, plan), update, waits)


@kernel
def _lay_blocks(
    graph: Graph, chunks: Chunks, layers: LayerTimes, plan: BlockPlan, send_s: Floats, reduce_s: Floats,
    blocks: Blocks, update: Floats, waits: Floats,
) -> None:  # fmt: skip
    """Write what every virtual stage takes, the update, and the waits of the stage that has most to do."""
    for p in range(update.size):
        count, stages = chunks.layers[p], plan.stages[p]
        reduced, sent, hidden = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.bool_)
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer = graph.layer[row]
            reduced[layer] += reduce_s[row]
            hidden[layer] |= graph.layer_kind[row] == HIDDEN
            if graph.sends_cols[row] > 0 and graph.phase[row] == FORWARD:
                sent[layer] = send_s[row]
        updated, most = np.zeros(stages), -1.0
        work, waiting = np.zeros(stages), np.zeros((stages, waits.shape[0]))
        split = plan.order[p] == ZERO_BUBBLE
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            v, stage, held_layers = chunks.offset[p] + j, j % stages, 0
            for layer in range(count):
                held = chunks.held[chunks.at[p] + j * count + layer]
                again, own = chunks.again[chunks.at[p] + j * count + layer], layers.first[p] + layer
                core = held - again if chunks.core[p] else 0
                blocks.forward_s[v] += held * layers.forward[own]
                blocks.input_s[v] += held * layers.backward[own] + again * layers.forward[own]
                blocks.input_s[v] += core * layers.core[own]
                blocks.weight_s[v] += held * layers.weight[own]
                blocks.reduce_s[v] += held * reduced[layer]
                blocks.gather_s[v] += held * layers.gather[own]
                updated[stage] += held * layers.update[own]
                held_layers += held * hidden[layer]
                for kind in range(waits.shape[0]):
                    waiting[stage, kind] += (held + again) * layers.waits[FORWARD, kind, own]
                    waiting[stage, kind] += held * layers.waits[BACKWARD, kind, own]
            blocks.layers[v] = max(held_layers, 1)
            blocks.send_s[v] = sent[chunks.last[v]]
            work[stage] += blocks.forward_s[v] + blocks.input_s[v] + blocks.weight_s[v]
            if not split:
                blocks.input_s[v] += blocks.weight_s[v]
                blocks.weight_s[v] = 0.0
        for stage in range(stages):
            update[p] = max(update[p], updated[stage])
            if work[stage] > most:
                most = work[stage]
                waits[:, p] = plan.microbatches[p] * waiting[stage]
