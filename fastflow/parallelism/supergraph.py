"""The compute graph cut by a strategy: one device's kernels, and the cross-edges between devices (3.3, 5.1).

All devices of a data or kernel parallel group do the same at the same time (6.5), so the cut
graph is that of one device of each pipeline stage. Where a dimension does not divide evenly, the largest
shard counts.

    Row-Column, KP1 x KP2: rows by KP1, columns by KP2; the layer's output is gathered along KP2,
        dX is a partial sum along KP2, dW along KP1.
    Column-Row, KP1: inner dimension by KP1; the output is a partial sum, reduce-scattered; the
        backward pass gathers dY, and then dX and dW are local.
    Data parallel, DP: rows by DP; weight gradients are summed over DP (and RC's KP1).
    Pipeline, LP: layers by stages; what a stage's last layer makes is sent to the next one.
    Micro-batches: the rows of a device are worked on in turns.

Where neighbouring layers are laid out differently, the activation between them moves to its reader's
layout: gathered where the reader wants more of it than its maker has, exchanged all-to-all where it
wants another part; backward, its gradient goes the other way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.strategy import COLUMN_ROW, ROW_COLUMN
from fastflow.tables import Bools, Floats, Ints
from fastflow.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BACKWARD,
    BATCHED,
    FORWARD,
    INPUT_GRADIENT,
    NO_EXCHANGE,
    NO_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    POINT_TO_POINT,
    PRODUCT,
    SPARSE,
    UPDATE,
    WEIGHT_GRADIENT,
    Graph,
)

# The groups of devices that exchange: two for each kind of layer, and neighbouring pipeline stages.
KERNEL_GROUP, GRADIENT_GROUP = 0, 1  # of a kind of layer: 2 * kind + one of these
PIPELINE_GROUP = 6
GROUPS = 7


class CrossEdges(NamedTuple):
    """An exchange a kernel, along a parallel dimension; shape (kernels,)."""

    collective: Ints  # of workload.graph.COLLECTIVES
    bytes: Floats  # of the whole tensor, as each device holds it before or after
    ranks: Ints
    group: Ints  # who exchanges: 2 * kind of layer + KERNEL_GROUP or GRADIENT_GROUP, or PIPELINE_GROUP


class Supergraph(NamedTuple):
    """One device's share of every kernel, of one micro-batch; rows as in the graph, shape (kernels,)."""

    m: Ints  # local GEMM, C[m, n] = A[m, k] B[k, n]; 0 where the kernel is no GEMM
    k: Ints
    n: Ints
    batch: Ints  # of them, in one launch
    elements: Floats  # local elements of a memory-bound pass; 0 for a GEMM
    rows: Ints  # local dimensions of the layer
    inner: Ints
    cols: Ints
    activation_cols: Ints  # columns of an activation that a device works on
    read_rows: Ints  # rows and columns of it that the next product reads
    read_cols: Ints
    sync: CrossEdges  # follows the kernel, every launch, and is waited for
    relayout: CrossEdges  # the same, where the tensor's other end is laid out differently
    gradient: CrossEdges  # starts when the kernel is done, and may overlap with what comes
    send: CrossEdges  # to the neighbouring stage, where the cut of the pipeline falls on the layer's border


class _Shares(NamedTuple):
    """How a point's layouts cut its kernels; shape (points, kinds of layer) or (points,)."""

    kernel: Ints  # NO_KERNEL, ROW_COLUMN or COLUMN_ROW
    row_shards: Ints  # of one micro-batch
    inner_shards: Ints
    col_shards: Ints
    ranks: Ints  # devices of one layer, that exchange what the kernel cut needs
    sharing: Ints  # devices that sum the gradients of the same weights
    operand: Floats  # [B], (points,)
    stages: Ints  # (points,)
    differ: Bools  # whether not all kinds of layer are laid out alike, (points,)


