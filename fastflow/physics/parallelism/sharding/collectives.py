"""What devices exchange after every kernel of theirs: bytes, ranks and who (3.3, 5.1).

Where neighbouring layers are laid out differently, the activation between them moves to its reader's
layout: gathered where the reader wants more of it than its maker has, exchanged all-to-all where it
wants another part; backward, its gradient goes the other way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import REPLICAS, SHARDS
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges, Supergraph
from fastflow.physics.parallelism.sharding.propagation import READ, SHARED, SUMMED
from fastflow.physics.parallelism.sharding.tables import Cuts, Slot
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BACKWARD,
    BATCHED,
    FORWARD,
    INPUT_GRADIENT,
    NO_EXCHANGE,
    NO_GRADIENT,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    SPARSE,
    UPDATE,
    Graph,
)


class Shares(NamedTuple):
    """How a point's layouts cut its kernels; shape (points, kinds of layer) or (points,)."""

    first: Ints  # of the cuts of the point's kernels, less the point's first kernel; flat
    ways: Ints  # devices along every set of axes, (points, kinds of layer, sets); flat
    sets: int
    columns: int  # of the layouts
    assignment: Ints
    row_shards: Ints
    ranks: Ints  # devices that share the rows of a layer
    options: ParallelOptions
    replicas: Ints  # of all weights, whose devices have parts of them under ZeRO, (points,)
    weight: Floats  # bytes of a number by its role, (points,)
    activation: Floats
    gradient: Floats
    differ: Bools  # whether not all kinds of layer are laid out alike, (points,)


