"""The compute graph cut by a strategy: one device's kernels, and the cross-edges between devices (3.3, 5.1).

All devices of a data or kernel parallel group do the same at the same time (6.5), so the cut
graph is that of one device of each pipeline stage. How every kernel is cut, and what is exchanged after it,
follows from an assignment (`splits`); degrees make sizes, bytes and ranks of it. Where a dimension does not
divide evenly, the largest shard counts.

    Pipeline, LP: layers by stages; what a stage's last layer makes is sent to the next one.
    Micro-batches: the rows of a device are worked on in turns.

Where neighbouring layers are laid out differently, the activation between them moves to its reader's
layout: gathered where the reader wants more of it than its maker has, exchanged all-to-all where it
wants another part; backward, its gradient goes the other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.errors import InputError
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.mesh import AXES, PIPELINE, devices_along
from fastflow.parallelism.splits import (
    READ,
    SUMMED,
    Exchange,
    Split,
    assignments,
    rows_cut_by,
    splits_of,
)
from fastflow.parallelism.strategy import COLUMN_ROW
from fastflow.tables import Bools, Floats, Ints, Texts
from fastflow.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BACKWARD,
    BATCHED,
    FORWARD,
    INPUT_GRADIENT,
    LAYER_KINDS,
    NO_EXCHANGE,
    NO_GRADIENT,
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    POINT_TO_POINT,
    PRODUCT,
    REDUCE_SCATTER,
    SPARSE,
    UPDATE,
    WEIGHT_GRADIENT,
    Graph,
    Structure,
)

# of splits.Split and Exchange, sets of axes
_KINDS = len(LAYER_KINDS)
STAGES = 1 << PIPELINE
"""The set of axes of a pipeline."""
_SETS = ("rows", "inner", "cols", "products", "lies_rows", "lies_cols", "read_rows", "read_cols", "sharing")
_SETS_OF_A_SLOT = ("axes", "rows_by", "cols_by")


class CrossEdges(NamedTuple):
    """An exchange a kernel, along some axes of the mesh; shape (kernels,)."""

    collective: Ints  # of workload.graph.COLLECTIVES
    bytes: Floats  # of the whole tensor, as each device holds it before or after
    ranks: Ints
    group: Ints  # who exchanges: the number of a set of axes x kinds of layer + the kind


class Groups(NamedTuple):
    """Who may exchange. Sets of axes are bits."""

    sets: tuple[int, ...] = ()  # by number
    exchanging: tuple[tuple[int, ...], ...] = ()  # those that an assignment exchanges along


_NO_GROUPS: Groups = Groups()


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
    activation_rows: Ints  # rows and columns of an activation that a device has
    activation_cols: Ints
    read_rows: Ints  # rows and columns of it that the next product reads
    read_cols: Ints
    sync: CrossEdges  # follows the kernel, every launch, and is waited for
    relayout: CrossEdges  # the same, where the tensor's other end is laid out differently
    owners: Ints  # devices that have the same weights
    fetch: CrossEdges  # of weights that devices have parts of (ZeRO), waited for
    gradient: CrossEdges  # starts when the kernel is done, and may overlap with what comes
    further: tuple[CrossEdges, ...]  # the same as sync, where something has more than one
    send: CrossEdges  # to the neighbouring stage, where the cut of the pipeline falls on the layer's border
    groups: Groups

    @property
    def syncs(self) -> tuple[CrossEdges, ...]:
        """All that is waited for after a kernel: what is always there, and what some point has."""
        others = (*self.further, self.relayout, self.fetch)
        return (self.sync, *(edges for edges in others if edges.collective.any()))

    @property
    def numbers(self) -> Supergraph:
        """All that kernels take."""
        return self._replace(further=(), groups=_NO_GROUPS)


class _Slot(NamedTuple):
    """One exchange of every kernel of the structures, by assignment; (cuts,). Sets of axes by number."""

    collective: Ints
    axes: Ints
    of: Ints  # which columns: splits.STATISTICS, SUMMED or READ
    cols: Ints
    rows_by: Ints
    cols_by: Ints


class _Cuts(NamedTuple):
    """How kernels of the structures are cut, by assignment, as `splits.Split`; (cuts,). Sets by number."""

    rows: Ints
    inner: Ints
    cols: Ints
    products: Ints
    lies_rows: Ints
    lies_cols: Ints
    read_rows: Ints
    read_cols: Ints
    sharing: Ints
    reads: Ints
    travels: Ints
    whole: Ints
    partial: Ints


class _Shares(NamedTuple):
    """How a point's layouts cut its kernels; shape (points, kinds of layer) or (points,)."""

    first: Ints  # of the cuts of the point's kernels, less the point's first kernel; flat
    ways: Ints  # devices along every set of axes, (points, kinds of layer, sets); flat
    sets: int
    assignment: Ints
    row_shards: Ints
    ranks: Ints  # devices that share the rows of a layer
    microbatches: Ints  # (points,)
    zero: Ints  # stage of ZeRO: what devices with the same weights have parts of, (points,)
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
def _cut_sizes(graph: Graph, cuts: _Cuts, shares: _Shares, out: Supergraph) -> None:
    """Write every kernel's local dimensions."""
    for row in range(graph.point.size):
        p, kind, own, peer = graph.point[row], graph.kind[row], graph.layer_kind[row], graph.peer_kind[row]
        rows, turns, ways = graph.rows[row], shares.microbatches[p], shares.ways
        here, there = _KINDS * p + own, _KINDS * p + peer
        k, other = shares.first[here] + row, shares.first[there] + row
        here, there = shares.sets * here, shares.sets * there
        out.read_rows[row] = _ceil_div(rows, ways[there + cuts.read_rows[other]] * turns)
        out.read_cols[row] = _ceil_div(graph.cols[row], ways[there + cuts.read_cols[other]])
        if kind != ON_WEIGHTS:
            rows = _ceil_div(rows, ways[here + cuts.rows[k]] * turns)
        inner = _ceil_div(graph.inner[row], ways[here + cuts.inner[k]])
        cols = _ceil_div(graph.cols[row], ways[here + cuts.cols[k]])
        activation_cols = _ceil_div(graph.cols[row], ways[here + cuts.lies_cols[k]])
        out.activation_rows[row] = _ceil_div(graph.rows[row], ways[here + cuts.lies_rows[k]] * turns)
        out.m[row], out.k[row], out.n[row] = _gemm_sizes(kind, rows, inner, cols)
        out.batch[row] = graph.batch[row]
        if kind == BATCHED:
            products = graph.products[row]
            out.batch[row] = _ceil_div(products, ways[here + cuts.products[k]] * turns)
            out.m[row] = graph.rows[row] // products
            out.k[row], out.n[row] = graph.inner[row], graph.cols[row]
        out.elements[row] = 0.0
        if kind == ON_ACTIVATIONS:
            out.elements[row] = 1.0 * rows * activation_cols
        elif kind == ON_WEIGHTS:
            out.elements[row] = 1.0 * graph.batch[row] * inner * cols
            if shares.zero[p] > 0:  # each device updates its part
                out.elements[row] = np.ceil(out.elements[row] / ways[here + cuts.sharing[k]])
        out.rows[row], out.inner[row], out.cols[row] = rows, inner, cols
        out.activation_cols[row], out.owners[row] = activation_cols, ways[here + cuts.sharing[k]]


