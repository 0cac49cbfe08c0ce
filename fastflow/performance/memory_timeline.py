"""The memory of one device over an iteration of a point: what is allocated at each step, and the peak's name.

The device is one of the stage with the largest footprint. Its largest step is `allocated_B`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.block_schedule import block_schedule
from fastflow.physics.parallelism.memory.layers import LayerMemory
from fastflow.physics.parallelism.memory.timeline import (
    BACKWARD_PASS,
    LOSS,
    LOSS_GRADIENT,
    PASS,
    REDUCTION,
    REST,
    UPDATE_STEP,
    WEIGHT_GRADIENTS,
    BlockRules,
    MemoryStep,
    StageBlock,
    StageTensors,
    StepBytes,
    idle_step,
    walk_blocks,
)
from fastflow.physics.parallelism.offload import offloads_activations
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.schedule.stage_order import in_flight, virtual_stage
from fastflow.physics.schedule.stage_programs import block_sequence
from fastflow.physics.workload.graph import BACKWARD, FORWARD

_PASSES = {
    PASS: "forward pass", LOSS: "loss", LOSS_GRADIENT: "gradient of the loss", BACKWARD_PASS: "backward pass",
    WEIGHT_GRADIENTS: "weight gradients",
}  # fmt: skip
_OTHERS = {REST: "at rest", REDUCTION: "reduction of gradients", UPDATE_STEP: "update of weights"}

KINDS = StepBytes._fields
"""Fields of a step with bytes: weights, gradients and so on."""
KIND_COLUMNS = {
    "weights": "weight", "gradients": "gradient", "optimizer": "optimizer", "activations": "activation",
    "recomputed": "recomputed", "loss": "loss", "buffers": "buffer", "workspace": "workspace",
}  # fmt: skip


class MemoryTimeline(NamedTuple):
    """The steps of an iteration of one device, in their order."""

    stage: int  # of the pipeline
    steps: list[MemoryStep]
    names: list[str]  # of the steps
    peak: int  # index of the first step with the most bytes

    @property
    def peak_name(self) -> str:
        """The step with the most bytes, in words."""
        return self.names[self.peak]

    def spans(self) -> Iterator[tuple[float, float, StepBytes]]:
        """Yield what is allocated from when to when [s], also between a step's end and the next one."""
        for entry, later in zip(self.steps, [*self.steps[1:], None], strict=True):
            yield entry.start, entry.end, entry.bytes
            if later is not None and later.start > entry.end:
                yield entry.end, later.start, entry.after


class _Layers(NamedTuple):
    """The layers of a stage's virtual stages, in the order of chunks; (chunks, layers)."""

    rows: Ints  # of the tables of layers, (layers,)
    counts: Ints
    recomputed: Ints  # of these
    hidden: Bools  # whether each is a hidden layer, (layers,)
    first_hidden: Ints  # number of the first hidden layer of each chunk, (chunks,)


def memory_timeline(prediction: Prediction, point: int, with_times: bool = True) -> MemoryTimeline | None:
    """Return the memory of a device of the fullest stage of a point, step by step; None without a time.

    with_times: whether steps have start and end; those of models without layer runs never do. Micro-batches,
    chunks, stages and layers count from 0.
    """
    index = np.flatnonzero(prediction.timed == point)
    if not index.size:
        return None
    p = int(index[0])
    stage = int(prediction.footprint.stage[p])
    layers = _stage_layers(prediction, p, stage)
    tensors = _tensors(prediction, p, stage, layers)
    blocks = _sequence(prediction, p, stage)
    is_trained = bool(prediction.inputs["model.training"][point])
    end, total, update = nan, nan, 0.0
    if with_times and prediction.pipeline_blocks is not None:
        blocks, end = _timed(prediction, p, stage, blocks)
        total = float(prediction.pipeline_blocks.times.total[p])
        update = float(prediction.pipeline_blocks.update[p])
    steps = list(walk_blocks(tensors, blocks, _rules(prediction, p, layers)))
    if is_trained:
        last, at_rest = blocks[-1].end, tensors.during()
        if end > last or np.isnan(end):
            reduced = tensors.during(buffers=tensors.reduced)
            steps.append(idle_step(REDUCTION, last, end, reduced, at_rest))
        # a stage that updates alone may have begun later than the first one
        start = total + max(last - total, end - total, 0.0) if total >= 0.0 else total
        steps.append(idle_step(UPDATE_STEP, start, start + update, at_rest, at_rest))
    else:
        steps = [entry for entry in steps if entry.phase in (REST, PASS, LOSS)]
    allocated = [entry.bytes.allocated for entry in steps]
    names = [_name(entry, layers) for entry in steps]
    peak = next(i for i, size in enumerate(allocated) if size >= max(allocated) * (1.0 - 1e-12))
    return MemoryTimeline(stage, steps, names, peak)