@lean_kernel
def ceil_div(total: int, shards: int) -> int:
    """Return the largest of so many shards."""
    return total if shards == 1 else -(-total // shards)  # most are not cut, and to divide takes long


@lean_kernel
def _alike(shares: Shares, p: int, own: int, peer: int) -> bool:
    """Return whether two kinds of layer are laid out in the same way."""
    return own == peer or (
        shares.assignment[p, own] == shares.assignment[p, peer]
        and shares.row_shards[p, own] == shares.row_shards[p, peer]
        and shares.ranks[p, own] == shares.ranks[p, peer]
    )


@kernel
def write_sync(graph: Graph, slot: Slot, shares: Shares, out: CrossEdges) -> None:
    """Write what the devices of one layer exchange."""
    for row in range(graph.point.size):
        p, own = graph.point[row], graph.layer_kind[row]
        here = shares.columns * p + own
        k, here = shares.first[here] + row, shares.sets * here
        out.collective[row], out.bytes[row] = NO_EXCHANGE, 0.0
        out.ranks[row], out.group[row] = 1, 0
        collective = slot.collective[k]
        if collective == NO_EXCHANGE:
            continue
        if shares.differ[p] and collective == ALL_GATHER:
            recurs = graph.phase[row] == FORWARD and graph.repeat[row] > 1  # for the layer's own next step
            if not recurs and not _alike(shares, p, own, graph.peer_kind[row]):
                continue  # it goes to the layout of the other layer instead
        ranks = shares.ways[here + slot.axes[k]]
        if ranks == 1:
            continue
        cols = slot.cols[k]
        if slot.of[k] == SUMMED:
            cols += graph.summed_cols[row]
        elif slot.of[k] == READ:
            cols += graph.read_cols[row]
        elif slot.of[k] == SHARED:
            cols += graph.shared_cols[row]
        rows = ceil_div(graph.rows[row], shares.ways[here + slot.rows_by[k]] * shares.options.microbatches[p])
        cols = ceil_div(cols, shares.ways[here + slot.cols_by[k]])
        out.collective[row], out.ranks[row] = collective, ranks
        out.bytes[row] = shares.activation[p] * graph.batch[row] * rows * cols
        out.group[row] = shares.columns * slot.axes[k] + own


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
    moved = 1.0 - narrow / wide if wide % narrow == 0 else 1.0
    if not whole:
        return moved
    return (moved if maker > reader else 0.0) + (reader - 1.0)


class _Border(NamedTuple):
    """A kernel at the border of its layer with another layer, its peer."""

    cut: int  # of the kernel, as a row of Cuts
    peer_cut: int  # the same as the peer's layout would have it
    ranks: int  # devices that share a block of rows
    peer_ranks: int


class _Move(NamedTuple):
    """What moves over a border."""

    cols: int  # of the tensor
    missing: float  # what a device lacks of it, over the part that it has; 0: nothing moves
    gathers: bool  # whether each device is to have the parts of its group


@lean_kernel
def _move_activation(graph: Graph, cuts: Cuts, row: int, border: _Border) -> _Move:
    """Return what moves of an activation, from the layer that makes it to the one that reads it."""
    is_read = cuts.reads[border.cut] > 0
    if not is_read and graph.sends_cols[row] == 0:
        return _Move(0, 0.0, False)
    cols = graph.read_cols[row] + cuts.travels[border.cut] if is_read else graph.sends_cols[row]
    whole = cuts.whole[border.peer_cut] > 0
    # for the layer's own next step
    gathered = cuts.whole[border.cut] > 0 and border.ranks > 1 and graph.repeat[row] > 1
    missing = _missing(border.ranks, border.peer_ranks, whole, gathered)
    return _Move(cols, missing, whole and not gathered and border.ranks <= border.peer_ranks)


@lean_kernel
def _move_gradient(graph: Graph, cuts: Cuts, row: int, border: _Border) -> _Move:
    """Return what moves of the gradient of an activation, back to the layer that made it."""
    cols = graph.sends_cols[row]
    if cols == 0:
        return _Move(0, 0.0, False)
    whole = cuts.whole[border.peer_cut] > 0  # the product that made it needs all of its gradient
    missing = 0.0
    if cuts.partial[border.cut] == 0 or border.ranks < border.peer_ranks:
        missing = _missing(border.ranks, border.peer_ranks, whole, False)
    elif whole:  # the sum over this layer's group ends where it is wanted
        missing = border.peer_ranks - 1.0
    return _Move(cols, missing, whole and border.ranks <= border.peer_ranks)


@kernel
def write_relayout(graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write what moves an activation, or its gradient, between layers that are laid out differently.

    A gather where each device is to have its group's parts, else all-to-all within the larger group.
    """
    for row in range(graph.point.size):
        p, layer, peer = graph.point[row], graph.layer_kind[row], graph.peer_kind[row]
        if graph.phase[row] > BACKWARD or not shares.differ[p] or _alike(shares, p, layer, peer):
            continue
        first = shares.columns * p
        border = _Border(
            shares.first[first + layer] + row, shares.first[first + peer] + row,
            shares.ranks[p, layer], shares.ranks[p, peer],
        )  # fmt: skip
        if graph.phase[row] == FORWARD:
            move = _move_activation(graph, cuts, row, border)
        else:
            move = _move_gradient(graph, cuts, row, border)
        if move.missing == 0.0:
            continue
        larger = peer if move.gathers or border.peer_ranks > border.ranks else layer
        ranks = shares.ranks[p, larger]
        part = shares.activation[p] * graph.batch[row] * local.rows[row] * ceil_div(move.cols, border.ranks)
        out.collective[row], out.ranks[row] = ALL_GATHER if move.gathers else ALL_TO_ALL, ranks
        out.bytes[row] = part * move.missing * ranks / (ranks - 1.0)  # of which a rank keeps its own share
        out.group[row] = shares.columns * cuts.lies_cols[shares.first[first + larger] + row] + larger


@lean_kernel
def write_gradient(graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write the sum of weight gradients over the devices that share the weights.

    An embedding's gradient has one row a token: its rows are gathered where that moves fewer
    bytes than summing the whole table.
    """
    for row in range(graph.point.size):
        p, own = graph.point[row], graph.layer_kind[row]
        out.collective[row], out.bytes[row] = NO_EXCHANGE, 0.0
        out.ranks[row], out.group[row] = 1, 0
        if graph.gradient[row] == NO_GRADIENT:
            continue
        here = shares.columns * p + own
        along = cuts.sharing[shares.first[here] + row]
        ranks = shares.ways[shares.sets * here + along]
        if ranks == 1:
            continue
        weights = 1.0 * local.batch[row] * local.inner[row] * local.cols[row]
        collective, size = ALL_REDUCE, shares.gradient[p] * weights
        tokens = 1.0 * ceil_div(graph.rows[row], ranks)  # of all micro-batches
        gathered = shares.gradient[p] * ranks * tokens * local.activation_cols[row]
        passes = 2.0  # of the table, to sum it for everyone
        if shares.options.zero[p] > 0:
            collective, passes = REDUCE_SCATTER, 1.0
        if graph.gradient[row] == SPARSE and gathered < passes * size:
            collective, size = ALL_GATHER, gathered
        out.collective[row], out.bytes[row], out.ranks[row] = collective, size, ranks
        out.group[row] = shares.columns * along + own


def write_fetch(graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write the gathers of weights of which every device has a part (ZeRO, arXiv:1910.02054).

    Once after their update; in stage 3, where none keeps the whole, for each pass that uses them, and nothing
    hides that. Not a kernel: few points have any.
    """
    zero, here = shares.options.zero[graph.point], shares.columns * graph.point + graph.layer_kind
    k = shares.first[here] + np.arange(here.size)
    updates = (graph.phase == UPDATE) & (cuts.travels[k] == 0)  # norms have statistics
    uses = (graph.weights > 0) | ((graph.kind == INPUT_GRADIENT) & shares.options.reshards[graph.point])
    rows = np.flatnonzero((local.owners > 1) & np.where(zero == 3, uses, (zero > 0) & updates))
    out.collective[rows], out.ranks[rows] = ALL_GATHER, local.owners[rows]
    out.group[rows] = (shares.columns * cuts.sharing[k] + graph.layer_kind)[rows]
    weights = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    out.bytes[rows] = shares.weight[graph.point[rows]] * weights / graph.repeat[rows]  # once for all steps


def write_replicas(graph: Graph, shares: Shares, sets: tuple[int, ...], local: Supergraph) -> None:
    """Let gathers and scatters be among the devices of a replica, and write the sums over all replicas.

    Each device sums its part with those that have the same one (PyTorch's HYBRID_SHARD, MiCS,
    arXiv:2205.00119). A gather of an embedding's rows stays one of all. Not a kernel: few points have any.
    """
    number = {one: at for at, one in enumerate(sets)}
    inside = np.array([number.get(one | SHARDS, at) for at, one in enumerate(sets)], dtype=np.int64)
    replicas = shares.replicas[graph.point]
    for edges, collective in ((local.fetch, ALL_GATHER), (local.gradient, REDUCE_SCATTER)):
        rows = np.flatnonzero((replicas > 1) & (edges.collective == collective))
        along, column = np.divmod(edges.group[rows], shares.columns)
        edges.group[rows], edges.ranks[rows] = shares.columns * inside[along] + column, local.owners[rows]
    if not rows.size:
        return
    local.replicas.collective[rows], local.replicas.ranks[rows] = ALL_REDUCE, replicas[rows]
    local.replicas.bytes[rows] = local.gradient.bytes[rows] / local.owners[rows]
    local.replicas.group[rows] = shares.columns * number[REPLICAS] + column
    local.gradient.collective[rows[local.owners[rows] == 1]] = NO_EXCHANGE


def crowds_heads(graph: Graph, cuts: Cuts, shares: Shares) -> Bools:
    """Return the attention whose heads more devices share than there are heads of keys, (kernels,).

    That of training, behind the product that makes keys; a cache has copies of such heads.
    """
    found = np.zeros(graph.point.size, dtype=np.bool_)
    if "expanded" in graph.attributes:
        rows = np.flatnonzero((graph.attributes["expanded"] > 0.0) & (graph.kind == BATCHED))
        ways, _ = _sharing_heads(graph, cuts, shares, rows)
        found[rows] = ways > graph.attributes["kv_heads"][rows]
    return found


def _sharing_heads(graph: Graph, cuts: Cuts, shares: Shares, rows: Ints) -> tuple[Ints, Ints]:
    """Return how many devices share the heads of some kernels, and the numbers of these sets of axes."""
    here = shares.columns * graph.point[rows] + graph.layer_kind[rows]
    sets = cuts.lies_cols[shares.first[here] + rows]
    return shares.ways[shares.sets * here + sets], sets


def write_heads(
    graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, rows: Ints, out: CrossEdges
) -> None:
    """Write what devices exchange that share fewer heads of keys than they are.

    Each makes a part of all columns, which are gathered before attention; it takes those of its heads.
    Backward, their gradients are scattered (NVIDIA/Megatron-LM, megatron/core/transformer/attention.py).
    rows: kernels of attention.
    """
    ways, sets = _sharing_heads(graph, cuts, shares, rows)
    back = graph.phase[rows] == BACKWARD
    edge = rows + np.where(back, 1, -1)  # after the pass that rounds the gradient of queries
    made = np.where(back, rows + 2, edge)  # the kernel that makes, or takes the gradient of, all columns
    p = graph.point[rows]
    out.collective[edge] = np.where(back, REDUCE_SCATTER, ALL_GATHER)
    out.ranks[edge] = ways
    out.group[edge] = shares.columns * sets + graph.layer_kind[rows]
    out.bytes[edge] = (
        shares.activation[p] * graph.batch[edge] * local.activation_rows[made] * graph.cols[made]
    )


def write_copies(graph: Graph, shares: Shares, local: Supergraph, pipeline: int, out: CrossEdges) -> None:
    """Write the sum of the gradients of an embedding of which the last stage has a copy, once an iteration.

    An all-reduce of two moves all of it both ways at once. It is done before the norm of the gradients: the
    first kernel of the update is that of the table's. pipeline: the number of its set of axes.
    """
    update = np.flatnonzero((graph.phase == UPDATE) & shares.options.copies[graph.point])
    rows = update[np.unique(graph.point[update], return_index=True)[1]]
    p = graph.point[rows]
    weights = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.options.stages[p]
    out.group[rows] = shares.columns * pipeline + graph.layer_kind[rows]
    out.bytes[rows] = shares.gradient[p] * weights


def write_send(
    graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, pipeline: int, out: CrossEdges
) -> None:
    """Write what crosses a cut of the pipeline at the layer's border: each device's own part of it.

    pipeline: the number of its set of axes. Not a kernel: few rows have any, and it would take a second to
    compile.
    """
    rows = np.flatnonzero((shares.options.stages[graph.point] > 1) & (graph.sends_cols > 0))
    p, own = graph.point[rows], graph.layer_kind[rows]
    here = shares.columns * p + own
    ways = shares.ways[shares.sets * here + cuts.lies_cols[shares.first[here] + rows]]
    cols = -(-graph.sends_cols[rows] // ways)
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.options.stages[p]
    out.group[rows] = shares.columns * pipeline + own
    out.bytes[rows] = shares.activation[p] * graph.batch[rows] * local.activation_rows[rows] * cols
