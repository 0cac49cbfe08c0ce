"""How layers are dealt to the stages of a pipeline, where a graph has one layer for several alike.

A stage has one or more *chunks* of neighbouring layers (Narayanan et al., SC 2021, section 2.2): chunk c
of stage s is virtual stage c x stages + s, in the order of the model. Layers are dealt evenly; embedding and
head come on top, on the first and the last virtual stage, or count as a layer each where only that divides
(Megatron-LM's account_for_embedding_in_pipeline_split). Or they are balanced, so that the slowest stage takes
as little as it can.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Reasons, Texts
from fastflow.physics.parallelism.options import AUTO, SPLITS
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.schedule.pipeline_order import balance
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import BACKWARD, FORWARD, HIDDEN, Graph


class Chunks(NamedTuple):
    """What every virtual stage holds. Layers are those of the graph, of which each stands for several."""

    offset: Ints  # point p has virtual stages offset[p] to offset[p + 1]
    layers: Ints  # of a point's graph, (points,)
    at: Ints  # where a point's part of `held` begins, (points + 1,)
    held: Ints  # how many of each layer, (virtual stage, layer) of every point, flat
    again: Ints  # those of them that the backward pass computes again, the first ones of a virtual stage
    core: Bools  # whether it does so with the core of attention in the others, (points,)
    first: Ints  # the layer that each virtual stage begins with, (virtual stages,)
    last: Ints  # that it ends with


_, EVEN, BALANCED = SPLITS
NONE, SELECTIVE, FULL = "none", "selective", "full"
RECOMPUTE = "parallel.recompute"
OTHER_LAYERS = 2  # embedding and head, which may count as layers
_EVERY = np.iinfo(np.int64).max


def recomputed(texts: Texts) -> tuple[Ints, Bools]:
    """Return how many layers of a virtual stage are computed again at most, and whether attention's core is.

    texts: `parallel.recompute`; a number is that of layers (Megatron-LM's recompute_num_layers).
    Raises InputError.
    """
    known, place = factorize(texts)
    of_word = {AUTO: 0, NONE: 0, SELECTIVE: 0, FULL: _EVERY}
    for one in known:
        if one not in of_word and not re.fullmatch(r"[0-9]{1,9}", one):
            raise InputError(RECOMPUTE, one, f"{', '.join(of_word)} or a whole number of layers")
    layers = np.array([of_word[one] if one in of_word else int(one) for one in known], dtype=np.int64)
    return layers[place], texts == SELECTIVE


def recompute_of(inputs: Inputs) -> Texts:
    """Return what every point computes again, (points,): nothing where there is no backward pass.

    inputs: `model.training`, `parallel.recompute`.
    """
    return np.where(inputs["model.training"], inputs[RECOMPUTE], NONE)


def layer_kinds(graph: Graph) -> tuple[Ints, Ints]:
    """Return the kind of every layer of the points' graphs, and where each point's begin, (points + 1,)."""
    layers = _count_layers(graph.offset, graph.layer)
    first = np.concatenate([[0], np.cumsum(layers)])
    kind = np.zeros(first[-1], dtype=np.int64)
    kind[first[graph.point] + graph.layer] = graph.layer_kind
    return kind, first


@kernel
def _count_layers(offset: Ints, layer: Ints) -> Ints:
    layers = np.zeros(offset.size - 1, dtype=np.int64)
    for p in range(layers.size):
        for row in range(offset[p], offset[p + 1]):
            layers[p] = max(layers[p], layer[row] + 1)
    return layers


class LayerPartition(NamedTuple):
    """What layers there are to deal, counted once; (points,) but for `kind` and `first`."""

    order: Order
    kind: Ints  # of every layer of the graphs, (layers of all points,)
    first: Ints  # where each point's layers begin, (points + 1,)
    before: Ints  # layers before the first hidden one
    hidden: Ints
    virtual: Ints  # stages times chunks


def layer_partition_of(graph: Graph, order: Order | None, strategies: Strategies) -> LayerPartition | None:
    """Count the layers of every point; None where a graph has each layer of its model (order: None)."""
    if order is None:
        return None
    kind, first = layer_kinds(graph)
    points = order.offset.size - 1
    point = np.repeat(np.arange(points), np.diff(order.offset))
    hidden = kind[first[point] + order.layer] == HIDDEN
    place = np.arange(point.size) - order.offset[:-1][point]
    count = np.bincount(point[hidden], minlength=points)
    begin = np.full(points, np.iinfo(np.int64).max)
    np.minimum.at(begin, point[hidden], place[hidden])
    before = np.where(count > 0, begin, 0)
    return LayerPartition(order, kind, first, before, count, strategies.lp * strategies.chunks)


def divides(virtual: Ints, layers: Ints) -> Bools:
    """Say whether virtual stages divide layers, or these with embedding and head."""
    every = layers + OTHER_LAYERS
    found: Bools = (layers % virtual == 0) | ((every % virtual == 0) & (every > virtual))
    return found


def invalid_pipeline_partition(partition: LayerPartition, strategies: Strategies, inputs: Inputs) -> Texts:
    """Say for every point why its layers cannot be dealt so; or "", (points,). inputs: `parallel.split`,
    `.strategy`.
    """
    stages, chunks, even = strategies.lp, strategies.chunks, inputs["parallel.split"] != BALANCED
    reason = Reasons(stages.size)
    for i in reason.without(even & (partition.virtual > 1) & ~divides(partition.virtual, partition.hidden)):
        parts = f"{stages[i]} stages" if chunks[i] == 1 else f"{stages[i]} stages of {chunks[i]} chunks"
        allowed = f"a strategy whose {parts} divide the {partition.hidden[i]} layers, or those and two"
        if chunks[i] == 1 and stages[i] <= partition.hidden[i]:
            allowed += f"; or parallel.split={BALANCED}"
        reason.add(i, str(InputError("parallel.strategy", inputs["parallel.strategy"][i], allowed)))
    return reason.texts()


def deal(graph: Graph, partition: LayerPartition, even: Bools, recompute: Texts, kernel_s: Floats) -> Chunks:
    """Deal the layers of every point to its virtual stages.

    even (else balanced, of one chunk each), recompute: (points,); kernel_s: what every kernel takes in an
    iteration, of all layers that it stands for [s], (kernels,).
    """
    first, layers = partition.first, np.diff(partition.first)
    at = np.concatenate([[0], np.cumsum(partition.virtual * layers)])
    offset = np.concatenate([[0], np.cumsum(partition.virtual)])
    held, again = np.zeros((2, at[-1]), dtype=np.int64)
    begins, ends = np.zeros((2, offset[-1]), dtype=np.int64)
    most, core = recomputed(recompute)
    own = np.zeros(first[-1])
    np.add.at(own, first[graph.point] + graph.layer, kernel_s / graph.times)
    chunked = Chunks(offset, layers, at, held, again, core, begins, ends)
    _deal(partition, even, most, own, chunked)
    return chunked


@kernel
def _deal(partition: LayerPartition, even: Bools, most: Ints, layer_s: Floats, out: Chunks) -> None:
    """Write what virtual stages hold.

    most: layers of each that are computed again, (points,); layer_s: of each of the graph's layers [s].
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
        if virtual > 1 and not even[p]:
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
            left = most[p]
            for i in range(starts[j], end):
                layer = order.layer[begin + i]
                at = out.at[p] + j * out.layers[p] + layer
                out.held[at] += 1
                if left > 0 and kind[first[p] + layer] == HIDDEN:
                    out.again[at] += 1
                    left -= 1
            out.first[out.offset[p] + j] = order.layer[begin + starts[j]]
            out.last[out.offset[p] + j] = order.layer[begin + end - 1]


@kernel
def crossings(graph: Graph, chunks: Chunks) -> Ints:
    """Return how many of a kernel's layers send what it makes to another stage, (kernels,)."""
    found = np.zeros(graph.point.size, dtype=np.int64)
    for p in range(graph.offset.size - 1):
        for row in range(graph.offset[p], graph.offset[p + 1]):
            if graph.sends_cols[row] == 0 or graph.phase[row] > BACKWARD:
                continue
            for j in range(chunks.offset[p], chunks.offset[p + 1] - 1):
                at_border = chunks.last[j] if graph.phase[row] == FORWARD else chunks.first[j + 1]
                found[row] += at_border == graph.layer[row]
    return found


@kernel
def most_of_chunks(graph: Graph, chunks: Chunks, stages: Ints, values: Floats) -> Floats:
    """Return the sum of a quantity over the stage that has most of it, (points,).

    values: of all layers that a kernel stands for, (kernels,).
    """
    most = np.zeros(stages.size)
    for p in range(stages.size):
        of_layer, layers = np.zeros(chunks.layers[p]), chunks.layers[p]
        for row in range(graph.offset[p], graph.offset[p + 1]):
            of_layer[graph.layer[row]] += values[row] / graph.times[row]
        of_stage = np.zeros(stages[p])
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            for layer in range(layers):
                of_stage[j % stages[p]] += chunks.held[chunks.at[p] + j * layers + layer] * of_layer[layer]
        for stage in range(stages[p]):
            most[p] = max(most[p], of_stage[stage])
    return most


@kernel
def launched_again(graph: Graph, chunks: Chunks, microbatches: Ints) -> Ints:
    """Return how often every kernel is launched again in an iteration for the backward pass, (kernels,)."""
    found = np.zeros(graph.point.size, dtype=np.int64)
    for p in range(graph.offset.size - 1):
        layers = chunks.layers[p]
        again = np.zeros(layers, dtype=np.int64)
        for j in range(chunks.offset[p + 1] - chunks.offset[p]):
            for layer in range(layers):
                again[layer] += chunks.again[chunks.at[p] + j * layers + layer]
        for row in range(graph.offset[p], graph.offset[p + 1]):
            if graph.phase[row] == FORWARD:
                core = chunks.core[p] and graph.selective[row] > 0
                times = graph.times[row] if core else again[graph.layer[row]]
                found[row] = graph.repeat[row] * microbatches[p] * times
    return found