@lean_kernel
def _alike(shares: _Shares, p: int, own: int, peer: int) -> bool:
    """Return whether two kinds of layer are laid out in the same way."""
    return own == peer or (
        shares.assignment[p, own] == shares.assignment[p, peer]
        and shares.row_shards[p, own] == shares.row_shards[p, peer]
        and shares.ranks[p, own] == shares.ranks[p, peer]
    )


@kernel
def _write_sync(graph: Graph, slot: _Slot, shares: _Shares, out: CrossEdges) -> None:
    """Write what the devices of one layer exchange."""
    for row in range(graph.point.size):
        p, own = graph.point[row], graph.layer_kind[row]
        here = _KINDS * p + own
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
        rows = _ceil_div(graph.rows[row], shares.ways[here + slot.rows_by[k]] * shares.microbatches[p])
        cols = _ceil_div(cols, shares.ways[here + slot.cols_by[k]])
        out.collective[row], out.ranks[row] = collective, ranks
        out.bytes[row] = shares.operand[p] * graph.batch[row] * rows * cols
        out.group[row] = _KINDS * slot.axes[k] + own


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
def _write_relayout(graph: Graph, cuts: _Cuts, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write what moves an activation, or its gradient, between layers that are laid out differently.

    A gather where each device is to have its group's parts, else all-to-all within the larger group.
    """
    for row in range(graph.point.size):
        p, own, peer = graph.point[row], graph.layer_kind[row], graph.peer_kind[row]
        if not shares.differ[p] or _alike(shares, p, own, peer):
            continue
        here, there = shares.ranks[p, own], shares.ranks[p, peer]
        k, other = shares.first[_KINDS * p + own] + row, shares.first[_KINDS * p + peer] + row
        cols, lacks, gathers = 0, 0.0, False
        if graph.phase[row] == FORWARD and (cuts.reads[k] > 0 or graph.sends_cols[row] > 0):
            reads = cuts.reads[k] > 0
            cols = graph.read_cols[row] + cuts.travels[k]
            cols = cols if reads else graph.sends_cols[row]
            whole = cuts.whole[other] > 0
            gathered = (
                cuts.whole[k] > 0 and here > 1 and graph.repeat[row] > 1
            )  # for the layer's own next step
            lacks = _missing(here, there, whole, gathered)
            gathers = whole and not gathered and here <= there
        elif graph.phase[row] == BACKWARD and graph.sends_cols[row] > 0:
            cols = graph.sends_cols[row]
            whole = cuts.whole[other] > 0  # the product that made it needs all of its gradient
            if cuts.partial[k] == 0 or here < there:
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
        out.ranks[row], out.group[row] = (
            ranks,
            _KINDS * cuts.lies_cols[shares.first[_KINDS * p + group] + row] + group,
        )


@lean_kernel
def _write_gradient(graph: Graph, cuts: _Cuts, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
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
        here = _KINDS * p + own
        along = cuts.sharing[shares.first[here] + row]
        ranks = shares.ways[shares.sets * here + along]
        if ranks == 1:
            continue
        weights = 1.0 * graph.batch[row] * local.inner[row] * local.cols[row]
        collective, size = ALL_REDUCE, shares.operand[p] * weights
        tokens = 1.0 * _ceil_div(graph.rows[row], ranks)  # of all micro-batches
        gathered = shares.operand[p] * ranks * tokens * local.activation_cols[row]
        passes = 2.0  # of the table, to sum it for everyone
        if shares.zero[p] > 0:
            collective, passes = REDUCE_SCATTER, 1.0
        if graph.gradient[row] == SPARSE and gathered < passes * size:
            collective, size = ALL_GATHER, gathered
        out.collective[row], out.bytes[row], out.ranks[row] = collective, size, ranks
        out.group[row] = _KINDS * along + own


def _write_fetch(graph: Graph, cuts: _Cuts, shares: _Shares, local: Supergraph, out: CrossEdges) -> None:
    """Write the gathers of weights of which every device has a part (ZeRO, arXiv:1910.02054).

    Once after their update; in stage 3, where none keeps the whole, for each pass that uses them, and nothing
    hides that. Not a kernel: few points have any.
    """
    zero, here = shares.zero[graph.point], _KINDS * graph.point + graph.layer_kind
    k = shares.first[here] + np.arange(here.size)
    updates = (graph.phase == UPDATE) & (cuts.travels[k] == 0)  # norms have statistics
    uses = (graph.weights > 0) | (graph.kind == INPUT_GRADIENT)
    rows = np.flatnonzero((local.owners > 1) & np.where(zero == 3, uses, (zero > 0) & updates))
    out.collective[rows], out.ranks[rows] = ALL_GATHER, local.owners[rows]
    out.group[rows] = (_KINDS * cuts.sharing[k] + graph.layer_kind)[rows]
    weights = 1.0 * graph.batch[rows] * local.inner[rows] * local.cols[rows]
    out.bytes[rows] = shares.operand[graph.point[rows]] * weights / graph.repeat[rows]  # once for all steps


def _write_send(
    graph: Graph, cuts: _Cuts, shares: _Shares, local: Supergraph, pipeline: int, out: CrossEdges
) -> None:
    """Write what crosses a cut of the pipeline at the layer's border: each device's own part of it.

    pipeline: the number of its set of axes. Not a kernel: few rows have any, and it would take a second to
    compile.
    """
    rows = np.flatnonzero((shares.stages[graph.point] > 1) & (graph.sends_cols > 0))
    p, own = graph.point[rows], graph.layer_kind[rows]
    here = _KINDS * p + own
    ways = shares.ways[shares.sets * here + cuts.lies_cols[shares.first[here] + rows]]
    cols = -(-graph.sends_cols[rows] // ways)
    out.collective[rows], out.ranks[rows] = POINT_TO_POINT, shares.stages[p]
    out.group[rows] = _KINDS * pipeline + own
    out.bytes[rows] = shares.operand[p] * graph.batch[rows] * local.activation_rows[rows] * cols


@kernel
def _cut(graph: Graph, cuts: _Cuts, slot: _Slot, shares: _Shares, out: Supergraph) -> None:
    """Write one device's share of every kernel, and the first of its exchanges."""
    _cut_sizes(graph, cuts, shares, out)
    _write_sync(graph, slot, shares, out.sync)
    _write_gradient(graph, cuts, shares, out, out.gradient)


class _Tables(NamedTuple):
    """How the kernels of some structures are cut under every assignment."""

    cuts: _Cuts
    slots: tuple[_Slot, ...]
    first: Ints  # of the cuts of a structure under an assignment, (structures, assignments)
    groups: Groups
    cutting: Ints  # axes that cut some kernel, as bits, (structures, assignments)


def _cutting(splits: Iterable[Split]) -> int:
    """Return the axes that cut any kernel, as bits."""
    return reduce(or_, (split.products for split in splits), 0)


def uncut(graph: Graph, layouts: Layouts) -> Texts:
    """Say for every point which axis of its layout cannot cut its model; or "", (points,)."""
    reason = np.full(graph.structure.size, "", dtype=object)
    named = layouts.assignment.max(axis=1, initial=0) > COLUMN_ROW  # by dimensions that a model may not have
    if not named.any():
        return reason.astype(str)
    every = assignments()
    cutting = _tables(graph.structures, tuple(range(len(every)))).cutting
    for i in np.flatnonzero(named).tolist():
        place, numbers = graph.structure[i], layouts.assignment[i]
        cuts = np.bitwise_or.reduce(cutting[place, numbers])
        for name, dimensions in (one for number in numbers.tolist() for one in every[number]):
            axis = AXES.index(name)
            degree, ways = int(layouts.degrees[i, 0, axis]), rows_cut_by(graph.structures[place], dimensions)
            if degree > 1 and not cuts >> axis & 1:
                dims = ", ".join(dimensions)
                allowed = f"1, since the model names none of the dimensions that {name} cuts: {dims}"
                reason[i] = str(InputError(f"degree of {name}", degree, allowed))
            elif degree > 1 and len(ways) > 1:
                allowed = (
                    f"an axis that cuts rows in one dimension; the kernels have {', '.join(sorted(ways))}"
                )
                reason[i] = str(InputError(f"parallel.layout: axes.{name}", ", ".join(dimensions), allowed))
    return reason.astype(str)


@lru_cache(maxsize=64)
def _tables(structures: tuple[Structure, ...], numbers: tuple[int, ...]) -> _Tables:
    """Return how structures are cut under some assignments, by their numbers."""
    known = assignments()
    every = [splits_of(one, known[number]) for one in structures for number in numbers]
    splits = [split for one in every for split in one]
    count = max((len(split.exchanges) for split in splits), default=0)
    padded = [(*split.exchanges, *[Exchange()] * (max(count, 1) - len(split.exchanges))) for split in splits]
    sets = {0, STAGES}
    for split in splits:
        sets |= {getattr(split, field) for field in _SETS}
        sets |= {getattr(one, field) for one in split.exchanges for field in _SETS_OF_A_SLOT}
    number = {found: i for i, found in enumerate(sorted(sets))}
    exchanging: list[tuple[int, ...]] = [(STAGES,)] * len(known)
    for place, by in enumerate(numbers):
        along = (split.exchanging for one in every[place :: len(numbers)] for split in one)
        exchanging[by] = tuple(sorted({STAGES}.union(*along)))

    def column(rows: Sequence[NamedTuple], field: str, is_set: bool) -> Ints:
        values = [getattr(row, field) for row in rows]
        return np.array([number[value] for value in values] if is_set else values, dtype=np.int64)

    return _Tables(
        cuts=_Cuts(*(column(splits, field, field in _SETS) for field in _Cuts._fields)),
        slots=tuple(
            _Slot(*(column(of, field, field in _SETS_OF_A_SLOT) for field in _Slot._fields))
            for of in zip(*padded, strict=True)
        ),
        first=np.cumsum([0, *map(len, every)])[:-1].reshape(len(structures), len(numbers)),
        groups=Groups(tuple(sorted(sets)), tuple(exchanging)),
        cutting=np.array([_cutting(one) for one in every]).reshape(len(structures), len(numbers)),
    )


def cut(
    graph: Graph, layouts: Layouts, stages: Ints, microbatches: Ints, zero: Ints, operand_bytes: Floats
) -> Supergraph:
    """Cut every kernel of the graph as its point's strategy says.

    stages, microbatches, zero (its stage), operand_bytes: shape (points,).
    """
    used = np.flatnonzero(np.bincount(layouts.assignment.ravel()))
    used = used if used.size else np.zeros(1, dtype=np.int64)
    tables = _tables(graph.structures, tuple(used.tolist()))
    sets, place = tables.groups.sets, np.searchsorted(used, layouts.assignment)
    shares = _Shares(
        first=(tables.first[graph.structure[:, None], place] - graph.offset[:-1, None]).ravel(),
        ways=np.stack([devices_along(layouts.degrees, one) for one in sets], axis=2).ravel(),
        sets=len(sets),
        assignment=layouts.assignment,
        row_shards=layouts.row_shards,
        ranks=layouts.ranks,
        microbatches=microbatches,
        zero=np.array(zero),  # a column that kernels take
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

    moves, stacked, shared = shares.differ.any(), (stages > 1).any(), (zero > 0).any()
    out = Supergraph(
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
        fetch=rare(shared),
        read_rows=column(),
        read_cols=column(),
        sync=edges(),
        relayout=rare(moves),
        gradient=edges(),
        further=tuple(edges() for _ in tables.slots[1:]),
        send=rare(stacked),
        groups=tables.groups,
    )
    kernels_of, local = graph.numbers, out.numbers
    _cut(kernels_of, tables.cuts, tables.slots[0], shares, local)
    for slot, further in zip(tables.slots[1:], out.further, strict=True):
        _write_sync(kernels_of, slot, shares, further)
    if moves:
        _write_relayout(kernels_of, tables.cuts, shares, local, out.relayout)
    if shared:
        _write_fetch(graph, tables.cuts, shares, out, out.fetch)
    if stacked:
        _write_send(graph, tables.cuts, shares, out, sets.index(STAGES), out.send)
    return out


def all_launches(graph: Graph, microbatches: Ints) -> Ints:
    """Return the launches of every kernel in an iteration, shape (kernels,): once to update.

    microbatches: shape (points,).
    """
    if (microbatches == 1).all():
        return graph.repeat
    return graph.repeat * np.where(graph.phase == UPDATE, 1, microbatches[graph.point])
