"""The compute graph cut by a strategy: one device's kernels, and the cross-edges between devices (3.3, 5.1).

All devices of a data or kernel parallel group do the same at the same time (6.5), so the cut
graph is that of one device of each pipeline stage. How every kernel is cut, and what is exchanged after it,
follows from an assignment (`splits`); degrees make sizes, bytes and ranks of it. Where a dimension does not
divide evenly, the largest shard counts.

    Pipeline, LP: layers by stages; what a stage's last layer makes is sent to the next one.
    Micro-batches: the rows of a device are worked on in turns.
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
    crowds_heads,
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
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges, FusedShares, Supergraph
from fastflow.physics.parallelism.sharding.tables import STAGES, Cuts, Slot, Tables, tables_of
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
from fastflow.physics.workload.sharding_rules import ShardingRule, Share


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
def _cut_sizes(graph: Graph, cuts: Cuts, shares: Shares, out: Supergraph) -> None:
    """Write every kernel's local dimensions."""
    for row in range(graph.point.size):
        p, kind, own, peer = graph.point[row], graph.kind[row], graph.layer_kind[row], graph.peer_kind[row]
        rows, turns, ways = graph.rows[row], shares.options.microbatches[p], shares.ways
        here, there = shares.columns * p + own, shares.columns * p + peer
        k, other = shares.first[here] + row, shares.first[there] + row
        here, there = shares.sets * here, shares.sets * there
        out.read_rows[row] = ceil_div(rows, ways[there + cuts.read_rows[other]] * turns)
        out.read_cols[row] = ceil_div(graph.cols[row], ways[there + cuts.read_cols[other]])
        if kind != ON_WEIGHTS:
            rows = ceil_div(rows, ways[here + cuts.rows[k]] * turns)
        inner = ceil_div(graph.inner[row], ways[here + cuts.inner[k]])
        cols = ceil_div(graph.cols[row], ways[here + cuts.cols[k]])
        activation_cols = ceil_div(graph.cols[row], ways[here + cuts.lies_cols[k]])
        out.activation_rows[row] = ceil_div(graph.rows[row], ways[here + cuts.lies_rows[k]] * turns)
        products, of_one = graph.products[row], rows
        if products > 1 or kind == BATCHED:  # each has its share of the rows
            of_one = ceil_div(graph.rows[row], products)
            products = ceil_div(products, ways[here + cuts.products[k]] * (turns if kind == BATCHED else 1))
            of_one = ceil_div(of_one, ways[here + cuts.rows[k]] * (1 if kind == BATCHED else turns))
        out.m[row], out.k[row], out.n[row] = _gemm_sizes(kind, of_one, inner, cols)
        out.batch[row] = graph.batch[row] * products
        if kind == BATCHED:
            out.m[row], out.k[row], out.n[row] = of_one, inner, graph.cols[row]
            rows = out.activation_rows[row]
        out.elements[row] = 0.0
        if kind == ON_ACTIVATIONS:
            out.elements[row] = 1.0 * rows * activation_cols
        elif kind == ON_WEIGHTS:
            out.elements[row] = 1.0 * out.batch[row] * inner * cols
            if shares.options.zero[p] > 0 and graph.phase[row] == UPDATE:  # each device updates its part
                out.elements[row] = np.ceil(
                    out.elements[row] * shares.replicas[p] / ways[here + cuts.sharing[k]]
                )
        out.rows[row], out.inner[row], out.cols[row] = rows, inner, cols
        out.activation_cols[row] = activation_cols
        out.owners[row] = max(ways[here + cuts.sharing[k]] // shares.replicas[p], 1)


@kernel
def _cut(graph: Graph, cuts: Cuts, slot: Slot, shares: Shares, out: Supergraph) -> None:
    """Write one device's share of every kernel, and the first of its exchanges."""
    _cut_sizes(graph, cuts, shares, out)
    write_sync(graph, slot, shares, out.sync)
    write_gradient(graph, cuts, shares, out, out.gradient)


class _Present(NamedTuple):
    """Which exchanges some point has; most have none of these."""

    relayout: bool
    fetch: bool
    replicas: bool
    send: bool


def cut(graph: Graph, layouts: Layouts, options: ParallelOptions, precision: Precision) -> Supergraph:
    """Cut every kernel of the graph as its point's strategy says."""
    replicated = bool((layouts.replicas > 1).any())
    used = np.flatnonzero(np.bincount(layouts.assignment.ravel()))
    used = used if used.size else np.zeros(1, dtype=np.int64)
    tables = tables_of(graph.structures, tuple(used.tolist()), replicated)
    shares = _shares(graph, layouts, options, precision, tables, np.searchsorted(used, layouts.assignment))
    crowded, copied = crowds_heads(graph, tables.cuts, shares), bool(options.copies.any())
    differ = bool(shares.differ.any())
    present = _Present(
        relayout=differ or copied or bool(crowded.any()),
        fetch=bool((options.zero > 0).any()),
        replicas=replicated,
        send=bool((options.stages > 1).any()),
    )
    out = _allocate(graph.point.size, tables, present)
    kernels_of, local, sets = graph.numbers, out.numbers, tables.groups.sets
    _cut(kernels_of, tables.cuts, tables.slots[0], shares, local)
    for slot, further in zip(tables.slots[1:], out.further, strict=True):
        write_sync(kernels_of, slot, shares, further)
    if differ:
        write_relayout(kernels_of, tables.cuts, shares, local, out.relayout)
    if present.fetch:
        write_fetch(graph, tables.cuts, shares, out, out.fetch)
    if present.replicas:
        write_replicas(graph, shares, sets, out)
    if crowded.any():
        write_heads(graph, tables.cuts, shares, out, np.flatnonzero(crowded), out.relayout)
    if copied:
        write_copies(graph, shares, out, sets.index(STAGES), out.relayout)
    if present.send:
        write_send(graph, tables.cuts, shares, out, sets.index(STAGES), out.send)
    return out._replace(fused=_fused(graph, tables.cuts, shares, out, precision))


def _shares(
    graph: Graph,
    layouts: Layouts,
    options: ParallelOptions,
    precision: Precision,
    tables: Tables,
    place: Ints,
) -> Shares:
    """Return how layouts cut kernels; place: of assignments in the tables, (points, columns)."""
    sets = tables.groups.sets
    return Shares(
        first=(tables.first[graph.structure[:, None], place] - graph.offset[:-1, None]).ravel(),
        ways=np.stack([devices_along(layouts.degrees, axes) for axes in sets], axis=2).ravel(),
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


def _allocate(kernels: int, tables: Tables, present: _Present) -> Supergraph:
    """Return tables to write one device's shares to; exchanges that no point has share columns of zeros."""

    def column() -> Ints:
        return np.empty(kernels, dtype=np.int64)

    def edges() -> CrossEdges:
        return CrossEdges(collective=column(), bytes=np.empty(kernels), ranks=column(), group=column())

    zeros, no_bytes = np.zeros(kernels, dtype=np.int64), np.zeros(kernels)
    nothing = CrossEdges(collective=zeros, bytes=no_bytes, ranks=zeros, group=zeros)

    def rare(is_present: bool) -> CrossEdges:
        if not is_present:
            return nothing
        return CrossEdges(zeros.copy(), no_bytes.copy(), zeros.copy(), zeros.copy())

    return Supergraph(
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
        owners=column(),
        fetch=rare(present.fetch),
        read_rows=column(),
        read_cols=column(),
        sync=edges(),
        relayout=rare(present.relayout),
        gradient=edges(),
        replicas=rare(present.replicas),
        further=tuple(edges() for _ in tables.slots[1:]),
        send=rare(present.send),
        groups=tables.groups,
        fused=(),
    )


def _fused(
    graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, precision: Precision
) -> tuple[FusedShares, ...]:
    """Return the kernels that their types time themselves, by type."""
    found: dict[ShardingRule, list[Ints]] = {}
    for number, structure in enumerate(graph.structures):
        own: dict[ShardingRule, list[int]] = {}
        for at, facts in enumerate(structure):
            is_pass = facts.kind == ON_ACTIVATIONS and facts.phase == FORWARD
            if facts.form.type.time is not None and (is_pass or facts.kind in PRODUCTS):
                own.setdefault(facts.form.type, []).append(at)
        for one, places in own.items():
            starts = graph.offset[np.flatnonzero(graph.structure == number)]
            found.setdefault(one, []).append(np.add.outer(starts, places).ravel())
    every = {one: np.concatenate(rows) for one, rows in found.items()}
    return tuple(
        FusedShares(one, rows, _share(rows, graph, cuts, shares, local, precision))
        for one, rows in every.items()
    )


def _share(
    rows: Ints, graph: Graph, cuts: Cuts, shares: Shares, local: Supergraph, precision: Precision
) -> Share:
    """Return one device's shares of some kernels."""
    point = graph.point[rows]
    here = shares.columns * point + graph.layer_kind[rows]
    k = shares.first[here] + rows
    is_pass = local.m[rows] == 0
    return Share(
        device=point,
        kind=graph.kind[rows],
        m=local.m[rows],
        k=local.k[rows],
        n=np.where(is_pass, local.activation_cols[rows], local.n[rows]),
        batch=local.batch[rows],
        rows=graph.rows[rows],
        products=graph.products[rows],
        row_shards=shares.ways[shares.sets * here + cuts.rows[k]],
        col_shards=shares.ways[shares.sets * here + cuts.cols[k]],
        group_shards=shares.ways[shares.sets * here + cuts.products[k]],
        elements=local.elements[rows],
        num_microbatches=shares.options.microbatches[point],
        operand=precision.operand[point],
        output=np.where(
            graph.kind[rows] == WEIGHT_GRADIENT, precision.summed[point], precision.output[point]
        ),
        activation=precision.activation[point],
        attention=precision.attention[point],
        cache=precision.cache[point],
        attributes={name: column[rows] for name, column in graph.attributes.items()},
    )


def all_launches(graph: Graph, microbatches: Ints) -> Ints:
    """Return the launches of every kernel in an iteration, shape (kernels,): once to update.

    microbatches: shape (points,).
    """
    launches = graph.repeat if (graph.times == 1).all() else graph.repeat * graph.times
    if (microbatches == 1).all():
        return launches
    return launches * np.where(graph.phase == UPDATE, 1, microbatches[graph.point])
