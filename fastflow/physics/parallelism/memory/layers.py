"""Weights and activations of each layer, of graphs with layer runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.defaults import frees_weights
from fastflow.physics.parallelism.sharding.local_graph import LocalKernels
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.workload.graph import (
    BASE,
    BASE_BYTES,
    FORWARD,
    FROZEN,
    HEAD,
    HIDDEN,
    ON_WEIGHTS,
    PRODUCT,
    TRAINED,
    Graph,
    max_by_point,
)
from fastflow.physics.workload.optimizers import StateNumbers, state_numbers
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.recompute_modules import KEEPS_OUTPUT, is_recomputed


class LayerMemory(NamedTuple):
    """Elements of one layer on one device; (layers of all points,), of one micro-batch."""

    first: Ints  # point p has layers first[p] to first[p + 1]
    weights: Floats
    sharded_weights: Floats  # of the weights, sharded over the devices that have the same ones
    states: Floats  # numbers of optimizer state of the weights
    sharded_states: Floats  # the same of sharded weights
    # weights without gradient and optimizer state; those of a base by their bytes, as a share of a trained
    # weight's, and sharded where `frees_weights` says so: other frozen weights no devices shard
    frozen: Floats
    activations: Floats  # for the backward pass
    activations_without_recompute: Floats  # for the backward pass, if nothing were recomputed
    recomputed_activations: Floats  # for the backward pass, by modules that are recomputed
    transient: Floats  # that a device has during a kernel, such as a chunk of logits; the most of any
    checkpoint: Floats  # its input, kept where all of the layer is recomputed
    output: Floats  # the output of its last kernel
    sent: Floats  # its output, and all else that layers above read of it and of those below: a stage gets it
    hidden: Bools  # whether it is a hidden layer, whose activations may be offloaded
    copied_weights: Floats  # weights of which the last of several stages has a copy, (points,)
    copied_sharded_weights: Floats  # the same of sharded weights
    copied_states: Floats  # numbers of optimizer state of these copies
    copied_sharded_states: Floats


@lean_kernel
def owned_weights(graph: Graph, local: LocalKernels, row: int, which: int) -> float:
    """Return one device's share of a kernel's weights [elements], 0 if they are not `which`, as TRAINED."""
    if graph.memory.weights[row] != which:
        return 0.0
    return float(1.0 * local.batch[row] * local.inner[row] * local.cols[row])


@lean_kernel
def kept_activations(graph: Graph, local: LocalKernels, row: int) -> float:
    """Return the activations of a kernel kept for the backward pass of one micro-batch [elements]."""
    cols, memory = graph.cols[row], graph.memory
    elements = local.read_rows[row] * (memory.saved_whole_cols[row] * (local.read_cols[row] / cols))
    elements += (
        1.0 * local.activation_rows[row] * memory.saved_cols[row] * (local.activation_cols[row] / cols)
    )
    return float(1.0 * graph.launches.repeat[row] * graph.launches.batch[row] * elements)


@lean_kernel
def transient_activations(graph: Graph, local: LocalKernels, row: int) -> float:
    """Return the activations that a device has only during one launch of a kernel [elements]."""
    share = local.activation_cols[row] / graph.cols[row]
    return float(
        1.0 * graph.launches.batch[row] * local.activation_rows[row]
        * graph.memory.transient_cols[row] * share
    )  # fmt: skip


@lean_kernel
def owned_states(graph: Graph, local: LocalKernels, row: int, weights: float, states: StateNumbers) -> float:
    """Return the numbers of optimizer state of some of a kernel's weights on a device.

    weights: how many of them; states: of each point's optimizer.
    """
    p = graph.point[row]
    if states.factored[p]:
        return float(weights * (1.0 / local.inner[row] + 1.0 / local.cols[row]))
    is_matrix = graph.kind[row] == PRODUCT and graph.layer.part[row] != HEAD
    return float(weights * (states.matrix[p] if is_matrix else states.other[p]))


def layer_memory(
    graph: Graph, local: LocalKernels, chunks: Chunks | None, copies: Bools, inputs: Inputs,
    precision: Precision,
) -> LayerMemory | None:  # fmt: skip
    """Return weights and activations of every layer of every point, None of graphs without layer runs.

    copies: whether the last of several stages has a copy of the embedding's table, (points,); inputs, and
    bytes of a trained weight: read of graphs with a frozen base.
    """
    if chunks is None:
        return None
    first = np.concatenate([[0], np.cumsum(chunks.layers)])
    memory = _layer_memory(graph.numbers, local, chunks, first, copies, state_numbers(precision.optimizer))
    if BASE_BYTES not in graph.attributes:
        return memory
    rows = np.flatnonzero(graph.memory.weights == BASE)
    point = graph.point[rows]
    elements = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    elements = np.where(frees_weights(inputs)[point], np.ceil(elements / local.owners[rows]), elements)
    elements *= graph.attributes[BASE_BYTES][rows] / precision.weight[point]
    of_layers = np.bincount(first[point] + graph.layer.number[rows], elements, int(first[-1]))
    return memory._replace(frozen=memory.frozen + of_layers)


def conversion_buffer(graph: Graph, local: LocalKernels, precision: Precision) -> Floats:
    """Return the bytes of the largest weights that a pass converts before their product, (points,).

    Of experts those of one expert, since each is converted for itself.
    """
    converts = (graph.kind == ON_WEIGHTS) & (graph.phase == FORWARD)
    elements = np.where(converts, 1.0 * local.inner * local.cols, 0.0)
    return max_by_point(graph, elements) * precision.operand


@kernel
def _layer_memory(
    graph: Graph, local: LocalKernels, chunks: Chunks, first: Ints, copies: Bools, states: StateNumbers
) -> LayerMemory:
    """Return `layer_memory`; first: where the layers of each point begin, (points + 1,)."""
    layers = first[-1]
    out = LayerMemory(
        first=first,
        weights=np.zeros(layers),
        sharded_weights=np.zeros(layers),
        states=np.zeros(layers),
        sharded_states=np.zeros(layers),
        frozen=np.zeros(layers),
        activations=np.zeros(layers),
        activations_without_recompute=np.zeros(layers),
        recomputed_activations=np.zeros(layers),
        transient=np.zeros(layers),
        checkpoint=np.zeros(layers),
        output=np.zeros(layers),
        sent=np.zeros(layers),
        hidden=np.zeros(layers, dtype=np.bool_),
        copied_weights=np.zeros(first.size - 1),
        copied_sharded_weights=np.zeros(first.size - 1),
        copied_states=np.zeros(first.size - 1),
        copied_sharded_states=np.zeros(first.size - 1),
    )
    for p in range(first.size - 1):
        embedding = graph.offset[p]  # the first kernel
        if copies[p]:
            out.copied_weights[p] = owned_weights(graph, local, embedding, TRAINED)
            copied = out.copied_weights[p]
            sharded = out.copied_sharded_weights[p] = np.ceil(copied / local.owners[embedding])
            out.copied_states[p] = owned_states(graph, local, embedding, copied, states)
            out.copied_sharded_states[p] = owned_states(graph, local, embedding, sharded, states)
        for row in range(graph.offset[p], graph.offset[p + 1]):
            index, owned = first[p] + graph.layer.number[row], owned_weights(graph, local, row, TRAINED)
            out.weights[index] += owned
            out.frozen[index] += owned_weights(graph, local, row, FROZEN)
            out.hidden[index] |= graph.layer.kind[row] == HIDDEN
            sharded = np.ceil(owned / local.owners[row])
            out.sharded_weights[index] += sharded
            out.states[index] += owned_states(graph, local, row, owned, states)
            out.sharded_states[index] += owned_states(graph, local, row, sharded, states)
            if graph.phase[row] != FORWARD:
                continue
            activations = kept_activations(graph, local, row)
            out.activations_without_recompute[index] += activations
            transient = transient_activations(graph, local, row)
            out.transient[index] = max(out.transient[index], transient)
            of_module = graph.memory.modules[row]
            if is_recomputed(of_module, chunks.modules[p]) and not of_module & KEEPS_OUTPUT:
                out.recomputed_activations[index] += activations
                activations = 0.0
            out.activations[index] += activations
            sent_cols = graph.comm.sent_cols[row]
            if sent_cols > 0:
                share = local.activation_cols[row] / graph.cols[row]
                out.sent[index] = local.activation_rows[row] * sent_cols * share
                out.output[index] = local.activation_rows[row] * min(sent_cols, graph.cols[row]) * share
                # a layer's output is as large as its input; of what layers above read, a run of layers makes
                # its output alone, and a single layer all of it
                is_run = graph.launches.times[row] > 1 or graph.layer.kind[row] != HIDDEN
                out.checkpoint[index] = out.output[index] if is_run else out.sent[index]
    return out
