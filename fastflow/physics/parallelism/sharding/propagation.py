"""Sharding propagation: placements of tensors on the mesh of devices, and the collectives that follow.

Along each axis of the mesh a tensor is *sharded* in one of its dimensions, *replicated* (every device has all
of it), or a *partial* sum (Yuan et al., OneFlow, arXiv:2110.15032; Xu et al., GSPMD, arXiv:2105.04663). An
assignment gives the dimensions that every axis shards: each kernel is sharded along the first of them that it
has. All else follows. A kernel's output is sharded where it has the dimension, a partial sum where the kernel
contracts it, and replicated where neither. Collectives redistribute it to the placement that its readers
need: an all-gather from sharded to replicated, a reduce-scatter from partial to sharded, an all-reduce from
partial to replicated, an all-to-all from one sharding to another, nothing from replicated to sharded.

A partial sum is redistributed to the placement of a pass over the tensor: in this the tensor is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastflow.physics.parallelism.mesh import axes
from fastflow.physics.parallelism.plans import Assignment
from fastflow.physics.parallelism.sharding.placements import (
    canonical_placement,
    collective_for,
    input_gradient_placement,
    input_placement,
    is_shared,
    output_gradient_placement,
    output_placement,
    placement_of_pass,
    side,
)
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
    ON_ACTIVATIONS,
    ON_WEIGHTS,
    PRODUCT,
    REDUCE_SCATTER,
    Dims,
    Form,
    KernelSignature,
    Structure,
)
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, INNER, PARTIAL, REPLICATE, ROWS, SIDES

Placements = tuple[str, ...]
"""Placement of a tensor along every axis. It names the sharded side, not the dimension of the side: an
assignment must not shard the batch of one kernel and the sequence of the next along the same axis."""

# A row's maximum and sum, in fp32, as columns of 2-byte numbers; exact enough at fp32 too.
STATISTICS_COLS = 4
# A gather moves half of what an all-reduce of as many bytes does, so that statistics that travel with one
# count twice.
STATISTICS_IN_A_GATHER = 2 * STATISTICS_COLS
PlacementFunction = Callable[[tuple[str, ...], Form], str]
"""The placement of one tensor of a kernel along an axis, from the axis' dimensions and the kernel."""
_OF_ROWS = (ROWS, GROUPS)
_GEMM = TYPES["gemm"]  # a tensor that no product reads is kept as a GEMM would read it


STATISTICS, SUMMED, READ, SHARED = 0, 1, 2, 3
"""Columns of an exchange: statistics alone; the columns that a kernel sums; those that its readers read, or
read as a shared operand alone."""


class Exchange(NamedTuple):
    """A collective after a kernel, along some axes; sets of axes are bits."""

    collective: int = NO_EXCHANGE
    axes: int = 0
    of: int = STATISTICS  # which columns
    cols: int = 0  # further ones
    rows_by: int = 0  # other axes that shard the rows, and the columns
    cols_by: int = 0


@lru_cache(maxsize=256)
def axes_that_shard(assignment: Assignment, where: str) -> int:
    """Return the axes that shard a side of activations, as bits, whatever their dimensions are called."""
    return axes(*(axis for axis, dimensions in assignment if placement_of_pass(dimensions, Dims()) == where))


class Sharding(NamedTuple):
    """Sharding of a kernel, in sets of axes as bits, and the collectives after it."""

    rows: int
    inner: int
    cols: int
    products: int  # that are distributed whole
    activation_rows: int  # rows and columns of its output, or of the tensor whose gradient it makes
    activation_cols: int
    read_rows: int  # rows and columns of it as a product reads them
    read_cols: int
    owners: int  # axes along which devices have the same weights, and partial sums of their gradients
    reads: int  # 1 where products read it
    statistics_cols: int  # columns of statistics, gathered with the columns of its readers
    reads_all_cols: int  # 1 where its readers need all columns
    partial_gradient: int  # 1 where it makes partial sums of an input's gradient
    exchanges: tuple[Exchange, ...]

    @property
    def axis_sets(self) -> set[int]:
        """All sets of axes along which it may have a collective."""
        return {self.owners, self.activation_cols, *(exchange.axes for exchange in self.exchanges)}


def _along(
    assignment: Assignment, form: Form, placement: PlacementFunction, accepted: Collection[str]
) -> int:
    """Return the axes along which a tensor has one of the accepted placements."""
    return axes(*(axis for axis, dimensions in assignment if placement(dimensions, form) in accepted))