def step_columns(timeline: MemoryTimeline) -> Columns:
    """Return the steps as columns, (steps,): names, times [s], and bytes by kind [B]."""
    steps = timeline.steps
    columns: Columns = {
        "step": np.array(timeline.names),
        "phase": np.array([entry.phase for entry in steps]),
        "microbatch": np.array([entry.microbatch for entry in steps]),
        "chunk": np.array([entry.chunk for entry in steps]),
        "start_s": np.array([entry.start for entry in steps]),
        "end_s": np.array([entry.end for entry in steps]),
    }
    for kind in KINDS:
        columns[f"{KIND_COLUMNS[kind]}_B"] = np.array([getattr(entry.bytes, kind) for entry in steps])
    columns["allocated_B"] = np.array([entry.bytes.allocated for entry in steps])
    columns["is_peak"] = np.arange(len(steps)) == timeline.peak
    return columns


def _stage_layers(prediction: Prediction, p: int, stage: int) -> _Layers | None:
    """Return the layers of a stage; None of graphs without layer runs."""
    memory, chunks = prediction.layers, prediction.pipeline.chunks
    if memory is None or chunks is None:
        return None
    virtual = int(chunks.offset[p + 1] - chunks.offset[p])
    entries = slice(chunks.first_count[p], chunks.first_count[p + 1])
    shape = (virtual, int(chunks.layers[p]))
    counts, recomputed = (
        column[entries].reshape(shape) for column in (chunks.layer_counts, chunks.recompute_counts)
    )
    rows = np.arange(memory.first[p], memory.first[p + 1])
    is_hidden = memory.hidden[rows]
    hidden = (counts * is_hidden).sum(axis=1)
    order, stages = int(prediction.pipeline.order[p]), int(prediction.pipeline.stages[p])
    of_stage = [virtual_stage(order, stages, stage, chunk) for chunk in range(virtual // stages)]
    first_hidden = (np.cumsum(hidden) - hidden)[of_stage]
    return _Layers(rows, counts[of_stage], recomputed[of_stage], is_hidden, first_hidden)


def _tensors(prediction: Prediction, p: int, stage: int, layers: _Layers | None) -> StageTensors:
    """Return what a device of a stage of a point has [B]."""
    memory, pipe, point = prediction.footprint, prediction.pipeline, prediction.timed[p]
    is_trained = bool(prediction.inputs["model.training"][point])
    parts = memory.buffer_parts
    recomputed, loss, hidden, on_device = float(parts.recomputed[p]), 0.0, 0.0, 0.0
    kept = float(memory.activations[p])
    if layers is None or prediction.layers is None or pipe.chunks is None:
        chunks = 1
        order, stages, microbatches = (
            int(column[p]) for column in (pipe.order, pipe.stages, pipe.microbatches)
        )
        kept /= in_flight(order, stages, stage, chunks, microbatches)
    else:
        size = float(prediction.precision.activation[p]) * is_trained
        table, has_layer = prediction.layers, layers.counts > 0
        of_layer, of_modules = table.activations_without_recompute, table.recomputed_activations
        recomputed = size * max(
            _most(of_layer[layers.rows], layers.recomputed > 0),
            _most(of_modules[layers.rows], layers.counts > layers.recomputed),
        )
        loss = size * _most(table.transient[layers.rows], has_layer)
        chunks = len(layers.counts)
        border = _borders(table, pipe.chunks, p, stage)
        each = _kept_of_layers(table, layers)
        kept = size * (float(each.sum()) + border) / chunks
        if offloads_activations(prediction.inputs["parallel.offload"][point]):
            hidden = size * float(each[:, layers.hidden].sum()) / chunks
            on_device = size * _two_largest(table, layers)
    of_backward = float((parts.scattered + parts.gradients)[p])
    passes = float((parts.gathered + parts.converted)[p])
    return StageTensors(
        weights=float(memory.weights[p]),
        gradients=float(memory.gradients[p]),
        optimizer=float(memory.optimizer[p]),
        workspace=float(memory.process.workspace[p]),
        kept=kept,
        hidden=hidden,
        on_device=on_device,
        recomputed=recomputed,
        loss=loss,
        passes=passes if is_trained else passes + of_backward,
        gradient_buffers=of_backward,
        reduced=float(parts.scattered[p]),
    )


def _most(values: Floats, is_present: Bools) -> float:
    """Return the largest value of layers that any chunk has; is_present: (chunks, layers)."""
    return float(values[is_present.any(axis=0)].max(initial=0.0))


def _kept_of_layers(table: LayerMemory, layers: _Layers) -> Floats:
    """Return what the layers of every chunk keep for the backward pass [elements], (chunks, layers)."""
    kept: Floats = (layers.counts - layers.recomputed) * table.activations[layers.rows]
    return kept + layers.recomputed * table.checkpoint[layers.rows]


def _borders(table: LayerMemory, chunks: Chunks, p: int, stage: int) -> float:
    """Return what a stage keeps of what it received, less what it made for the next one [elements]."""
    begin, end, first, border = int(chunks.offset[p]), int(chunks.offset[p + 1]), int(table.first[p]), 0.0
    of_stage = chunks.stage == stage
    for virtual in (begin + np.flatnonzero(of_stage[begin:end])).tolist():
        if virtual > begin and not of_stage[virtual - 1]:
            border += float(table.sent[first + chunks.last_layer[virtual - 1]])
        if virtual + 1 < end and not of_stage[virtual + 1]:
            border -= float(table.output[first + chunks.last_layer[virtual]])
    return border


def _two_largest(table: LayerMemory, layers: _Layers) -> float:
    """Return what the two hidden layers of a stage that keep most keep together [elements]."""
    recomputed, others = layers.recomputed.sum(axis=0), (layers.counts - layers.recomputed).sum(axis=0)
    values = [
        np.repeat(column[layers.rows], np.where(layers.hidden, np.minimum(count, 2), 0))
        for column, count in ((table.checkpoint, recomputed), (table.activations, others))
    ]
    return float(np.sort(np.concatenate(values))[-2:].sum())


def _sequence(prediction: Prediction, p: int, stage: int) -> list[StageBlock]:
    """Return the blocks of a stage in their order, without times."""
    pipe = prediction.pipeline
    stages = int(pipe.stages[p])
    chunks = 1 if pipe.chunks is None else int(pipe.chunks.offset[p + 1] - pipe.chunks.offset[p]) // stages
    sequence = block_sequence(int(pipe.order[p]), stages, stage, chunks, int(pipe.microbatches[p]))
    return [
        StageBlock(kind, chunk, microbatch, kind != FORWARD and mark > 0)
        for kind, chunk, microbatch, mark in sequence.T.tolist()
    ]


def _timed(
    prediction: Prediction, p: int, stage: int, blocks: list[StageBlock]
) -> tuple[list[StageBlock], float]:
    """Return blocks with their times, and when the gradients of the stage are summed [s]."""
    assert prediction.pipeline_blocks is not None
    schedule, stages = block_schedule(prediction.pipeline_blocks, p), int(prediction.pipeline.stages[p])
    spans = {
        (block.kind, block.virtual // stages, block.microbatch): (block.start, block.end)
        for block in schedule.blocks
        if block.stage == stage
    }
    timed: list[StageBlock] = []
    for block in blocks:
        at = timed[-1].end if timed else 0.0  # of weight gradients that take no time
        start, end = spans.get(block[:3], (at, at))
        timed.append(block._replace(start=start, end=end))
    ends = [span.end for span in schedule.sums.values() if span.stage == stage]
    return timed, max(ends, default=nan)


def _rules(prediction: Prediction, p: int, layers: _Layers | None) -> BlockRules:
    """Return what the blocks of a stage of a point have."""
    table, graph = prediction.layers, prediction.graph
    if layers is None or table is None:
        return BlockRules(-1, 0.0, 0.0)
    transient = table.transient[layers.rows]
    chunk = len(layers.counts) - 1
    count = layers.counts[chunk]
    rows = np.arange(graph.offset[p], graph.offset[p + 1])
    kernel_s = graph.launches.repeat[rows] * prediction.timing.time[rows]
    shares = []
    for phase in (FORWARD, BACKWARD):
        seconds = np.where(graph.phase[rows] == phase, kernel_s, 0.0)
        layer_s = np.bincount(graph.layer.number[rows], seconds, layers.rows.size)
        block_s = float((layer_s * count).sum())
        of_loss = float((layer_s * count)[transient > 0.0].sum())
        shares.append(of_loss / block_s if block_s > 0.0 else 0.0)
    return BlockRules(chunk if transient.any() else -1, shares[0], shares[1])


def _name(entry: MemoryStep, layers: _Layers | None) -> str:
    """Return a step in words: its phase, micro-batch, and hidden layers."""
    if entry.phase in _OTHERS:
        return _OTHERS[entry.phase]
    name = f"{_PASSES[entry.phase]} of micro-batch {entry.microbatch}"
    if layers is None or entry.phase in (LOSS, LOSS_GRADIENT):
        return name
    count = int(layers.counts[entry.chunk][layers.hidden].sum())
    first = int(layers.first_hidden[entry.chunk])
    if count == 0:
        return name
    last = first + count - 1
    begin, end = (first, last) if entry.phase == PASS else (last, first)
    numbers = f"layer {first}" if count == 1 else f"layers {begin} to {end}"
    return f"{name}, {numbers}{', recomputed' if entry.bytes.recomputed > 0.0 else ''}"
