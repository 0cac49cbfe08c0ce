"""The sharded compute graph: one device's kernels, and the cross-edges between devices (3.3, 5.1).

All devices of a data or kernel parallel group do the same at the same time (6.5), so the sharded graph is
that of one device of each pipeline stage. The sharding of every kernel, and the collectives after it, follow
from an assignment (`propagation`); degrees give sizes, bytes and ranks. Where a dimension does not divide
evenly, the largest shard counts.

    Pipeline, LP: layers by stages; the output of a stage's last layer is sent to the next stage.
    Micro-batches: the rows of a device are split into micro-batches, one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Ints
from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import devices_along
from fastflow.physics.parallelism.sharding.collectives import (
    Shares,
    ceil_div,
    replicates_kv_heads,
    write_copies,
    write_fetch,
    write_gradient,
    write_heads,
    write_relayout,
    write_replicas,
    write_send,
    write_sync,
)
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.local_graph import (
    CrossEdges,
    FusedShares,
    LocalKernels,
    Supergraph,
)
from fastflow.physics.parallelism.sharding.tables import STAGES, Shardings, Slot, Tables, tables_of
from fastflow.physics.workload.graph import (
    BATCHED,
    FORWARD,
    INPUT_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    PRODUCTS,
    UPDATE,
    WEIGHT_GRADIENT,
    Graph,
)
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import ElementBytes, ShardingRule, Share


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
def _write_local_sizes(graph: Graph, shardings: Shardings, shares: Shares, out: LocalKernels) -> None:
    """Write every kernel's local dimensions."""
    for row in range(graph.point.size):
        p, kind = graph.point[row], graph.kind[row]
        layer, peer = graph.layer.kind[row], graph.comm.peer_kind[row]
        rows, microbatches, num_shards = graph.rows[row], shares.options.microbatches[p], shares.num_shards
        offset, peer_offset = shares.columns * p + layer, shares.columns * p + peer
        entry, peer_entry = shares.first[offset] + row, shares.first[peer_offset] + row
        offset, peer_offset = shares.sets * offset, shares.sets * peer_offset
        out.read_rows[row] = ceil_div(
            rows, num_shards[peer_offset + shardings.read_rows[peer_entry]] * microbatches
        )
        out.read_cols[row] = ceil_div(
            graph.cols[row], num_shards[peer_offset + shardings.read_cols[peer_entry]]
        )
        if kind != ON_WEIGHTS:
            rows = ceil_div(rows, num_shards[offset + shardings.rows[entry]] * microbatches)
        inner = ceil_div(graph.inner[row], num_shards[offset + shardings.inner[entry]])
        cols = ceil_div(graph.cols[row], num_shards[offset + shardings.cols[entry]])
        activation_cols = ceil_div(graph.cols[row], num_shards[offset + shardings.activation_cols[entry]])
        out.activation_rows[row] = ceil_div(
            graph.rows[row], num_shards[offset + shardings.activation_rows[entry]] * microbatches
        )
        products, product_rows = graph.launches.products[row], rows
        if products > 1 or kind == BATCHED:  # each product has its share of the rows
            product_rows = ceil_div(graph.rows[row], products)
            products = ceil_div(
                products,
                num_shards[offset + shardings.products[entry]] * (microbatches if kind == BATCHED else 1),
            )
            product_rows = ceil_div(
                product_rows,
                num_shards[offset + shardings.rows[entry]] * (1 if kind == BATCHED else microbatches),
            )
        out.m[row], out.k[row], out.n[row] = _gemm_sizes(kind, product_rows, inner, cols)
        out.batch[row] = graph.launches.batch[row] * products
        if kind == BATCHED:
            out.m[row], out.k[row], out.n[row] = product_rows, inner, graph.cols[row]
            rows = out.activation_rows[row]
        out.elements[row] = 0.0
        if kind == ON_ACTIVATIONS:
            out.elements[row] = 1.0 * rows * activation_cols
        elif kind == ON_WEIGHTS:
            out.elements[row] = 1.0 * out.batch[row] * inner * cols
            if shares.options.zero[p] > 0 and graph.phase[row] == UPDATE:  # each device updates its shard
                out.elements[row] = np.ceil(
                    out.elements[row] * shares.replicas[p] / num_shards[offset + shardings.owners[entry]]
                )
        out.rows[row], out.inner[row], out.cols[row] = rows, inner, cols
        out.activation_cols[row] = activation_cols
        out.owners[row] = max(num_shards[offset + shardings.owners[entry]] // shares.replicas[p], 1)


@kernel
def _shard_kernels(
    graph: Graph, shardings: Shardings, slot: Slot, shares: Shares, out: LocalKernels, sync: CrossEdges,
    gradient: CrossEdges,
) -> None:  # fmt: skip
    """Write one device's share of every kernel, its first exchange, and the sum of its weight gradients."""
    _write_local_sizes(graph, shardings, shares, out)
    write_sync(graph, slot, shares, sync)
    write_gradient(graph, shardings, shares, out, gradient)


class _PresentExchanges(NamedTuple):
    """Rare exchanges, and whether some point has them."""

    relayout: bool
    fetch: bool
    replicas: bool
    send: bool


def shard_graph(graph: Graph, layouts: Layouts, options: ParallelOptions, precision: Precision) -> Supergraph:
    """Shard every kernel of the graph by its point's strategy."""
    replicated = bool((layouts.replicas > 1).any())
    used = np.flatnonzero(np.bincount(layouts.assignment.ravel()))
    used = used if used.size else np.zeros(1, dtype=np.int64)
    tables = tables_of(graph.structures, tuple(used.tolist()), replicated)
    shares = _shares(graph, layouts, options, precision, tables, np.searchsorted(used, layouts.assignment))
    replicated_heads, has_copies = (
        replicates_kv_heads(graph, tables.shardings, shares),
        bool(options.copies.any()),
    )
    differ = bool(shares.differ.any())
    present = _PresentExchanges(
        relayout=differ or has_copies or bool(replicated_heads.any()),
        fetch=bool((options.zero > 0).any()),
        replicas=replicated,
        send=bool((options.stages > 1).any()),
    )
    out = _allocate(graph.point.size, tables, present)
    kernels, local, sets = graph.numbers, out.kernels, tables.groups.sets
    _shard_kernels(kernels, tables.shardings, tables.slots[0], shares, local, out.sync, out.gradient)
    for slot, further in zip(tables.slots[1:], out.further, strict=True):
        write_sync(kernels, slot, shares, further)
    if differ:
        write_relayout(kernels, tables.shardings, shares, local, out.relayout)
    if present.fetch:
        write_fetch(graph, tables.shardings, shares, local, out.fetch)
    if present.replicas:
        write_replicas(graph, shares, sets, out)
    if replicated_heads.any():
        write_heads(graph, tables.shardings, shares, local, np.flatnonzero(replicated_heads), out.relayout)
    if has_copies:
        write_copies(graph, shares, local, sets.index(STAGES), out.relayout)
    if present.send:
        write_send(graph, tables.shardings, shares, local, sets.index(STAGES), out.send)
    return out._replace(fused=_fused(graph, tables.shardings, shares, local, precision))


def _shares(
    graph: Graph,
    layouts: Layouts,
    options: ParallelOptions,
    precision: Precision,
    tables: Tables,
    assignment_index: Ints,
) -> Shares:
    """Return the shards of kernels; assignment_index: of assignments in the tables, (points, columns)."""
    sets = tables.groups.sets
    return Shares(
        first=(tables.first[graph.structure[:, None], assignment_index] - graph.offset[:-1, None]).ravel(),
        num_shards=np.stack([devices_along(layouts.degrees, axes) for axes in sets], axis=2).ravel(),
        sets=len(sets),
        columns=layouts.assignment.shape[1],
        assignment=layouts.assignment,
        row_shards=layouts.row_shards,
        ranks=layouts.ranks,
        options=options,
        replicas=layouts.replicas,
        weight=precision.weight,
        activation=precision.activation,
        gradient=precision.gradient,
        differ=layouts.differ,
    )


def _allocate(kernels: int, tables: Tables, present: _PresentExchanges) -> Supergraph:
    """Return tables for one device's shares; exchanges that no point has use common columns of zeros."""

    def column() -> Ints:
        return np.empty(kernels, dtype=np.int64)

    def edges() -> CrossEdges:
        return CrossEdges(collective=column(), bytes=np.empty(kernels), ranks=column(), group=column())

    zeros, no_bytes = np.zeros(kernels, dtype=np.int64), np.zeros(kernels)
    no_edges = CrossEdges(collective=zeros, bytes=no_bytes, ranks=zeros, group=zeros)

    def optional_edges(is_present: bool) -> CrossEdges:
        if not is_present:
            return no_edges
        return CrossEdges(zeros.copy(), no_bytes.copy(), zeros.copy(), zeros.copy())

    local = LocalKernels(
        m=column(),
        k=column(),
        n=column(),
        batch=column(),
        elements=np.empty(kernels),
        rows=column(),
        inner=column(),
        cols=column(),
        activation_rows=column(),
        activation_cols=column(),
        read_rows=column(),
        read_cols=column(),
        owners=column(),
    )
    return Supergraph(
        kernels=local,
        sync=edges(),
        further=tuple(edges() for _ in tables.slots[1:]),
        relayout=optional_edges(present.relayout),
        fetch=optional_edges(present.fetch),
        gradient=edges(),
        replicas=optional_edges(present.replicas),
        send=optional_edges(present.send),
        groups=tables.groups,
        fused=(),
    )


def _fused(
    graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, precision: Precision
) -> tuple[FusedShares, ...]:
    """Return the kernels of types with a timing function, by type."""
    rows_of_type: dict[ShardingRule, list[Ints]] = {}
    for number, structure in enumerate(graph.structures):
        by_type: dict[ShardingRule, list[int]] = {}
        for index, graph_kernel in enumerate(structure):
            op_type = graph_kernel.form.type
            is_pass = graph_kernel.kind == ON_ACTIVATIONS and (
                graph_kernel.phase == FORWARD or op_type.times_backward
            )
            is_timed = graph_kernel.phase == UPDATE if op_type.times_update else is_pass
            if op_type.time is not None and (is_timed or graph_kernel.kind in PRODUCTS):
                by_type.setdefault(op_type, []).append(index)
        for op_type, indices in by_type.items():
            starts = graph.offset[np.flatnonzero(graph.structure == number)]
            rows_of_type.setdefault(op_type, []).append(np.add.outer(starts, indices).ravel())
    joined = {op_type: np.concatenate(rows) for op_type, rows in rows_of_type.items()}
    return tuple(
        FusedShares(op_type, rows, _share(rows, graph, shardings, shares, local, precision))
        for op_type, rows in joined.items()
    )


def _share(
    rows: Ints, graph: Graph, shardings: Shardings, shares: Shares, local: LocalKernels, precision: Precision
) -> Share:
    """Return one device's shares of some kernels."""
    point = graph.point[rows]
    offset = shares.columns * point + graph.layer.kind[rows]
    entry = shares.first[offset] + rows
    is_pass, is_update = local.m[rows] == 0, graph.phase[rows] == UPDATE
    cols = np.where(is_update, local.cols[rows], local.activation_cols[rows])
    return Share(
        device=point,
        kind=graph.kind[rows],
        m=np.where(is_update, local.inner[rows], local.m[rows]),
        k=local.k[rows],
        n=np.where(is_pass, cols, local.n[rows]),
        batch=local.batch[rows],
        rows=graph.rows[rows],
        products=graph.launches.products[rows],
        row_shards=shares.num_shards[shares.sets * offset + shardings.rows[entry]],
        col_shards=shares.num_shards[shares.sets * offset + shardings.cols[entry]],
        group_shards=shares.num_shards[shares.sets * offset + shardings.products[entry]],
        elements=local.elements[rows],
        num_microbatches=shares.options.microbatches[point],
        bytes=ElementBytes(
            operand=precision.operand[point],
            stored=precision.operand[point],
            conversion=np.zeros(point.size),
            output=np.where(
                graph.kind[rows] == WEIGHT_GRADIENT, precision.summed[point], precision.output[point]
            ),
            activation=precision.activation[point],
            attention=precision.attention[point],
            cache=precision.cache[point],
        ),
        attributes={name: column[rows] for name, column in graph.attributes.items()},
    )


def all_launches(graph: Graph, microbatches: Ints) -> Ints:
    """Return the launches of every kernel in an iteration, shape (kernels,): once to update.

    microbatches: shape (points,).
    """
    repeat, times = graph.launches.repeat, graph.launches.times
    launches = repeat if (times == 1).all() else repeat * times
    if (microbatches == 1).all():
        return launches
    return launches * np.where(graph.phase == UPDATE, 1, microbatches[graph.point])