def _placement_of_sum(placements: Collection[str]) -> str:
    """Return the placement along an axis of a sum of tensors, before any collective."""
    distinct = set(placements) - {REPLICATE} or {REPLICATE}
    return distinct.pop() if len(distinct) == 1 else PARTIAL  # each device has its part and zeros


def _redistributions(
    kernel: KernelSignature, assignment: Assignment
) -> Iterator[tuple[int, Placements, Placements]]:
    """Yield every tensor complete after a kernel: its columns, its placements and the required ones."""
    makes_output = kernel.phase == FORWARD and kernel.kind != ON_WEIGHTS
    redistributions = _redistributed_outputs if makes_output else _redistributed_gradients
    return redistributions(kernel, assignment)


def _placements(assignment: Assignment, form: Form, placement: PlacementFunction) -> Placements:
    """Return the placement of one tensor of a kernel along every axis."""
    return tuple(placement(dimensions, form) for _, dimensions in assignment)


def _redistributed_outputs(
    kernel: KernelSignature, assignment: Assignment
) -> Iterator[tuple[int, Placements, Placements]]:
    """Yield the output of a forward kernel, and its copy for readers, as `_redistributions` does."""
    stored = _placements(assignment, kernel.form, canonical_placement)
    made = _placements(assignment, kernel.form, output_placement)
    if kernel.form.defers_sum:
        made = tuple(
            goal if (have, goal) == (PARTIAL, REPLICATE) else have
            for have, goal in zip(made, stored, strict=True)
        )
    yield SUMMED, made, stored
    reads = {form: _placements(assignment, form, input_placement) for form in kernel.readers}
    missing = {form: target for form, target in reads.items() if any(map(collective_for, stored, target))}
    if missing:  # readers share one copy
        columns = SHARED if all(form.operand for form in missing) else READ
        by_axis = zip(*missing.values(), strict=True)
        yield columns, stored, tuple(axis[0] if len({*axis}) == 1 else REPLICATE for axis in by_axis)


def _redistributed_gradients(
    kernel: KernelSignature, assignment: Assignment
) -> Iterator[tuple[int, Placements, Placements]]:
    """Yield the operands and gradients after a backward kernel, as `_redistributions` does."""

    def along(placement: PlacementFunction, form: Form) -> Placements:
        return _placements(assignment, form, placement)

    for producer, reader, keeps_placement in kernel.regathered:
        target = along(input_placement, reader)
        source = (
            canonical_placement(dimensions, producer)
            if keeps_placement or is_shared(dimensions, reader)
            else placement
            for (_, dimensions), placement in zip(assignment, target, strict=True)
        )
        yield SHARED, tuple(source), target
    for producer, adders in kernel.sums:
        added = (along(input_gradient_placement, form) for form in adders)
        total = tuple(map(_placement_of_sum, zip(*added, strict=True)))
        if producer is None:  # an input of the graph is not sharded
            yield SUMMED, total, tuple(REPLICATE if axis == PARTIAL else axis for axis in total)
        else:  # all but the gradient of a product's output has a single reader
            is_product = producer.type.kind == PRODUCT
            placement_of = canonical_placement if is_product else output_gradient_placement
            yield SUMMED, total, along(placement_of, producer)
    for form in kernel.readers:
        yield READ, along(canonical_placement, form), along(output_gradient_placement, form)


# a tensor grows in the last of them, and shrinks in the first
_COLLECTIVE_ORDER = (REDUCE_SCATTER, ALL_TO_ALL, ALL_REDUCE, ALL_GATHER)


def _redistribute(of: int, source: Placements, goal: Placements, names: Sequence[str]) -> Iterator[Exchange]:
    """Yield the collectives from one placement to another; axes with the same collective go together."""
    current = dict(zip(names, source, strict=True))
    target = dict(zip(names, goal, strict=True))
    for collective in _COLLECTIVE_ORDER:
        along = [axis for axis in names if collective_for(current[axis], target[axis]) == collective]
        if along:
            result = current | {axis: target[axis] for axis in along}
            # the extent of a gather is its result; that of an all-to-all, one device's input
            extent = result if collective == ALL_GATHER else current
            rows, cols = (
                axes(*(axis for axis in names if extent[axis] in side)) for side in (_OF_ROWS, (COLS,))
            )
            yield Exchange(collective, axes(*along), of, 0, rows, cols)
            current = result