@lean_kernel
def _ceil_div(total: int, shards: int) -> int:
    return total if shards == 1 else -(-total // shards)  # most are not cut, and to divide takes long


@lean_kernel
def _gemm_sizes(kind: int, rows: int, inner: int, cols: int) -> tuple[int, int, int]:
    """Return m, k, n of a kernel's local GEMM from its layer's local dimensions."""
    if kind == PRODUCT:
        return rows, inner, cols
    if kind == INPUT_GRADIENT:
        return rows, cols, inner
    if kind == WEIGHT_GRADIENT:
        return inner, rows, cols
    return 0, 0, 0


@lean_kernel
def _cut_sizes(graph: Graph, shares: _Shares, out: Supergraph) -> None:
    """Write every kernel's local dimensions."""
    for row in range(graph.point.size):
        p, kind, own, peer = graph.point[row], graph.kind[row], graph.layer_kind[row], graph.peer_kind[row]
        rows = graph.rows[row]
        out.read_rows[row] = _ceil_div(rows, shares.row_shards[p, peer])
        if kind != ON_WEIGHTS:
            rows = _ceil_div(rows, shares.row_shards[p, own])
        inner = _ceil_div(graph.inner[row], shares.inner_shards[p, own])
        cols = _ceil_div(graph.cols[row], shares.col_shards[p, own])
        # an activation is cut along its columns by either kernel cut: CR has scattered it so
        activation_cols = _ceil_div(graph.cols[row], shares.col_shards[p, own] * shares.inner_shards[p, own])
        out.m[row], out.k[row], out.n[row] = _gemm_sizes(kind, rows, inner, cols)
        out.batch[row] = graph.batch[row]
        if kind == BATCHED:  # whole products of activations are distributed over all devices of the layer
            products = graph.products[row]
            out.batch[row] = _ceil_div(products, shares.row_shards[p, own] * shares.ranks[p, own])
            out.m[row] = graph.rows[row] // products
            out.k[row], out.n[row] = graph.inner[row], graph.cols[row]
        out.elements[row] = 0.0
        if kind == ON_ACTIVATIONS:
            out.elements[row] = 1.0 * rows * activation_cols
        elif kind == ON_WEIGHTS:
            out.elements[row] = 1.0 * graph.batch[row] * inner * cols
        out.rows[row], out.inner[row], out.cols[row] = rows, inner, cols
        out.activation_cols[row] = activation_cols
        out.read_cols[row] = _ceil_div(graph.cols[row], shares.inner_shards[p, peer])


@lean_kernel
def _alike(shares: _Shares, p: int, own: int, peer: int) -> bool:
    """Return whether two kinds of layer are laid out in the same way."""
    return own == peer or (
        shares.kernel[p, own] == shares.kernel[p, peer]
        and shares.row_shards[p, own] == shares.row_shards[p, peer]
        and shares.ranks[p, own] == shares.ranks[p, peer]
    )


@lean_kernel
def _write_sync(graph: Graph, shares: _Shares, local_rows: Ints, out: CrossEdges) -> None:
    """Write what the kernel cut exchanges among the devices of one layer."""
    for row in range(graph.point.size):
        p, own = graph.point[row], graph.layer_kind[row]
        collective, cols = NO_EXCHANGE, 0
        if shares.kernel[p, own] == ROW_COLUMN:
            collective, cols = graph.rc[row], graph.rc_cols[row]
            moves = graph.phase[row] == FORWARD and collective == ALL_GATHER
            recurs = graph.repeat[row] > 1  # the layer reads it itself in its next step
            if shares.differ[p] and moves and not recurs and not _alike(shares, p, own, graph.peer_kind[row]):
                collective = NO_EXCHANGE  # it goes to its reader's layout instead
        elif shares.kernel[p, own] == COLUMN_ROW:
            collective, cols = graph.cr[row], graph.cr_cols[row]
            gathers = shares.differ[p] and graph.phase[row] == BACKWARD and collective == ALL_GATHER
            if gathers and not _alike(shares, p, own, graph.peer_kind[row]):
                collective = NO_EXCHANGE  # of a product of the other layer, as that is cut
        if shares.ranks[p, own] == 1:
            collective = NO_EXCHANGE
        size = shares.operand[p] * graph.batch[row] * local_rows[row] * cols
        out.bytes[row] = size if collective != NO_EXCHANGE else 0.0
        out.collective[row], out.ranks[row] = collective, shares.ranks[p, own]
        out.group[row] = 2 * own + KERNEL_GROUP


@kernel
def _missing(maker: int, reader: int, whole: bool, gathered: bool) -> float:
    """Return what a device lacks of a tensor that goes to another layout, over the part that it has.

    maker, reader: devices that share a block of rows, by columns, at either end; devices are numbered so
    that blocks lie within each other. whole: the reader wants all columns of its rows; gathered: the
    maker's devices have them of theirs.
    """
    if gathered:
        if reader <= maker:
            return 0.0
        return 1.0 * (reader - maker) if whole else 1.0 - maker / reader
    narrow, wide = min(maker, reader), max(maker, reader)
    turned = 1.0 - narrow / wide if wide % narrow == 0 else 1.0
    if not whole:
        return turned
    return (turned if maker > reader else 0.0) + (reader - 1.0)


@kernel
def _write_relayout(graph: Graph, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write what moves an activation, or its gradient, between layers that are laid out differently.

    A gather where each device is to have its group's parts, else all-to-all within the larger group.
    """
    for row in range(graph.point.size):
        p, own, peer = graph.point[row], graph.layer_kind[row], graph.peer_kind[row]
        if not shares.differ[p] or _alike(shares, p, own, peer):
            continue
        here, there = shares.ranks[p, own], shares.ranks[p, peer]
        cols, lacks, gathers = 0, 0.0, False
        if graph.phase[row] == FORWARD and (graph.rc[row] == ALL_GATHER or graph.sends_cols[row] > 0):
            cols = graph.rc_cols[row] if graph.rc[row] == ALL_GATHER else graph.sends_cols[row]
            whole = graph.rc[row] == ALL_GATHER and shares.kernel[p, peer] != COLUMN_ROW
            gathered = shares.kernel[p, own] == ROW_COLUMN and graph.rc[row] == ALL_GATHER
            gathered = gathered and graph.repeat[row] > 1  # for the layer's own next step
            lacks = _missing(here, there, whole, gathered)
            gathers = whole and not gathered and here <= there
        elif graph.phase[row] == BACKWARD and graph.sends_cols[row] > 0:
            cols = graph.sends_cols[row]
            # what a Column-Row product has made needs all of its gradient
            whole = graph.cr[row] == ALL_GATHER and shares.kernel[p, peer] == COLUMN_ROW
            summed = graph.kind[row] == INPUT_GRADIENT and shares.kernel[p, own] != COLUMN_ROW
            if not summed or here < there:
                lacks = _missing(here, there, whole, False)
            elif whole:  # the sum over this layer's group ends where it is wanted
                lacks = there - 1.0
            gathers = whole and here <= there
        if lacks == 0.0:
            continue
        group = peer if gathers or there > here else own
        ranks = shares.ranks[p, group]
        part = shares.operand[p] * graph.batch[row] * local.rows[row] * _ceil_div(cols, here)
        out.collective[row] = ALL_GATHER if gathers else ALL_TO_ALL
        out.bytes[row] = part * lacks * ranks / (ranks - 1.0)  # of which a rank keeps its own share
        out.ranks[row], out.group[row] = ranks, 2 * group + KERNEL_GROUP


@lean_kernel
def _write_gradient(graph: Graph, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write the sum of weight gradients over the devices that share the weights.

    An embedding's gradient has one row a token: its rows are gathered where that moves fewer
    bytes than summing the whole table.
    """
    for row in range(graph.point.size):
        p, own = graph.point[row], graph.layer_kind[row]
        ranks = shares.sharing[p, own]
        collective, size = NO_EXCHANGE, 0.0
        if ranks > 1 and graph.gradient[row] != NO_GRADIENT:
            weights = 1.0 * graph.batch[row] * local.inner[row] * local.cols[row]
            collective, size = ALL_REDUCE, shares.operand[p] * weights
            tokens = 1.0 * _ceil_div(graph.rows[row], ranks)  # of all micro-batches
            gathered = shares.operand[p] * ranks * tokens * local.activation_cols[row]
            if graph.gradient[row] == SPARSE and gathered < 2.0 * size:
                collective, size = ALL_GATHER, gathered
        out.collective[row], out.bytes[row], out.ranks[row] = collective, size, ranks
        out.group[row] = 2 * own + GRADIENT_GROUP


def _write_send(graph: Graph, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write what crosses a cut of the pipeline at the layer's border: each device's own part of it.

    Not a kernel: few rows have any, and it would take a second to compile.
    """
    rows = np.flatnonzero((shares.stages[graph.point] > 1) & (graph.sends_cols > 0))
    p = graph.point[rows]
    cols = -(-graph.sends_cols[rows] // shares.ranks[p, graph.layer_kind[rows]])
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.stages[p]
    out.group[rows] = PIPELINE_GROUP
    out.bytes[rows] = shares.operand[p] * graph.batch[rows] * local.rows[rows] * cols


@kernel
def _cut(graph: Graph, shares: _Shares, out: Supergraph) -> None:
    """Write one device's share of every kernel."""
    _cut_sizes(graph, shares, out)
    _write_sync(graph, shares, out.rows, out.sync)
    _write_gradient(graph, shares, out, out.gradient)


def cut(
    graph: Graph, layouts: Layouts, stages: Ints, microbatches: Ints, operand_bytes: Floats
) -> Supergraph:
    """Cut every kernel of the graph as its point's strategy says.

    stages, microbatches, operand_bytes: shape (points,).
    """
    rows = layouts.row_shards
    is_rc = layouts.kernel == ROW_COLUMN
    shares = _Shares(
        kernel=layouts.kernel,
        row_shards=rows * microbatches[:, None],
        inner_shards=layouts.inner_shards,
        col_shards=np.where(is_rc, layouts.kp2, 1),
        ranks=layouts.kernel_ranks,
        sharing=rows,
        operand=operand_bytes,
        stages=stages,
        differ=layouts.differ,
    )
    kernels = graph.point.size

    def column() -> Ints:
        return np.empty(kernels, dtype=np.int64)

    def edges() -> CrossEdges:
        return CrossEdges(collective=column(), bytes=np.empty(kernels), ranks=column(), group=column())

    zeros, no_bytes = np.zeros(kernels, dtype=np.int64), np.zeros(kernels)
    nothing = CrossEdges(collective=zeros, bytes=no_bytes, ranks=zeros, group=zeros)

    def rare(is_written: np.bool_) -> CrossEdges:
        """Return edges of nothing; those that are not written share their columns."""
        if not is_written:
            return nothing
        return CrossEdges(zeros.copy(), no_bytes.copy(), zeros.copy(), zeros.copy())

    moves, stacked = shares.differ.any(), (stages > 1).any()
    out = Supergraph(
        m=column(),
        k=column(),
        n=column(),
        batch=column(),
        elements=np.empty(kernels),
        rows=column(),
        inner=column(),
        cols=column(),
        activation_cols=column(),
        read_rows=column(),
        read_cols=column(),
        sync=edges(),
        relayout=rare(moves),
        gradient=edges(),
        send=rare(stacked),
    )
    _cut(graph.numbers, shares, out)
    if moves:
        _write_relayout(graph.numbers, shares, out, out.relayout)
    if stacked:
        _write_send(graph.numbers, shares, out, out.send)
    return out


def all_launches(graph: Graph, microbatches: Ints) -> Ints:
    """Return the launches of every kernel in an iteration, shape (kernels,): once to update.

    microbatches: shape (points,).
    """
    if (microbatches == 1).all():
        return graph.repeat
    return graph.repeat * np.where(graph.phase == UPDATE, 1, microbatches[graph.point])
