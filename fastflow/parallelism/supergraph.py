"""The compute graph cut by a strategy: one device's kernels and what they exchange (3.3, 5.1).

All devices of a data or kernel parallel group do the same at the same time (6.5), so the cut
graph is that of one device. Where a dimension does not divide evenly, the largest shard counts.

    Row-Column, KP1 x KP2: rows by KP1, columns by KP2; the layer's output is gathered along KP2,
        dX is a partial sum along KP2, dW along KP1.
    Column-Row, KP1: inner dimension by KP1; the output is a partial sum, reduce-scattered; the
        backward pass gathers dY, and then dX and dW are local.
    Data parallel, DP: rows by DP; weight gradients are summed over DP (and RC's KP1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Floats, Ints
from fastflow.parallelism.strategy import COLUMN_ROW, ROW_COLUMN, Strategies
from fastflow.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    INPUT_GRADIENT,
    NO_EXCHANGE,
    NO_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    SPARSE,
    WEIGHT_GRADIENT,
    Graph,
)


class Exchange(NamedTuple):
    """A collective a kernel; shape (kernels,)."""

    collective: Ints  # of workload.graph.COLLECTIVES
    bytes: Floats  # of the whole tensor, as each device holds it before or after
    ranks: Ints


class Supergraph(NamedTuple):
    """One device's share of every kernel; rows as in the graph, shape (kernels,)."""

    m: Ints  # local GEMM, C[m, n] = A[m, k] B[k, n]; 0 where the kernel is no GEMM
    k: Ints
    n: Ints
    elements: Floats  # local elements of a memory-bound pass; 0 for a GEMM
    rows: Ints  # local dimensions of the layer
    inner: Ints
    cols: Ints
    activation_cols: Ints  # columns of an activation that a device works on
    operand_cols: Ints  # columns of an activation that the next product reads
    sync: Exchange  # follows the kernel, every launch, and is waited for
    gradient: Exchange  # starts when the kernel is done, and may overlap with what comes


class _Shares(NamedTuple):
    """What a point's strategy makes of its kernels; shape (points,)."""

    kernel: Ints  # NO_KERNEL, ROW_COLUMN or COLUMN_ROW
    row_shards: Ints
    inner_shards: Ints
    col_shards: Ints
    ranks: Ints  # devices of one layer, that exchange what the kernel cut needs
    operand: Floats  # [B]


@kernel
def _ceil_div(total: int, shards: int) -> int:
    return -(-total // shards)


@kernel
def _gemm_sizes(kind: int, rows: int, inner: int, cols: int) -> tuple[int, int, int]:
    """Return m, k, n of a kernel's local GEMM from its layer's local dimensions."""
    if kind == PRODUCT:
        return rows, inner, cols
    if kind == INPUT_GRADIENT:
        return rows, cols, inner
    if kind == WEIGHT_GRADIENT:
        return inner, rows, cols
    return 0, 0, 0


@kernel
def _cut_sizes(graph: Graph, shares: _Shares, out: Supergraph) -> None:
    """Write every kernel's local dimensions."""
    for row in range(graph.point.size):
        p, kind = graph.point[row], graph.kind[row]
        rows = graph.rows[row]
        if kind != ON_WEIGHTS:
            rows = _ceil_div(rows, shares.row_shards[p])
        inner = _ceil_div(graph.inner[row], shares.inner_shards[p])
        cols = _ceil_div(graph.cols[row], shares.col_shards[p])
        # an activation is cut along its columns by either kernel cut: CR has scattered it so
        activation_cols = _ceil_div(graph.cols[row], shares.col_shards[p] * shares.inner_shards[p])
        out.m[row], out.k[row], out.n[row] = _gemm_sizes(kind, rows, inner, cols)
        out.elements[row] = 0.0
        if kind == ON_ACTIVATIONS:
            out.elements[row] = 1.0 * rows * activation_cols
        elif kind == ON_WEIGHTS:
            out.elements[row] = 1.0 * graph.batch[row] * inner * cols
        out.rows[row], out.inner[row], out.cols[row] = rows, inner, cols
        out.activation_cols[row] = activation_cols
        out.operand_cols[row] = _ceil_div(graph.cols[row], shares.inner_shards[p])


@kernel
def _write_sync(graph: Graph, shares: _Shares, local_rows: Ints, out: Exchange) -> None:
    """Write what the kernel cut exchanges among the devices of one layer."""
    for row in range(graph.point.size):
        p = graph.point[row]
        collective, cols = NO_EXCHANGE, 0
        if shares.kernel[p] == ROW_COLUMN:
            collective, cols = graph.rc[row], graph.rc_cols[row]
        elif shares.kernel[p] == COLUMN_ROW:
            collective, cols = graph.cr[row], graph.cr_cols[row]
        if shares.ranks[p] == 1:
            collective = NO_EXCHANGE
        size = shares.operand[p] * graph.batch[row] * local_rows[row] * cols
        out.bytes[row] = size if collective != NO_EXCHANGE else 0.0
        out.collective[row], out.ranks[row] = collective, shares.ranks[p]


@kernel
def _write_gradient(graph: Graph, shares: _Shares, local: Supergraph, out: Exchange) -> None:
    """Write the sum of weight gradients over the devices that share the weights.

    An embedding's gradient has one row a token: its rows are gathered where that moves fewer
    bytes than summing the whole table.
    """
    for row in range(graph.point.size):
        p = graph.point[row]
        ranks = shares.row_shards[p]
        collective, size = NO_EXCHANGE, 0.0
        if ranks > 1 and graph.gradient[row] != NO_GRADIENT:
            weights = 1.0 * graph.batch[row] * local.inner[row] * local.cols[row]
            collective, size = ALL_REDUCE, shares.operand[p] * weights
            activations = 1.0 * local.rows[row] * local.activation_cols[row]
            gathered = shares.operand[p] * ranks * activations
            if graph.gradient[row] == SPARSE and gathered < 2.0 * size:
                collective, size = ALL_GATHER, gathered
        out.collective[row], out.bytes[row], out.ranks[row] = collective, size, ranks


@kernel
def _cut(graph: Graph, shares: _Shares, out: Supergraph) -> None:
    """Write one device's share of every kernel."""
    _cut_sizes(graph, shares, out)
    _write_sync(graph, shares, out.rows, out.sync)
    _write_gradient(graph, shares, out, out.gradient)


def cut(graph: Graph, strategies: Strategies, operand_bytes: Floats) -> Supergraph:
    """Cut every kernel of the graph by its point's strategy.

    strategies, operand_bytes: shape (points,). Pipelines (LP > 1) are the caller's to refuse.
    """
    is_rc, is_cr = strategies.kernel == ROW_COLUMN, strategies.kernel == COLUMN_ROW
    shares = _Shares(
        strategies.kernel, strategies.row_shards, strategies.inner_shards, strategies.col_shards,
        np.select([is_rc, is_cr], [strategies.kp2, strategies.kp1], 1),
        operand_bytes,
    )  # fmt: skip
    kernels = graph.point.size

    def column() -> Ints:
        return np.empty(kernels, dtype=np.int64)

    out = Supergraph(
        column(), column(), column(), np.empty(kernels), column(), column(), column(), column(), column(),
        Exchange(column(), np.empty(kernels), column()),
        Exchange(column(), np.empty(kernels), column()),
    )  # fmt: skip
    _cut(graph.numbers, shares, out)
    return out