def _collectives_after(kernel: KernelSignature, assignment: Assignment) -> Iterator[Exchange]:
    """Yield the collectives after a kernel, sums first; tensors with equal collectives go together."""
    names = [axis for axis, _ in assignment]
    exchanges = [
        exchange
        for redistribution in _redistributions(kernel, assignment)
        for exchange in _redistribute(*redistribution, names)
    ]
    ordered = sorted(
        dict.fromkeys(exchanges),
        key=lambda exchange: (exchange.of, _COLLECTIVE_ORDER.index(exchange.collective)),
    )
    statistics = 0
    if kernel.statistics:
        sides = (INNER, COLS, GROUPS) if kernel.kind == ON_WEIGHTS else (COLS,)
        statistics = _along(assignment, kernel.form, side, sides)
    for exchange in ordered:
        joins_gather = statistics > 0 and exchange.axes == statistics and exchange.collective == ALL_GATHER
        statistics = 0 if joins_gather else statistics
        yield exchange._replace(cols=STATISTICS_IN_A_GATHER if joins_gather else 0)
    if statistics:
        rows = 0 if kernel.kind == ON_WEIGHTS else _along(assignment, kernel.form, side, (ROWS,))
        yield Exchange(ALL_REDUCE, statistics, STATISTICS, STATISTICS_COLS, rows)


@lru_cache(maxsize=256)
def shardings_of(structure: Structure, assignment: Assignment) -> tuple[Sharding, ...]:
    """Return the sharding of every kernel of a network under an assignment, and the collectives after it."""
    return tuple(_sharding_of(kernel, assignment) for kernel in structure)


class _Sides(NamedTuple):
    """The axes that shard each side of a kernel, as bits."""

    rows: int
    inner: int
    cols: int
    groups: int


@lru_cache(maxsize=4096)  # repeated layers are alike
def _sharding_of(kernel: KernelSignature, assignment: Assignment) -> Sharding:
    form, products = kernel.form, [form for form in kernel.readers if form.type.kind == PRODUCT]
    sides = _Sides(*(_along(assignment, form, side, (where,)) for where in SIDES))
    local = _local_sides(kernel, assignment, sides)
    has_rows = kernel.kind != ON_WEIGHTS
    # a product that reads the kernel's output; without one, a GEMM that would read it
    reader = Form(_GEMM, form.dims._replace(inner=form.dims.cols))
    if products and kernel.phase == FORWARD:
        reader = products[0]
    return Sharding(
        rows=local.rows,
        inner=local.inner,
        cols=local.cols,
        products=local.groups,
        activation_rows=_along(assignment, form, canonical_placement, _OF_ROWS) if has_rows else 0,
        activation_cols=_along(assignment, form, canonical_placement, (COLS,)),
        read_rows=_along(assignment, reader, input_placement, _OF_ROWS),
        read_cols=_along(assignment, reader, input_placement, (COLS,)),
        owners=sides.rows if form.type.gradient != NO_GRADIENT else 0,
        reads=int(bool(products)),
        statistics_cols=STATISTICS_IN_A_GATHER * kernel.statistics,
        reads_all_cols=int(_is_read_whole(kernel, assignment, products)),
        partial_gradient=int(kernel.kind == INPUT_GRADIENT and sides.cols > 0),
        exchanges=tuple(_collectives_after(kernel, assignment)),
    )


def _local_sides(kernel: KernelSignature, assignment: Assignment, sides: _Sides) -> _Sides:
    """Return the axes that shard the dimensions of a kernel, and those that distribute its products.

    A kernel on weights has no rows, and a pass those of its tensor. The columns of a batched product are
    products; backward, one that contracts the rows of its other operand has them inside.
    """
    form, (rows, inner, cols, groups) = kernel.form, sides
    is_batched, is_pass = form.type.kind == BATCHED, kernel.kind == ON_ACTIVATIONS
    output_rows = _along(assignment, form, output_placement, _OF_ROWS) if is_pass else 0
    if is_batched and form.operand > 0 and kernel.phase == BACKWARD:
        rows, inner = 0, rows
    elif kernel.kind == ON_WEIGHTS:
        rows = 0
    elif is_pass:
        rows = output_rows
    if is_batched:
        groups |= cols
    elif is_pass:
        groups = _along(assignment, form, input_placement, (GROUPS,)) & ~output_rows
    return _Sides(rows, inner, cols, groups)


def _is_read_whole(kernel: KernelSignature, assignment: Assignment, products: Sequence[Form]) -> bool:
    """Say whether products that read a tensor, or its gradient, need all of its columns."""
    if kernel.phase == FORWARD:
        placements = [
            {input_placement(dimensions, form) for form in products} for _, dimensions in assignment
        ]
        return bool(products) and not any(COLS in axis_placements for axis_placements in placements)
    producer = products[0] if products else kernel.form
    return any(
        canonical_placement(dimensions, producer) == COLS
        and REPLICATE in {output_gradient_placement(dimensions, form) for form in products}
        for _, dimensions in assignment
    )
