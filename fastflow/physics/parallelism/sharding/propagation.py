"""How tensors lie on a mesh of devices, and what is exchanged for it: the one notation of every split.

Along each axis of the mesh a tensor is *split* in one of its dimensions, *broadcast* (every device has all of
it), or a *partial* sum (Yuan et al., OneFlow, arXiv:2110.15032; Xu et al., GSPMD, arXiv:2105.04663). An
assignment says for every axis which dimensions it cuts: each kernel is cut along the first of them that it
has. All else follows. What a kernel makes is split where its output has the dimension, a partial sum where it
contracts it, and broadcast where it has none. What turns that into the layout that its readers need is
exchanged: split to broadcast by an all-gather, partial to split by a reduce-scatter, partial to broadcast by
an all-reduce, one split to another by an all-to-all, broadcast to split by nothing.

A partial sum goes to the layout in which a pass over the tensor would be cut: that is where the tensor lies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastflow.physics.parallelism.mesh import axes
from fastflow.physics.parallelism.plans import Assignment
from fastflow.physics.parallelism.sharding.placements import (
    added,
    canonical_placement,
    collective_for,
    differentiated,
    is_shared,
    made,
    placement_of_pass,
    read,
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

Layout = tuple[str, ...]
"""How a tensor lies along every axis. It says which side is split, not in which dimension of the side: an
assignment must not cut the batch of one kernel and the sequence of the next along the same axis."""

# A row's maximum and sum, in fp32, as columns of 2-byte numbers; exact enough at fp32 too.
STATISTICS_COLS = 4
# A gather moves half of what an all-reduce of as many bytes does, so that statistics that travel with one
# count twice.
STATISTICS_IN_A_GATHER = 2 * STATISTICS_COLS
_OF_ROWS = (ROWS, GROUPS)
_READER = TYPES["gemm"]  # what no product reads is kept whole as one would read it


STATISTICS, SUMMED, READ, SHARED = 0, 1, 2, 3
"""Columns of an exchange: none but those of statistics; those that a kernel sums; those that others read, or
read as an operand that is shared alone."""


class Exchange(NamedTuple):
    """A collective after a kernel, along some axes; sets of axes are bits."""

    collective: int = NO_EXCHANGE
    axes: int = 0
    of: int = STATISTICS  # which columns
    cols: int = 0  # further ones
    rows_by: int = 0  # axes that split the rows, and the columns, beside
    cols_by: int = 0


@lru_cache(maxsize=256)
def axes_that_split(assignment: Assignment, where: str) -> int:
    """Return the axes that split a side of activations, as bits, whatever their dimensions are called."""
    return axes(*(axis for axis, cuts in assignment if placement_of_pass(cuts, Dims()) == where))


class Split(NamedTuple):
    """How a kernel is cut, in sets of axes as bits, and what is exchanged after it."""

    rows: int
    inner: int
    cols: int
    products: int  # that are dealt out whole
    lies_rows: int  # rows and columns of the tensor that it makes, or whose gradient it makes
    lies_cols: int
    read_rows: int  # rows and columns of that as a product reads them
    read_cols: int
    sharing: int  # axes along which devices have the same weights, and partial sums of their gradients
    reads: int  # 1 where products read it
    travels: int  # columns of statistics, with what its readers read
    whole: int  # 1 where its readers need all columns
    partial: int  # 1 where it makes partial sums of an input's gradient
    exchanges: tuple[Exchange, ...]

    @property
    def exchanging(self) -> set[int]:
        """All sets of axes along which something may be exchanged for it."""
        return {self.sharing, self.lies_cols, *(one.axes for one in self.exchanges)}


def _along(
    assignment: Assignment, form: Form, of: Callable[[tuple[str, ...], Form], str], is_as: Collection[str]
) -> int:
    """Return the axes along which some layout of a tensor is one of those given."""
    return axes(*(axis for axis, cuts in assignment if of(cuts, form) in is_as))


def _summed(found: Collection[str]) -> str:
    """Return the layout along an axis of a sum of tensors that lie so, without an exchange."""
    lie = set(found) - {REPLICATE} or {REPLICATE}
    return lie.pop() if len(lie) == 1 else PARTIAL  # each device's part among zeros


def _turns(facts: KernelSignature, assignment: Assignment) -> Iterator[tuple[int, Layout, Layout]]:
    """Yield every tensor that is done after a kernel: of which columns, how it lies, how it is wanted."""

    def along(of: Callable[[tuple[str, ...], Form], str], form: Form) -> Layout:
        return tuple(of(cuts, form) for _, cuts in assignment)

    if facts.phase == FORWARD:
        placement = along(canonical_placement, facts.form)
        yield SUMMED, along(made, facts.form), placement
        reads = dict.fromkeys(along(read, one) for one in facts.readers)
        others = [
            one for one in reads if any(map(collective_for, placement, one))
        ]  # that devices do not have
        if others:  # they share one copy
            same = zip(*others, strict=True)
            of = SHARED if all(one.operand for one in facts.readers if along(read, one) in others) else READ
            yield of, placement, tuple(one[0] if len({*one}) == 1 else REPLICATE for one in same)
        return
    for maker, reader, lies_as_made in facts.regathered:
        want = along(read, reader)
        kept = (
            canonical_placement(cuts, maker) if lies_as_made or is_shared(cuts, reader) else one
            for (_, cuts), one in zip(assignment, want, strict=True)
        )
        yield SHARED, tuple(kept), want
    for maker, adders in facts.sums:
        have = tuple(map(_summed, zip(*(along(added, one) for one in adders), strict=True)))
        if maker is None:  # whoever made it has not dealt it out
            yield SUMMED, have, tuple(REPLICATE if one == PARTIAL else one for one in have)
        else:  # all but the gradient of a product's output is for the one kernel that reads it
            yield (
                SUMMED,
                have,
                along(canonical_placement if maker.type.kind == PRODUCT else differentiated, maker),
            )
    for one in facts.readers:
        yield READ, along(canonical_placement, one), along(differentiated, one)


# a tensor grows in the last of them, and shrinks in the first
_IN_TURN = (REDUCE_SCATTER, ALL_TO_ALL, ALL_REDUCE, ALL_GATHER)


def _turn(of: int, have: Layout, want: Layout, names: Sequence[str]) -> Iterator[Exchange]:
    """Yield what turns a layout into another; axes with the same collective go together."""
    now = dict(zip(names, have, strict=True))
    wanted = dict(zip(names, want, strict=True))
    for collective in _IN_TURN:
        along = [axis for axis in names if collective_for(now[axis], wanted[axis]) == collective]
        if along:
            after = now | {axis: wanted[axis] for axis in along}
            # a gather is of what there is after it; all-to-all, of what one device deals out
            whole = after if collective == ALL_GATHER else now
            rows, cols = (
                axes(*(axis for axis in names if whole[axis] in side)) for side in (_OF_ROWS, (COLS,))
            )
            yield Exchange(collective, axes(*along), of, 0, rows, cols)
            now = after


def _exchanges(facts: KernelSignature, assignment: Assignment) -> Iterator[Exchange]:
    """Yield what is exchanged after a kernel, sums first; tensors that turn alike go together."""
    names = [axis for axis, _ in assignment]
    every = [one for turn in _turns(facts, assignment) for one in _turn(*turn, names)]
    found = sorted(dict.fromkeys(every), key=lambda one: (one.of, _IN_TURN.index(one.collective)))
    statistics = 0
    if facts.statistics:
        cut = (INNER, COLS, GROUPS) if facts.kind == ON_WEIGHTS else (COLS,)
        statistics = _along(assignment, facts.form, side, cut)
    for one in found:
        travels = statistics > 0 and one.axes == statistics and one.collective == ALL_GATHER
        statistics = 0 if travels else statistics
        yield one._replace(cols=STATISTICS_IN_A_GATHER if travels else 0)
    if statistics:
        rows = 0 if facts.kind == ON_WEIGHTS else _along(assignment, facts.form, side, (ROWS,))
        yield Exchange(ALL_REDUCE, statistics, STATISTICS, STATISTICS_COLS, rows)


@lru_cache(maxsize=256)
def splits_of(structure: Structure, assignment: Assignment) -> tuple[Split, ...]:
    """Return how every kernel of a network is cut under an assignment, and what is exchanged after it."""
    return tuple(_split(facts, assignment) for facts in structure)


class _Sides(NamedTuple):
    """The axes that cut each side of a kernel, as bits."""

    rows: int
    inner: int
    cols: int
    groups: int


@lru_cache(maxsize=4096)  # repeated layers are alike
def _split(facts: KernelSignature, assignment: Assignment) -> Split:
    form, products = facts.form, [one for one in facts.readers if one.type.kind == PRODUCT]
    sides = _Sides(*(_along(assignment, form, side, (where,)) for where in SIDES))
    local = _local_sides(facts, assignment, sides)
    has_rows = facts.kind != ON_WEIGHTS
    # a product that reads what the kernel makes; what none reads is kept as one would read it
    reader = Form(_READER, form.dims._replace(inner=form.dims.cols))
    if products and facts.phase == FORWARD:
        reader = products[0]
    return Split(
        rows=local.rows,
        inner=local.inner,
        cols=local.cols,
        products=local.groups,
        lies_rows=_along(assignment, form, canonical_placement, _OF_ROWS) if has_rows else 0,
        lies_cols=_along(assignment, form, canonical_placement, (COLS,)),
        read_rows=_along(assignment, reader, read, _OF_ROWS),
        read_cols=_along(assignment, reader, read, (COLS,)),
        sharing=sides.rows if form.type.gradient != NO_GRADIENT else 0,
        reads=int(bool(products)),
        travels=STATISTICS_IN_A_GATHER * facts.statistics,
        whole=int(_is_read_whole(facts, assignment, products)),
        partial=int(facts.kind == INPUT_GRADIENT and sides.cols > 0),
        exchanges=tuple(_exchanges(facts, assignment)),
    )


def _local_sides(facts: KernelSignature, assignment: Assignment, sides: _Sides) -> _Sides:
    """Return the axes that cut the dimensions of one device's kernel, and those that deal its products out.

    A kernel on weights has no rows, and a pass those of its tensor. What a batched product deals out are its
    products; backward, one that contracts the rows of its other operand has them inside.
    """
    form, (rows, inner, cols, groups) = facts.form, sides
    is_batched, is_pass = form.type.kind == BATCHED, facts.kind == ON_ACTIVATIONS
    dealt = _along(assignment, form, made, _OF_ROWS) if is_pass else 0
    if is_batched and form.operand > 0 and facts.phase == BACKWARD:
        rows, inner = 0, rows
    elif facts.kind == ON_WEIGHTS:
        rows = 0
    elif is_pass:
        rows = dealt
    if is_batched:
        groups |= cols
    elif is_pass:
        groups = _along(assignment, form, read, (GROUPS,)) & ~dealt
    return _Sides(rows, inner, cols, groups)


def _is_read_whole(facts: KernelSignature, assignment: Assignment, products: Sequence[Form]) -> bool:
    """Say whether products that read a tensor, or its gradient, need all of its columns."""
    if facts.phase == FORWARD:
        needed = [{read(cuts, one) for one in products} for _, cuts in assignment]
        return bool(products) and not any(COLS in one for one in needed)
    maker = products[0] if products else facts.form
    return any(
        canonical_placement(cuts, maker) == COLS
        and REPLICATE in {differentiated(cuts, one) for one in products}
        for _, cuts in assignment
    )
