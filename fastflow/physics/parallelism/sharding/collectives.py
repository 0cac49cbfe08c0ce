"""Collectives after every kernel: bytes, ranks and groups of devices (3.3, 5.1).

Where neighbouring layers have different layouts, the activation between them moves to its reader's
layout: by an all-gather where the reader needs more of it than its producer has, by an all-to-all where
it needs another part; backward, its gradient moves in the other direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import REPLICAS, SHARDS
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges, LocalKernels, Supergraph
from fastflow.physics.parallelism.sharding.propagation import READ, SHARED, SUMMED
from fastflow.physics.parallelism.sharding.tables import Shardings, Slot
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BACKWARD,
    BASE_BYTES,
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
from fastflow.physics.workload.optimizers import GATHERED


class Shares(NamedTuple):
    """Shards of a point's kernels by its layouts; shape (points, kinds of layer) or (points,)."""

    first: Ints  # row of Shardings of the point's first kernel, less that kernel's number; flat
    num_shards: Ints  # devices along every set of axes, (points, kinds of layer, sets); flat
    sets: int
    columns: int  # of the layouts
    assignment: Ints
    row_shards: Ints
    ranks: Ints  # devices that share the rows of a layer
    options: ParallelOptions
    replicas: Ints  # of all weights, each sharded by ZeRO, (points,)
    weight: Floats  # bytes of a number by its role, (points,)
    activation: Floats
    gradient: Floats
    differ: Bools  # whether kinds of layer have different layouts, (points,)


