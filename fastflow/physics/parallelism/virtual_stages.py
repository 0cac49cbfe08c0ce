"""Partition of layers into pipeline stages, of graphs with layer runs: one layer for several equal ones.

A stage has one or more *chunks* of neighbouring layers (Narayanan et al., SC 2021, section 2.2): chunk c
of stage s is virtual stage c x stages + s, in the order of the model, unless the schedule folds the pipeline
(`stage_order`). An even partition gives each virtual
stage as many layers; embedding and head are added to the first and the last, or count as a layer each where
only that divides (Megatron-LM's account_for_embedding_in_pipeline_split). A balanced partition makes the
slowest stage as fast as possible. A layout says the layers of each (`pipeline_layout`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.parallelism.options import AUTO, SPLITS
from fastflow.physics.parallelism.pipeline_layout import KEY as LAYOUT
from fastflow.physics.parallelism.pipeline_layout import LAYER, MTP, starts_of
from fastflow.physics.parallelism.pipeline_layout import count as count_letters
from fastflow.physics.parallelism.pipeline_layout import parse as parse_layout
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.schedule.pipeline_order import balance
from fastflow.physics.schedule.stage_order import stage_of
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import BACKWARD, FORWARD, HIDDEN, Graph
from fastflow.physics.workload.recompute_modules import CORE_ATTN, MODULES, NEVER, bits, is_recomputed


class Chunks(NamedTuple):
    """The layers of every virtual stage. Layers are those of the graph, each a run of equal layers."""

    offset: Ints  # point p has virtual stages offset[p] to offset[p + 1]
    layers: Ints  # of a point's graph, (points,)
    first_count: Ints  # where a point's part of `layer_counts` begins, (points + 1,)
    layer_counts: Ints  # of each layer, (virtual stage, layer) of every point, flat
    recompute_counts: Ints  # those recomputed in the backward pass, the first ones of a stage
    modules: Ints  # parts of the others that are recomputed, as bits of `recompute_modules`, (points,)
    first_layer: Ints  # the layer that each virtual stage begins with, (virtual stages,)
    last_layer: Ints  # that it ends with
    stage: Ints  # that has it, (virtual stages,)


_, EVEN, BALANCED = SPLITS
NONE, SELECTIVE, FULL = "none", "selective", "full"
RECOMPUTE = "parallel.recompute"
OTHER_LAYERS = 2  # embedding and head, which may count as layers
_ALL_LAYERS = np.iinfo(np.int64).max


def recomputed(texts: Texts) -> tuple[Ints, Ints]:
    """Return the most layers of a virtual stage that are recomputed, and modules of the others, as bits.

    texts: `parallel.recompute`; a number is that of layers (Megatron-LM's recompute_num_layers).
    Raises InputError.
    """
    distinct, inverse = factorize(texts)
    layers, modules = np.array([_recomputed(text) for text in distinct], dtype=np.int64).T
    return layers[inverse], modules[inverse]


def _recomputed(text: str) -> tuple[int, int]:
    """Return layers and modules of one text."""
    words = {AUTO: (0, 0), NONE: (0, 0), SELECTIVE: (0, CORE_ATTN), FULL: (_ALL_LAYERS, 0)}
    if text in words:
        return words[text]
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text), 0
    names = [MODULES[0] if name == SELECTIVE else name for name in text.split("+")]
    if not set(names) <= set(MODULES):
        allowed = f"{', '.join(words)}, a whole number of layers, or parts of layers: {', '.join(MODULES)}"
        raise InputError(RECOMPUTE, text, f"{allowed}; several parts joined by +")
    return 0, bits(names)


def recompute_of(inputs: Inputs) -> Texts:
    """Return the recomputation of every point, (points,): none where there is no backward pass.

    inputs: `model.training`, `parallel.recompute`.
    """
    return np.where(inputs["model.training"], inputs[RECOMPUTE], NONE)


def layer_kinds(graph: Graph, order: Order | None = None) -> tuple[Ints, Ints]:
    """Return the kind of every layer of the points' graphs, and where each point's begin, (points + 1,).

    A layer of `order` without kernels, such as a feed-forward layer in a pass of attention alone, is hidden.
    """
    layers = _count_layers(graph.offset, graph.layer.number)
    if order is not None:
        has_layers = np.diff(order.offset) > 0
        highest = np.maximum.reduceat(order.layer, order.offset[:-1][has_layers]) if has_layers.any() else 0
        layers[has_layers] = np.maximum(layers[has_layers], highest + 1)
    first = np.concatenate([[0], np.cumsum(layers)])
    kind = np.full(first[-1], HIDDEN, dtype=np.int64)
    kind[first[graph.point] + graph.layer.number] = graph.layer.kind
    return kind, first


@kernel
def _count_layers(offset: Ints, layer: Ints) -> Ints:
    layers = np.zeros(offset.size - 1, dtype=np.int64)
    for p in range(layers.size):
        for row in range(offset[p], offset[p + 1]):
            layers[p] = max(layers[p], layer[row] + 1)
    return layers


class LayerPartition(NamedTuple):
    """The layers to partition, counted once; (points,) but for `kind` and `first`."""

    order: Order
    kind: Ints  # of every layer of the graphs, (layers of all points,)
    first: Ints  # where each point's layers begin, (points + 1,)
    before: Ints  # layers before the first hidden layer
    hidden: Ints
    virtual: Ints  # stages times chunks


def layer_partition_of(graph: Graph, order: Order | None, strategies: Strategies) -> LayerPartition | None:
    """Count the layers of every point; None of graphs without layer runs (order: None)."""
    if order is None:
        return None
    kind, first = layer_kinds(graph, order)
    points = order.offset.size - 1
    point = np.repeat(np.arange(points), np.diff(order.offset))
    hidden = kind[first[point] + order.layer] == HIDDEN
    position = np.arange(point.size) - order.offset[:-1][point]
    count = np.bincount(point[hidden], minlength=points)
    first_hidden = np.full(points, np.iinfo(np.int64).max)
    np.minimum.at(first_hidden, point[hidden], position[hidden])
    before = np.where(count > 0, first_hidden, 0)
    return LayerPartition(order, kind, first, before, count, strategies.pp * strategies.chunks)


def divides(virtual: Ints, layers: Ints) -> Bools:
    """Say whether virtual stages divide layers, or layers with embedding and head."""
    all_layers = layers + OTHER_LAYERS
    result: Bools = (layers % virtual == 0) | ((all_layers % virtual == 0) & (all_layers > virtual))
    return result


def invalid_pipeline_partition(
    partition: LayerPartition, strategies: Strategies, inputs: Inputs
) -> ReasonColumn:
    """Say for every point why its pipeline partition is invalid, (points,).

    inputs: `parallel.pipeline_partition`, `.pipeline_layout`, `.strategy`, `model.mtp`.
    """
    stages, chunks, reason = strategies.pp, strategies.chunks, Reasons(strategies.pp.size)
    laid_out = inputs[LAYOUT] != AUTO
    for i in np.flatnonzero(laid_out).tolist():
        if allowed := _misfit(partition, inputs, i):
            reason.add(i, rejected(Code.SCHEDULE, LAYOUT, inputs[LAYOUT][i], allowed))
    even = (inputs["parallel.pipeline_partition"] != BALANCED) & ~laid_out
    for i in reason.without(even & (partition.virtual > 1) & ~divides(partition.virtual, partition.hidden)):
        parts = f"{stages[i]} stages" if chunks[i] == 1 else f"{stages[i]} stages of {chunks[i]} chunks"
        allowed = f"a strategy whose {parts} divide the {partition.hidden[i]} layers, or those and two"
        if chunks[i] == 1 and stages[i] <= partition.hidden[i]:
            allowed += f"; or parallel.pipeline_partition={BALANCED}"
        reason.add(i, rejected(Code.SCHEDULE, "parallel.strategy", inputs["parallel.strategy"][i], allowed))
    return reason.column()


def _misfit(partition: LayerPartition, inputs: Inputs, point: int) -> str:
    """Say what layout is allowed for a point whose own does not fit its model or strategy; "" if it does."""
    text, virtual = inputs[LAYOUT][point], int(partition.virtual[point])
    modules = int(inputs["model.mtp"][point]) if "model.mtp" in inputs else 0
    layers = int(partition.hidden[point])
    if len(parse_layout(text)) != virtual:
        return f"the {virtual} virtual stages of parallel.strategy={inputs['parallel.strategy'][point]}"
    if count_letters(text, LAYER) != layers:
        return f"the {layers} layers of the model, as t"
    if count_letters(text, MTP) != modules:
        return f"the {modules} MTP modules of model.mtp={modules}, as m"
    return ""


def partition_layers(
    graph: Graph, partition: LayerPartition, even: Bools, recompute: Texts, kernel_s: Floats, layouts: Texts,
    stages: Ints, order: Ints,
) -> Chunks:  # fmt: skip
    """Partition the layers of every point into its virtual stages.

    even (else balanced, of one chunk each), recompute: (points,); kernel_s: time of every kernel in an
    iteration, of all layers of its run [s], (kernels,); layouts: which override both, (points,); stages,
    order: of the pipeline, (points,).
    """
    first, layers = partition.first, np.diff(partition.first)
    first_count = np.concatenate([[0], np.cumsum(partition.virtual * layers)])
    offset = np.concatenate([[0], np.cumsum(partition.virtual)])
    layer_counts, recompute_counts = np.zeros((2, first_count[-1]), dtype=np.int64)
    first_layer, last_layer = np.zeros((2, offset[-1]), dtype=np.int64)
    max_recompute, modules = recomputed(recompute)
    layer_s = np.zeros(first[-1])
    np.add.at(layer_s, first[graph.point] + graph.layer.number, kernel_s / graph.launches.times)
    given = np.full(offset[-1], -1, dtype=np.int64)
    for p in np.flatnonzero(layouts != AUTO):
        given[offset[p] : offset[p + 1]] = starts_of(layouts[p], int(partition.before[p]))
    chunks = Chunks(
        offset, layers, first_count, layer_counts, recompute_counts, modules, first_layer, last_layer,
        stages_of(offset, stages, order),
    )  # fmt: skip
    _assign_layers(partition, even, given, max_recompute, layer_s, chunks)
    return chunks


@kernel
def stages_of(offset: Ints, stages: Ints, order: Ints) -> Ints:
    """Return the stage that has each virtual stage, (virtual stages,)."""
    stage = np.empty(offset[-1], dtype=np.int64)
    for p in range(stages.size):
        for v in range(offset[p], offset[p + 1]):
            stage[v] = stage_of(order[p], stages[p], v - offset[p])
    return stage


@kernel
def _assign_layers(
    partition: LayerPartition, even: Bools, given: Ints, max_recompute: Ints, layer_s: Floats, out: Chunks
) -> None:
    """Write the layers of virtual stages.

    given: position of the first layer of each, -1 where no layout says it, (virtual stages,);
    max_recompute: layers of each that are recomputed, (points,); layer_s: time of each of the graph's layers
    [s].
    """
    order, kind, first = partition.order, partition.kind, partition.first
    for p in range(even.size):
        begin, count = order.offset[p], order.offset[p + 1] - order.offset[p]
        virtual, hidden, before = (
            partition.virtual[p],
            partition.hidden[p],
            partition.before[p],
        )
        starts = np.zeros(virtual, dtype=np.int64)
        if given[out.offset[p]] == 0:
            starts[:] = given[out.offset[p] : out.offset[p + 1]]
        elif virtual > 1 and not even[p]:
            times = np.empty(count)
            for i in range(count):
                times[i] = layer_s[first[p] + order.layer[begin + i]]
            starts = balance(times, virtual)
        elif hidden % virtual == 0:
            for j in range(1, virtual):
                starts[j] = before + j * (hidden // virtual)
        else:
            for j in range(1, virtual):
                starts[j] = before - 1 + j * ((hidden + OTHER_LAYERS) // virtual)
        for j in range(virtual):
            end = starts[j + 1] if j + 1 < virtual else count
            remaining = max_recompute[p]
            for i in range(starts[j], end):
                layer = order.layer[begin + i]
                index = out.first_count[p] + j * out.layers[p] + layer
                out.layer_counts[index] += 1
                if remaining > 0 and kind[first[p] + layer] == HIDDEN:
                    out.recompute_counts[index] += 1
                    remaining -= 1
            out.first_layer[out.offset[p] + j] = order.layer[begin + starts[j]]
            out.last_layer[out.offset[p] + j] = order.layer[begin + end - 1]


@kernel
def crossings(graph: Graph, chunks: Chunks) -> Ints:
    """Return the number of a kernel's layers whose output goes to another stage, (kernels,)."""
    counts = np.zeros(graph.point.size, dtype=np.int64)
    for p in range(graph.offset.size - 1):
        for row in range(graph.offset[p], graph.offset[p + 1]):
            if graph.comm.sent_cols[row] == 0 or graph.phase[row] > BACKWARD:
                continue
            for j in range(chunks.offset[p], chunks.offset[p + 1] - 1):
                if chunks.stage[j] == chunks.stage[j + 1]:
                    continue
                at_border = chunks.last_layer[j] if graph.phase[row] == FORWARD else chunks.first_layer[j + 1]
                counts[row] += at_border == graph.layer.number[row]
    return counts


@kernel
def max_chunked_stage_sum(graph: Graph, chunks: Chunks, stages: Ints, values: Floats) -> Floats:
    """Return the sum of a quantity over the stage that has most of it, (points,).

    values: of all layers of a kernel's run, (kernels,).
    """
    largest = np.zeros(stages.size)
    for p in range(stages.size):
        layer_sums, layers = np.zeros(chunks.layers[p]), chunks.layers[p]
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer_sums[graph.layer.number[row]] += values[row] / graph.launches.times[row]
        stage_sums = np.zeros(stages[p])
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            for layer in range(layers):
                stage_sums[chunks.stage[chunks.offset[p] + j]] += (
                    chunks.layer_counts[chunks.first_count[p] + j * layers + layer] * layer_sums[layer]
                )
        for stage in range(stages[p]):
            largest[p] = max(largest[p], stage_sums[stage])
    return largest


@kernel
def recompute_launches_of(graph: Graph, chunks: Chunks, microbatches: Ints) -> Ints:
    """Return the launches of every kernel for recomputation in an iteration, (kernels,)."""
    launches = np.zeros(graph.point.size, dtype=np.int64)
    for p in range(graph.offset.size - 1):
        layers = chunks.layers[p]
        recompute_counts = np.zeros(layers, dtype=np.int64)
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            for layer in range(layers):
                recompute_counts[layer] += chunks.recompute_counts[chunks.first_count[p] + j * layers + layer]
        for row in range(graph.offset[p], graph.offset[p + 1]):
            if graph.phase[row] == FORWARD:
                of_module = graph.memory.modules[row]
                of_layer = recompute_counts[graph.layer.number[row]]
                times = graph.launches.times[row] if is_recomputed(of_module, chunks.modules[p]) else of_layer
                if of_module == NEVER:
                    times = 0
                launches[row] = graph.launches.repeat[row] * microbatches[p] * times
    return launches
