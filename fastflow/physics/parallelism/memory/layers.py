"""Weights and activations of each layer, of graphs with layer runs; and offloading to the host.

Offloaded tensors move over the link to the host, in both directions at once, during the kernels: the
optimizer's states and masters in and out for the update (Rajbhandari et al., ZeRO-Infinity,
arXiv:2104.07857), activations out after a layer's forward pass and in before its backward pass. Hidden
layers move their activations, or their checkpoints where they are recomputed (DeepSpeed's cpu_checkpointing,
deepspeed/runtime/activation_checkpointing/checkpointing.py). Activations of embedding and head are on the
device alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.defaults import zero_stage
from fastflow.physics.parallelism.options import OFFLOADS
from fastflow.physics.parallelism.sharding.local_graph import LocalKernels
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.workload.graph import (
    BASE,
    BASE_BYTES,
    FORWARD,
    FROZEN,
    HIDDEN,
    ON_WEIGHTS,
    TRAINED,
    Graph,
    max_by_point,
)
from fastflow.physics.workload.precision import Precision

_, OPTIMIZER, ACTIVATIONS, ALL = OFFLOADS


class LayerMemory(NamedTuple):
    """Elements of one layer on one device; (layers of all points,), of one micro-batch."""

    first: Ints  # point p has layers first[p] to first[p + 1]
    weights: Floats
    sharded_weights: Floats  # of the weights, sharded over the devices that have the same ones
    # weights without gradient and optimizer state; those of a base by their bytes, as a share of a trained
    # weight's, and sharded where `sharded_base` says so: other frozen weights no devices shard
    frozen: Floats
    activations: Floats  # for the backward pass
    activations_without_recompute: Floats  # for the backward pass, if nothing were recomputed
    checkpoint: Floats  # its input, kept where all of the layer is recomputed
    output: Floats  # the output of its last kernel
    sent: Floats  # its output, and all else that layers above read of it and of those below: a stage gets it
    hidden: Bools  # whether it is a hidden layer, whose activations may be offloaded
    copied_weights: Floats  # weights of which the last of several stages has a copy, (points,)
    copied_sharded_weights: Floats  # the same of sharded weights


class Offload(NamedTuple):
    """Tensors in the host's memory; (points,)."""

    optimizer: Bools
    activations: Bools
    bandwidth: Floats  # of a device's link to the host, one direction [B/s]


def offload_of(inputs: Inputs) -> Offload:
    """Return which tensors points offload; inputs: `parallel.offload`, `parallel.host_bandwidth`."""
    offloaded = inputs["parallel.offload"]
    return Offload(
        optimizer=(offloaded == OPTIMIZER) | (offloaded == ALL),
        activations=(offloaded == ACTIVATIONS) | (offloaded == ALL),
        bandwidth=np.array(inputs["parallel.host_bandwidth"]),  # a column that kernels take
    )


@lean_kernel
def owned_weights(graph: Graph, local: LocalKernels, row: int, which: int) -> float:
    """Return one device's share of a kernel's weights [elements], 0 if they are not `which`, as TRAINED."""
    if graph.memory.weights[row] != which:
        return 0.0
    return float(1.0 * local.batch[row] * local.inner[row] * local.cols[row])


@lean_kernel
def kept_activations(graph: Graph, local: LocalKernels, row: int, with_activations: bool) -> float:
    """Return the activations of a kernel kept for the backward pass of one micro-batch [elements].

    with_activations: those sharded like the layer's activations too, not only those that products read.
    """
    cols, memory = graph.cols[row], graph.memory
    elements = local.read_rows[row] * (memory.saved_whole_cols[row] * (local.read_cols[row] / cols))
    if with_activations:
        elements += (
            1.0 * local.activation_rows[row] * memory.saved_cols[row] * (local.activation_cols[row] / cols)
        )
    return float(1.0 * graph.launches.repeat[row] * graph.launches.batch[row] * elements)


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
    memory = _layer_memory(graph.numbers, local, chunks, first, copies)
    if BASE_BYTES not in graph.attributes:
        return memory
    rows = np.flatnonzero(graph.memory.weights == BASE)
    point = graph.point[rows]
    elements = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    elements = np.where(sharded_base(inputs)[point], np.ceil(elements / local.owners[rows]), elements)
    elements *= graph.attributes[BASE_BYTES][rows] / precision.weight[point]
    of_layers = np.bincount(first[point] + graph.layer.number[rows], elements, int(first[-1]))
    return memory._replace(frozen=memory.frozen + of_layers)


def sharded_base(inputs: Inputs) -> Bools:
    """Return whether devices with the same weights shard those of a frozen base, as ZeRO-3 does; (points,).

    inputs: as of `zero_stage`, and `parallel.reshard_after_forward`.
    """
    shards: Bools = (zero_stage(inputs) >= 3) & inputs["parallel.reshard_after_forward"]
    return shards


def conversion_buffer(graph: Graph, local: LocalKernels, precision: Precision) -> Floats:
    """Return the bytes of the largest weights that a pass converts before their product, (points,).

    Of experts those of one expert, since each is converted for itself.
    """
    converts = (graph.kind == ON_WEIGHTS) & (graph.phase == FORWARD)
    elements = np.where(converts, 1.0 * local.inner * local.cols, 0.0)
    return max_by_point(graph, elements) * precision.operand


@kernel
def _layer_memory(
    graph: Graph, local: LocalKernels, chunks: Chunks, first: Ints, copies: Bools
) -> LayerMemory:
    """Return `layer_memory`; first: where the layers of each point begin, (points + 1,)."""
    layers = first[-1]
    out = LayerMemory(
        first=first,
        weights=np.zeros(layers),
        sharded_weights=np.zeros(layers),
        frozen=np.zeros(layers),
        activations=np.zeros(layers),
        activations_without_recompute=np.zeros(layers),
        checkpoint=np.zeros(layers),
        output=np.zeros(layers),
        sent=np.zeros(layers),
        hidden=np.zeros(layers, dtype=np.bool_),
        copied_weights=np.zeros(first.size - 1),
        copied_sharded_weights=np.zeros(first.size - 1),
    )
    for p in range(first.size - 1):
        embedding = graph.offset[p]  # the first kernel
        if copies[p]:
            out.copied_weights[p] = owned_weights(graph, local, embedding, TRAINED)
            out.copied_sharded_weights[p] = np.ceil(out.copied_weights[p] / local.owners[embedding])
        for row in range(graph.offset[p], graph.offset[p + 1]):
            index, owned = first[p] + graph.layer.number[row], owned_weights(graph, local, row, TRAINED)
            out.weights[index] += owned
            out.frozen[index] += owned_weights(graph, local, row, FROZEN)
            out.hidden[index] |= graph.layer.kind[row] == HIDDEN
            out.sharded_weights[index] += np.ceil(owned / local.owners[row])
            if graph.phase[row] != FORWARD:
                continue
            activations = kept_activations(graph, local, row, True)
            out.activations_without_recompute[index] += activations
            # the output of the core is kept
            if chunks.recomputes_core[p] and graph.memory.selective[row] > 0:
                activations = kept_activations(graph, local, row, False)
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