@lean_kernel
def ceil_div(total: int, shards: int) -> int:
    """Return the size of the largest shard."""
    return total if shards == 1 else -(-total // shards)  # most are not sharded, and divisions are slow


@lean_kernel
def _same_layout(shares: Shares, p: int, layer: int, other: int) -> bool:
    """Return whether two kinds of layer have the same layout."""
    return layer == other or (
        shares.assignment[p, layer] == shares.assignment[p, other]
        and shares.row_shards[p, layer] == shares.row_shards[p, other]
        and shares.ranks[p, layer] == shares.ranks[p, other]
    )


@kernel
def write_sync(graph: Graph, slot: Slot, shares: Shares, out: CrossEdges) -> None:
    """Write the collectives among the devices of one layer."""
    for row in range(graph.point.size):
        p, layer = graph.point[row], graph.layer.kind[row]
        offset = shares.columns * p + layer
        entry, offset = shares.first[offset] + row, shares.sets * offset
        out.collective[row], out.bytes[row] = NO_EXCHANGE, 0.0
        out.ranks[row], out.group[row] = 1, 0
        collective = slot.collective[entry]
        if collective == NO_EXCHANGE:
            continue
        if shares.differ[p] and collective == ALL_GATHER:
            # a recurrent layer's next step reads it
            is_recurrent = graph.phase[row] == FORWARD and graph.launches.repeat[row] > 1
            if not is_recurrent and not _same_layout(shares, p, layer, graph.comm.peer_kind[row]):
                continue  # `write_relayout` moves it to the other layer's layout
        ranks = shares.num_shards[offset + slot.axes[entry]]
        if ranks == 1:
            continue
        cols = slot.cols[entry]
        if slot.of[entry] == SUMMED:
            cols += graph.comm.summed_cols[row]
        elif slot.of[entry] == READ:
            cols += graph.comm.read_cols[row]
        elif slot.of[entry] == SHARED:
            cols += graph.comm.shared_cols[row]
        rows = ceil_div(
            graph.rows[row], shares.num_shards[offset + slot.rows_by[entry]] * shares.options.microbatches[p]
        )
        cols = ceil_div(cols, shares.num_shards[offset + slot.cols_by[entry]])
        out.collective[row], out.ranks[row] = collective, ranks
        out.bytes[row] = shares.activation[p] * graph.launches.batch[row] * rows * cols
        out.group[row] = shares.columns * slot.axes[entry] + layer


@kernel
def _missing_share(producer: int, reader: int, all_cols: bool, gathered: bool) -> float:
    """Return the share of a tensor that a device lacks for another layout, over its present share.

    producer, reader: devices that share a block of rows, by columns, at either end; devices are numbered so
    that blocks nest. all_cols: the reader needs all columns of its rows; gathered: the producer's devices
    have all columns of theirs.
    """
    if gathered:
        if reader <= producer:
            return 0.0
        return 1.0 * (reader - producer) if all_cols else 1.0 - producer / reader
    narrow, wide = min(producer, reader), max(producer, reader)
    moved = 1.0 - narrow / wide if wide % narrow == 0 else 1.0
    if not all_cols:
        return moved
    return (moved if producer > reader else 0.0) + (reader - 1.0)


class _Border(NamedTuple):
    """A kernel at the border of its layer with another layer, its peer."""

    entry: int  # of the kernel, as a row of Shardings
    peer_entry: int  # the same under the peer's layout
    ranks: int  # devices that share a block of rows
    peer_ranks: int


class _Move(NamedTuple):
    """Transfer of a tensor over a border."""

    cols: int  # of the tensor
    missing: float  # share that a device lacks, over its present share; 0: nothing moves
    gathers: bool  # whether each device gets the shards of its group


@lean_kernel
def _move_activation(graph: Graph, shardings: Shardings, row: int, border: _Border) -> _Move:
    """Return the transfer of an activation, from its producer's layer to its reader's."""
    is_read = shardings.reads[border.entry] > 0
    if not is_read and graph.comm.sent_cols[row] == 0:
        return _Move(0, 0.0, False)
    comm = graph.comm
    cols = comm.read_cols[row] + shardings.statistics_cols[border.entry] if is_read else comm.sent_cols[row]
    all_cols = shardings.reads_all_cols[border.peer_entry] > 0
    # a recurrent layer's next step reads it
    gathered = (
        shardings.reads_all_cols[border.entry] > 0 and border.ranks > 1 and graph.launches.repeat[row] > 1
    )
    missing = _missing_share(border.ranks, border.peer_ranks, all_cols, gathered)
    return _Move(cols, missing, all_cols and not gathered and border.ranks <= border.peer_ranks)


@lean_kernel
def _move_gradient(graph: Graph, shardings: Shardings, row: int, border: _Border) -> _Move:
    """Return the transfer of an activation's gradient, back to the layer of the activation's producer."""
    cols = graph.comm.sent_cols[row]
    if cols == 0:
        return _Move(0, 0.0, False)
    all_cols = shardings.reads_all_cols[border.peer_entry] > 0  # the producer needs all of its gradient
    missing = 0.0
    if shardings.partial_gradient[border.entry] == 0 or border.ranks < border.peer_ranks:
        missing = _missing_share(border.ranks, border.peer_ranks, all_cols, False)
    elif all_cols:  # the sum over this layer's group ends in the peer's layout
        missing = border.peer_ranks - 1.0
    return _Move(cols, missing, all_cols and border.ranks <= border.peer_ranks)


@kernel
def write_relayout(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, out: CrossEdges
) -> None:
    """Write the transfers of activations, or their gradients, between layers of different layouts.

    An all-gather where each device gets its group's shards, else an all-to-all within the larger group.
    """
    for row in range(graph.point.size):
        p, layer, peer = graph.point[row], graph.layer.kind[row], graph.comm.peer_kind[row]
        if graph.phase[row] > BACKWARD or not shares.differ[p] or _same_layout(shares, p, layer, peer):
            continue
        first = shares.columns * p
        border = _Border(
            shares.first[first + layer] + row, shares.first[first + peer] + row,
            shares.ranks[p, layer], shares.ranks[p, peer],
        )  # fmt: skip
        if graph.phase[row] == FORWARD:
            move = _move_activation(graph, shardings, row, border)
        else:
            move = _move_gradient(graph, shardings, row, border)
        if move.missing == 0.0:
            continue
        larger = peer if move.gathers or border.peer_ranks > border.ranks else layer
        ranks = shares.ranks[p, larger]
        cols = ceil_div(move.cols, border.ranks)
        part = shares.activation[p] * graph.launches.batch[row] * local.rows[row] * cols
        out.collective[row], out.ranks[row] = ALL_GATHER if move.gathers else ALL_TO_ALL, ranks
        out.bytes[row] = part * move.missing * ranks / (ranks - 1.0)  # of which a rank keeps its share
        out.group[row] = (
            shares.columns * shardings.activation_cols[shares.first[first + larger] + row] + larger
        )


@lean_kernel
def write_gradient(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, out: CrossEdges
) -> None:
    """Write the reduction of weight gradients over the devices with the same weights.

    An embedding's gradient has a row for each token: its rows are gathered where that moves fewer
    bytes than summing the whole table.
    """
    for row in range(graph.point.size):
        p, layer = graph.point[row], graph.layer.kind[row]
        out.collective[row], out.bytes[row] = NO_EXCHANGE, 0.0
        out.ranks[row], out.group[row] = 1, 0
        if graph.gradient[row] == NO_GRADIENT:
            continue
        offset = shares.columns * p + layer
        axis_set = shardings.owners[shares.first[offset] + row]
        ranks = shares.num_shards[shares.sets * offset + axis_set]
        if ranks == 1:
            continue
        weights = 1.0 * local.batch[row] * local.inner[row] * local.cols[row]
        collective, size = ALL_REDUCE, shares.gradient[p] * weights
        tokens = 1.0 * ceil_div(graph.rows[row], ranks)  # of all micro-batches
        gathered = shares.gradient[p] * ranks * tokens * local.activation_cols[row]
        passes = 2.0  # of the table, to all-reduce it
        if shares.options.zero[p] > 0:
            collective, passes = REDUCE_SCATTER, 1.0
        if graph.gradient[row] == SPARSE and gathered < passes * size:
            collective, size = ALL_GATHER, gathered
        out.collective[row], out.bytes[row], out.ranks[row] = collective, size, ranks
        out.group[row] = shares.columns * axis_set + layer


def write_fetch(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, out: CrossEdges
) -> None:
    """Write the all-gathers of sharded weights (ZeRO, arXiv:1910.02054).

    Once after their update; in stage 3, where no device keeps all weights, for each pass that uses them, and
    always exposed. With them, the momenta of matrices that an optimizer needs whole. Not a kernel: few points
    have any.
    """
    zero, offset = shares.options.zero[graph.point], shares.columns * graph.point + graph.layer.kind
    entry = shares.first[offset] + np.arange(offset.size)
    updates = (graph.phase == UPDATE) & (shardings.statistics_cols[entry] == 0)  # norms have statistics
    reshards = (graph.kind == INPUT_GRADIENT) & shares.options.reshards[graph.point]
    uses = (graph.memory.weights > 0) | reshards
    # momenta of matrices, where the optimizer needs all of a matrix
    gathered = np.where(updates & (zero > 0), graph.attributes.get(GATHERED, 0.0), 0.0)
    moves = np.where(zero == 3, uses | (gathered > 0.0), (zero > 0) & updates)
    rows = np.flatnonzero((local.owners > 1) & moves)
    out.collective[rows], out.ranks[rows] = ALL_GATHER, local.owners[rows]
    out.group[rows] = (shares.columns * shardings.owners[entry] + graph.layer.kind)[rows]
    weights = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    element = np.where((zero == 3) & updates, 0.0, shares.weight[graph.point])[rows] + gathered[rows]
    # once for all steps
    out.bytes[rows] = element * weights / graph.launches.repeat[rows]
    if BASE_BYTES in graph.attributes:
        stored = graph.attributes[BASE_BYTES][rows]
        of_base = stored * weights / graph.launches.repeat[rows]
        out.bytes[rows] = np.where(stored > 0.0, of_base, out.bytes[rows])


def write_replicas(graph: Graph, shares: Shares, sets: tuple[int, ...], out: Supergraph) -> None:
    """Restrict gathers and scatters to the devices of a replica, and write the sums over all replicas.

    Each device sums its shard with the devices of the same shard (PyTorch's HYBRID_SHARD, MiCS,
    arXiv:2205.00119). A gather of an embedding's rows is among all devices. Not a kernel: few points have
    any.
    """
    number = {mask: index for index, mask in enumerate(sets)}
    shard_sets = np.array([number.get(mask | SHARDS, number[mask]) for mask in sets], dtype=np.int64)
    replicas, owners = shares.replicas[graph.point], out.kernels.owners
    for edges, collective in ((out.fetch, ALL_GATHER), (out.gradient, REDUCE_SCATTER)):
        rows = np.flatnonzero((replicas > 1) & (edges.collective == collective))
        axis_set, column = np.divmod(edges.group[rows], shares.columns)
        edges.group[rows] = shares.columns * shard_sets[axis_set] + column
        edges.ranks[rows] = owners[rows]
    if not rows.size:
        return
    out.replicas.collective[rows], out.replicas.ranks[rows] = ALL_REDUCE, replicas[rows]
    out.replicas.bytes[rows] = out.gradient.bytes[rows] / owners[rows]
    out.replicas.group[rows] = shares.columns * number[REPLICAS] + column
    out.gradient.collective[rows[owners[rows] == 1]] = NO_EXCHANGE


def replicates_kv_heads(graph: Graph, shardings: Shardings, shares: Shares) -> Bools:
    """Return the kernels of attention with more devices than key heads, (kernels,).

    Only those of training, after the product that makes keys; a cache has copies of these heads.
    """
    result = np.zeros(graph.point.size, dtype=np.bool_)
    if "expanded" in graph.attributes:
        rows = np.flatnonzero((graph.attributes["expanded"] > 0.0) & (graph.kind == BATCHED))
        num_shards, _ = _head_shards(graph, shardings, shares, rows)
        result[rows] = num_shards > graph.attributes["kv_heads"][rows]
    return result


def _head_shards(graph: Graph, shardings: Shardings, shares: Shares, rows: Ints) -> tuple[Ints, Ints]:
    """Return the devices that share the heads of some kernels, and the numbers of these sets of axes."""
    offset = shares.columns * graph.point[rows] + graph.layer.kind[rows]
    sets = shardings.activation_cols[shares.first[offset] + rows]
    return shares.num_shards[shares.sets * offset + sets], sets


def write_heads(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, rows: Ints, out: CrossEdges
) -> None:
    """Write the collectives of devices that share fewer key heads than there are devices.

    Each computes a part of all columns, which are gathered before attention, and uses those of its heads.
    Backward, their gradients are scattered (NVIDIA/Megatron-LM, megatron/core/transformer/attention.py).
    rows: kernels of attention.
    """
    num_shards, sets = _head_shards(graph, shardings, shares, rows)
    is_backward = graph.phase[rows] == BACKWARD
    edge = rows + np.where(is_backward, 1, -1)  # after the pass that rounds the gradient of queries
    kv_product = np.where(is_backward, rows + 2, edge)  # the kernel of all columns, or of their gradient
    p = graph.point[rows]
    out.collective[edge] = np.where(is_backward, REDUCE_SCATTER, ALL_GATHER)
    out.ranks[edge] = num_shards
    out.group[edge] = shares.columns * sets + graph.layer.kind[rows]
    rows_of_batch = shares.activation[p] * graph.launches.batch[edge] * local.activation_rows[kv_product]
    out.bytes[edge] = rows_of_batch * graph.cols[kv_product]


def write_copies(graph: Graph, shares: Shares, local: LocalKernels, pipeline: int, out: CrossEdges) -> None:
    """Write the sum of an embedding's gradients with those of its copy on the last stage, once an iteration.

    An all-reduce of two ranks moves all of it in both directions at once, before the norm of the gradients:
    the first kernel of the update is the table's. pipeline: the number of its set of axes.
    """
    update = np.flatnonzero((graph.phase == UPDATE) & shares.options.copies[graph.point])
    rows = update[np.unique(graph.point[update], return_index=True)[1]]
    p = graph.point[rows]
    weights = 1.0 * local.batch[rows] * local.inner[rows] * local.cols[rows]
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.options.stages[p]
    out.group[rows] = shares.columns * pipeline + graph.layer.kind[rows]
    out.bytes[rows] = shares.gradient[p] * weights


def write_send(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, pipeline: int, out: CrossEdges
) -> None:
    """Write the sends between pipeline stages: each device's share of the activation.

    pipeline: the number of its set of axes. Not a kernel: few rows have any, and it would take a second to
    compile.
    """
    rows = np.flatnonzero((shares.options.stages[graph.point] > 1) & (graph.comm.sent_cols > 0))
    p, layer = graph.point[rows], graph.layer.kind[rows]
    offset = shares.columns * p + layer
    num_shards = shares.num_shards[
        shares.sets * offset + shardings.activation_cols[shares.first[offset] + rows]
    ]
    cols = -(-graph.comm.sent_cols[rows] // num_shards)
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.options.stages[p]
    out.group[rows] = shares.columns * pipeline + layer
    out.bytes[rows] = shares.activation[p] * graph.launches.batch[rows] * local.activation_rows[rows] * cols
