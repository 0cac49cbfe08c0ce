"""Exposed communication: time that kernels wait for the network, by purpose, of graphs with layer runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.parallelism.mesh import axes as axes_of
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.schedule.layer_times import CONTEXT, EXPERT, GRADIENTS, TENSOR, WAITS, WEIGHTS, Waits
from fastflow.physics.workload.graph import ALL_TO_ALL, EXPERTS, Graph


def waits_of(
    graph: Graph, shards: Supergraph, syncs: Sequence[tuple[Floats, Ints]], summed: Floats, columns: int
) -> Waits:
    """Return the time that one launch of every kernel waits for the network, by purpose.

    syncs: time [s] and network's level of each of shards.syncs, (kernels,); summed: time of the
    reduction of its weight gradients, where that is waited for too [s], (kernels,); columns: of the layouts.
    """
    count = shards.kernels.m.size
    time, longest = np.zeros((len(WAITS), count)), np.zeros(count)
    level, collective = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    ranks = np.ones(count, dtype=np.int64)
    purpose = np.array([_purpose(axes) for axes in shards.groups.sets], dtype=np.int64)
    for edges, (edge_s, of_level) in zip(shards.syncs, syncs, strict=True):
        kind = purpose[edges.group // columns]
        if edges is shards.fetch:
            kind[:] = WEIGHTS
        elif edges is not shards.relayout:
            of_experts = (kind != CONTEXT) | (graph.layer.part == EXPERTS)
            is_dispatch = (edges.collective == ALL_TO_ALL) & of_experts
            kind[is_dispatch] = EXPERT
        time[kind, np.arange(count)] += edge_s
        longer = edge_s > longest
        longest = np.where(longer, edge_s, longest)
        level, ranks = np.where(longer, of_level, level), np.where(longer, edges.ranks, ranks)
        collective = np.where(longer, edges.collective, collective)
    time[GRADIENTS] = summed
    return Waits(time, level, ranks, collective)


def _purpose(axes: int) -> int:
    """Return the purpose of a collective along a set of axes."""
    if axes == axes_of("cp"):
        return CONTEXT
    return EXPERT if axes & axes_of("ep") else TENSOR
