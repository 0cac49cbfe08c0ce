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

from fastflow.columns import Floats, Ints, take
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


def _ceil_div(total: Ints, shards: Ints) -> Ints:
    return -(-total // shards)


def _gemm_sizes(graph: Graph, rows: Ints, inner: Ints, cols: Ints) -> tuple[Ints, ...]:
    """Return m, k, n of each kernel's local GEMM from its layer's local dimensions."""
    kinds = [graph.kind == PRODUCT, graph.kind == INPUT_GRADIENT, graph.kind == WEIGHT_GRADIENT]
    return (
        np.select(kinds, [rows, rows, inner]),
        np.select(kinds, [inner, cols, rows]),
        np.select(kinds, [cols, inner, cols]),
    )


def _sync(graph: Graph, cut: Strategies, rows: Ints, operand: Floats) -> Exchange:
    """Return what the kernel cut exchanges among the devices of one layer."""
    is_rc, is_cr = cut.kernel == ROW_COLUMN, cut.kernel == COLUMN_ROW
    ranks = np.select([is_rc, is_cr], [cut.kp2, cut.kp1], 1)
    collective = np.select([is_rc, is_cr], [graph.rc, graph.cr], NO_EXCHANGE)
    cols = np.select([is_rc, is_cr], [graph.rc_cols, graph.cr_cols], 0)
    collective = np.where(ranks > 1, collective, NO_EXCHANGE)
    size = np.where(collective != NO_EXCHANGE, operand * graph.batch * rows * cols, 0.0)
    return Exchange(collective, size, ranks)


def _gradient(
    graph: Graph, cut: Strategies, weights: Floats, activations: Floats, operand: Floats
) -> Exchange:
    """Return the sum of weight gradients over the devices that share the weights.

    An embedding's gradient has one row a token: its rows are gathered where that moves fewer
    bytes than summing the whole table.
    """
    ranks = cut.row_shards
    summed = np.where(graph.gradient != NO_GRADIENT, operand * weights, 0.0)
    gathered = operand * ranks * activations
    sparse = (graph.gradient == SPARSE) & (gathered < 2.0 * summed)
    collective = np.select([sparse, graph.gradient != NO_GRADIENT], [ALL_GATHER, ALL_REDUCE], NO_EXCHANGE)
    return Exchange(
        np.where(ranks > 1, collective, NO_EXCHANGE),
        np.where(ranks > 1, np.where(sparse, gathered, summed), 0.0),
        ranks,
    )


def cut(graph: Graph, strategies: Strategies, operand_bytes: Floats) -> Supergraph:
    """Cut every kernel of the graph by its point's strategy.

    strategies, operand_bytes: shape (points,). Pipelines (LP > 1) are the caller's to refuse.
    """
    strategy = take(strategies, graph.point)
    operand = operand_bytes[graph.point]
    is_layer = graph.kind != ON_WEIGHTS
    rows = np.where(is_layer, _ceil_div(graph.rows, strategy.row_shards), graph.rows)
    inner = _ceil_div(graph.inner, strategy.inner_shards)
    cols = _ceil_div(graph.cols, strategy.col_shards)
    # an activation is cut along its columns by either kernel cut: CR has scattered it so
    activation_cols = _ceil_div(graph.cols, strategy.col_shards * strategy.inner_shards)
    m, k, n = _gemm_sizes(graph, rows, inner, cols)
    weights = (1.0 * graph.batch * inner * cols).astype(np.float64)
    activations = (1.0 * rows * activation_cols).astype(np.float64)
    elements = np.select(
        [graph.kind == ON_ACTIVATIONS, graph.kind == ON_WEIGHTS],
        [activations, weights],
        0.0,
    )
    return Supergraph(
        m, k, n, elements, rows, inner, cols, activation_cols,
        _ceil_div(graph.cols, strategy.inner_shards),
        _sync(graph, strategy, rows, operand),
        _gradient(graph, strategy, weights, activations, operand),
    )  # fmt: skip
