"""One device's share of a graph: local sizes, and the cross-edges between devices (3.3, 5.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.parallelism.sharding.tables import Groups
from fastflow.physics.workload.sharding_rules import ShardingRule, Share


class CrossEdges(NamedTuple):
    """An exchange a kernel, along some axes of the mesh; shape (kernels,)."""

    collective: Ints  # of workload.graph.COLLECTIVES
    bytes: Floats  # of the whole tensor, as each device holds it before or after
    ranks: Ints
    group: Ints  # of devices: the number of a set of axes x kinds of layer + the kind


class FusedShares(NamedTuple):
    """The kernels of one type with a timing function."""

    type: ShardingRule
    rows: Ints  # of the graph
    share: Share


class LocalKernels(NamedTuple):
    """Sizes of one device's share of every kernel, of one micro-batch; shape (kernels,)."""

    m: Ints  # local GEMM, C[m, n] = A[m, k] B[k, n]; 0 where the kernel is no GEMM
    k: Ints
    n: Ints
    batch: Ints  # GEMMs in a launch
    elements: Floats  # local elements of a memory-bound pass; 0 for a GEMM
    rows: Ints  # local dimensions of the layer
    inner: Ints
    cols: Ints
    activation_rows: Ints  # rows and columns of an activation that a device has
    activation_cols: Ints
    read_rows: Ints  # rows and columns of it that the next product reads
    read_cols: Ints
    owners: Ints  # devices with the same weights, which ZeRO shards over them


class Supergraph(NamedTuple):
    """One device's share of a graph, and the exchanges after its kernels; rows as in the graph."""

    kernels: LocalKernels
    sync: CrossEdges  # follows the kernel, every launch, and is waited for
    further: tuple[CrossEdges, ...]  # the same, of kernels with more than one
    relayout: CrossEdges  # the same as sync, where the tensor's producer or reader has another layout
    fetch: CrossEdges  # of weights sharded by ZeRO, waited for
    gradient: CrossEdges  # starts when the kernel is done, and may overlap with later kernels
    replicas: CrossEdges  # follows that, where several devices have the same shard of the weights
    send: CrossEdges  # to the neighbouring stage, at the last layer of a stage
    groups: Groups
    fused: tuple[FusedShares, ...]

    @property
    def syncs(self) -> tuple[CrossEdges, ...]:
        """All exchanges that kernels wait for: `sync`, and the others that some point has."""
        others = (*self.further, self.relayout, self.fetch)
        return (self.sync, *(edges for edges in others if edges.collective.any()))

    @property
    def waited(self) -> Ints:
        """The collective that is waited for after every kernel, the first of several."""
        collective = self.sync.collective
        for edges in self.syncs[1:]:
            collective = np.where(collective > 0, collective, edges.collective)
        return collective
