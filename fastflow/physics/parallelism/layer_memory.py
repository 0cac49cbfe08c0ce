"""What one layer owns and keeps, where a graph has one layer for several alike; and what lies with the host.

What is offloaded moves over the link to the host, in both directions at once, beside the kernels: the
optimizer's states and masters in and out for the update (Rajbhandari et al., ZeRO-Infinity,
arXiv:2104.07857), activations out after a layer's forward pass and in before its backward pass. What hidden
layers keep moves, where they are computed again what they read (DeepSpeed's cpu_checkpointing, deepspeed/
runtime/activation_checkpointing/checkpointing.py); what embedding and head keep stays on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.options import OFFLOADS
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.workload.graph import FORWARD, HIDDEN, Graph

_, OPTIMIZER, ACTIVATIONS, ALL = OFFLOADS


class LayerMemory(NamedTuple):
    """Elements of one layer on one device; (layers of all points,), of one micro-batch."""

    first: Ints  # point p has layers first[p] to first[p + 1]
    weights: Floats
    parts: Floats  # of the weights, where devices with the same weights share them
    kept: Floats  # for the backward pass
    whole: Floats  # the same if nothing were computed again
    border: Floats  # what it reads: kept where all of it is computed again
    hidden: Bools  # whether it is a hidden layer, whose activations may lie with the host
    copied: Floats  # weights of which the last one of several stages has a copy, (points,)
    copied_parts: Floats  # the same of parts of the weights


class Offload(NamedTuple):
    """What lies in the host's memory; (points,)."""

    optimizer: Bools
    activations: Bools
    bandwidth: Floats  # of a device's link to the host, one direction [B/s]


def offload_of(inputs: Inputs) -> Offload:
    """Return what points offload; inputs: `parallel.offload`, `parallel.host_bandwidth`."""
    what = inputs["parallel.offload"]
    return Offload(
        optimizer=(what == OPTIMIZER) | (what == ALL),
        activations=(what == ACTIVATIONS) | (what == ALL),
        bandwidth=np.array(inputs["parallel.host_bandwidth"]),  # a column that kernels take
    )


@lean_kernel
def owned_weights(graph: Graph, shards: Supergraph, row: int) -> float:
    """Return the weights of which a kernel has one device's share [elements]."""
    owned = 1.0 * graph.weights[row] * shards.batch[row]
    return float(owned * shards.inner[row] * shards.cols[row])


@lean_kernel
def kept_of_kernel(graph: Graph, shards: Supergraph, row: int, in_parts: bool) -> float:
    """Return what is kept of a kernel for the backward pass of one micro-batch [elements].

    in_parts: with what is cut as the layer's activations are, beside what is kept as products read it.
    """
    cols = graph.cols[row]
    kept = shards.read_rows[row] * (graph.saved_whole_cols[row] * (shards.read_cols[row] / cols))
    if in_parts:
        kept += (
            1.0 * shards.activation_rows[row] * graph.saved_cols[row] * (shards.activation_cols[row] / cols)
        )
    return float(1.0 * graph.repeat[row] * graph.batch[row] * kept)


def layer_memory(
    graph: Graph, shards: Supergraph, chunks: Chunks | None, copies: Bools
) -> LayerMemory | None:
    """Return what every layer of every point owns and keeps, None where layers do not stand for several.

    copies: whether the last one of several stages has a copy of the embedding's table, (points,).
    """
    if chunks is None:
        return None
    first = np.concatenate([[0], np.cumsum(chunks.layers)])
    return _layer_memory(graph.numbers, shards.numbers, chunks, first, copies)


@kernel
def _layer_memory(
    graph: Graph, shards: Supergraph, chunks: Chunks, first: Ints, copies: Bools
) -> LayerMemory:
    """Return it; first: where the layers of each point begin, (points + 1,)."""
    layers = first[-1]
    out = LayerMemory(
        first=first,
        weights=np.zeros(layers),
        parts=np.zeros(layers),
        kept=np.zeros(layers),
        whole=np.zeros(layers),
        border=np.zeros(layers),
        hidden=np.zeros(layers, dtype=np.bool_),
        copied=np.zeros(first.size - 1),
        copied_parts=np.zeros(first.size - 1),
    )
    for p in range(first.size - 1):
        table = graph.offset[p]  # the first kernel looks words up
        if copies[p]:
            out.copied[p] = owned_weights(graph, shards, table)
            out.copied_parts[p] = np.ceil(out.copied[p] / shards.owners[table])
        for row in range(graph.offset[p], graph.offset[p + 1]):
            at, owned = first[p] + graph.layer[row], owned_weights(graph, shards, row)
            out.weights[at] += owned
            out.hidden[at] |= graph.layer_kind[row] == HIDDEN
            out.parts[at] += np.ceil(owned / shards.owners[row])
            if graph.phase[row] != FORWARD:
                continue
            kept = kept_of_kernel(graph, shards, row, True)
            out.whole[at] += kept
            if chunks.core[p] and graph.selective[row] > 0:  # what leaves the core is kept
                kept = kept_of_kernel(graph, shards, row, False)
            out.kept[at] += kept
            if graph.sends_cols[row] > 0:  # what a layer makes is as large as what it reads
                share = shards.activation_cols[row] / graph.cols[row]
                out.border[at] = shards.activation_rows[row] * graph.sends_cols[row] * share
    return out
