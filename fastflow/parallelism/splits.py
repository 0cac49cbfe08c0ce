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

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastflow.parallelism.mesh import axes
from fastflow.workload.cutting import BROADCAST, COLS, GROUPS, INNER, PARTIAL, ROWS, SIDES
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
    PRODUCT,
    REDUCE_SCATTER,
    Dims,
    Facts,
    Form,
    Structure,
)
from fastflow.workload.types import TYPES

Layout = tuple[str, ...]
"""How a tensor lies along every axis. It says which side is split, not in which dimension of the side: an
assignment must not cut the batch of one kernel and the sequence of the next along the same axis."""

Assignment = tuple[tuple[str, tuple[str, ...]], ...]
"""Axes, and the dimensions that each of them cuts: a kernel's first one that it has. Beside the names that a
network gives its dimensions, the sides of a kernel are dimensions: "rows", "inner" (of a product), "cols".
"activations.heads" are heads of kernels without weights, "groups.experts" experts to whom rows are dealt,
"inner.experts" those over which kernels deal copies of rows out or sum them up, "dense.feed_forward" columns
of kernels whose rows are not dealt."""


class Cut(NamedTuple):
    """What an axis cuts, in a known way to split a network."""

    axis: str
    dimensions: tuple[str, ...]
    source: str


_ACTIVATIONS, _DENSE = "activations", "dense"
_TENSOR = ("heads", "feed_forward", "gates", "vocabulary")
_DATA = Cut("dp", (ROWS,), "data parallelism")
_DEEPFLOW, _OPTIMUS, _3D = "DeepFlow, section 3.3", "Optimus, arXiv:2104.05343", "3-D, arXiv:2105.14450"
WAYS = {
    "": (_DATA,),
    "RC": (Cut("kp1", (ROWS,), _DEEPFLOW), Cut("kp2", (COLS,), _DEEPFLOW), _DATA),
    "CR": (Cut("kp1", (INNER, COLS), _DEEPFLOW), _DATA),
    "TP": (
        Cut("tp", _TENSOR, "Megatron-LM, arXiv:1909.08053"),
        Cut("cp", ("sequence",), "ring attention, arXiv:2310.01889"),
        Cut("ep", ("groups.experts", ROWS), "GShard, arXiv:2006.16668"),
        _DATA,
    ),
    "2D": (Cut("kp1", (INNER, COLS), _OPTIMUS), Cut("kp2", (COLS,), _OPTIMUS), _DATA),
    "3D": (Cut("kp1", (ROWS,), _3D), Cut("kp2", (COLS,), _3D), Cut("tp", (INNER, COLS), _3D), _DATA),
}
"""Known ways, by what a strategy calls them; its degrees are those of the axes, in their order."""
SEQUENCE = Cut("tp", (*_TENSOR, "sequence"), "sequence parallelism, arXiv:2205.05198")
"""Tensor parallelism that splits the tokens wherever it splits nothing else."""
ULYSSES = Cut("cp", ("activations.heads", "sequence"), "DeepSpeed Ulysses, arXiv:2309.14509")
"""Context parallelism that deals heads out in attention, by all-to-all."""
NAMES = tuple(WAYS)


def assignment_of(way: str, *others: Cut) -> Assignment:
    """Return the assignment of a known way, with other cuts of some of its axes."""
    cuts = {cut.axis: cut.dimensions for cut in (*WAYS[way], *others)}
    return tuple(cuts.items())


_known = {assignment_of(way): number for number, way in enumerate(WAYS)}
_lock = threading.Lock()


def assignments() -> tuple[Assignment, ...]:
    """Return all assignments that are known in this process; columns have their places here."""
    return tuple(_known)


def number_of(assignment: Assignment) -> int:
    """Return the place of an assignment among those known, after the last if it is new."""
    with _lock:
        return _known.setdefault(assignment, len(_known))


# A row's maximum and sum, in fp32, as columns of 2-byte numbers; exact enough at fp32 too.
STATISTICS_COLS = 4
# A gather moves half of what an all-reduce of as many bytes does, so that statistics that travel with one
# count twice.
STATISTICS_IN_A_GATHER = 2 * STATISTICS_COLS
_OF_ROWS = (ROWS, GROUPS)
_READER = TYPES["gemm"]  # what no product reads is kept whole as one would read it


def _qualified(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Return a dimension without what stands before its dot, that, and the sides where it may be."""
    of, _, one = name.rpartition(".")
    return one, of, SIDES if of in ("", _ACTIVATIONS, _DENSE) else (of,)


def cut_at(cuts: tuple[str, ...], form: Form) -> tuple[str, str]:
    """Return the side of a kernel that an axis cuts, and by which name; "" for none.

    cuts: dimensions.
    """
    for name in cuts:
        one, of, sides = _qualified(name)
        if of == _ACTIVATIONS and form.type.gradient != NO_GRADIENT:
            continue
        if of == _DENSE and form.dims.groups:
            continue
        if one in form.type.sides:
            return form.type.sides[one], one
        for where, names in zip(SIDES, form.dims, strict=True):
            if one in names and where in form.type.makes and where in sides:
                return where, one
    return "", ""


def side(cuts: tuple[str, ...], form: Form) -> str:
    """Return the side of a kernel that an axis cuts, "" for none."""
    return cut_at(cuts, form)[0]


def cut_in_two(structure: Structure, cuts: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return a side that an axis cuts in more than one dimension, and these; "" for none.

    They make no layout: a tensor that is split by batch is not what is read by sequence.
    """
    found = {(cut_at(cuts, facts.form), facts.form.type) for facts in structure}
    rows = {name for (where, name), of in found if where and of.makes[where] == ROWS}
    if len(rows) > 1:
        return ROWS, sorted(rows)
    for facts in structure:
        forms = [one for one in facts.readers if facts.phase == FORWARD and read(cuts, one) == COLS]
        forms += [facts.form] if forms and made(cuts, facts.form) == COLS else []
        cols = {cut_at(cuts, one)[1] for one in forms} - set(SIDES)  # a whole side suits all
        if len(cols) > 1:
            return COLS, sorted(cols)
    return "", []


def made(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout of a kernel's output along an axis, before anything is exchanged."""
    cut = side(cuts, form)
    return form.type.makes[cut] if cut else BROADCAST


def home(cuts: tuple[str, ...], form: Form | None) -> str:
    """Return the layout in which a tensor lies along an axis; form: of its maker, None outside."""
    if form is None:
        return BROADCAST
    found = made(cuts, form)
    return _lies(cuts, form.dims) if found == PARTIAL else found


def _lies(cuts: tuple[str, ...], dims: Dims) -> str:
    """Return the layout along an axis in which a pass over a tensor would be cut."""
    for name in cuts:
        one, of, sides = _qualified(name)
        if of == _DENSE and dims.groups:
            continue
        for where, names in ((ROWS, dims.rows), (COLS, dims.cols), (GROUPS, dims.groups)):
            if (one in names or one == where != GROUPS) and where in sides:
                return where
    return BROADCAST


def taken(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel reads, by the kernel's own sides."""
    cut = side(cuts, form)
    return form.type.reads[form.operand][cut] if cut else BROADCAST


def is_shared(cuts: tuple[str, ...], form: Form) -> bool:
    """Say whether all that share an operand of a kernel need all of it, since others are cut."""
    return form.operand > 0 and side(cuts, form) != "" and taken(cuts, form) == BROADCAST


def read(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel reads: its inner side are the columns of that."""
    found = taken(cuts, form)
    return COLS if found == INNER else found


def gradient(cut: str, lies: str) -> str:
    """Return the layout along an axis of the gradient of a tensor that lies so there.

    cut: the side of a kernel that the axis cuts. Of what all of its devices read each makes a part of the
    gradient, and of a sum of their parts each needs all of it.
    """
    return {BROADCAST: PARTIAL, PARTIAL: BROADCAST}.get(lies, lies) if cut else lies


def differentiated(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis in which backward kernels read the gradient of a kernel's output."""
    return gradient(side(cuts, form), made(cuts, form))


def added(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel adds to the gradient of what it reads."""
    return gradient(side(cuts, form), read(cuts, form))


def turned(have: str, want: str) -> int:
    """Return the collective that turns one layout into another."""
    if have == PARTIAL:
        return ALL_REDUCE if want == BROADCAST else REDUCE_SCATTER
    if have in (want, BROADCAST):
        return NO_EXCHANGE
    return ALL_GATHER if want == BROADCAST else ALL_TO_ALL


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
    return axes(*(axis for axis, cuts in assignment if _lies(cuts, Dims()) == where))


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
    lie = set(found) - {BROADCAST} or {BROADCAST}
    return lie.pop() if len(lie) == 1 else PARTIAL  # each device's part among zeros


def _turns(facts: Facts, assignment: Assignment) -> Iterator[tuple[int, Layout, Layout]]:
    """Yield every tensor that is done after a kernel: of which columns, how it lies, how it is wanted."""

    def along(of: Callable[[tuple[str, ...], Form], str], form: Form) -> Layout:
        return tuple(of(cuts, form) for _, cuts in assignment)

    if facts.phase == FORWARD:
        lies = along(home, facts.form)
        yield SUMMED, along(made, facts.form), lies
        reads = dict.fromkeys(along(read, one) for one in facts.readers)
        others = [one for one in reads if any(map(turned, lies, one))]  # that devices do not have
        if others:  # they share one copy
            same = zip(*others, strict=True)
            of = SHARED if all(one.operand for one in facts.readers if along(read, one) in others) else READ
            yield of, lies, tuple(one[0] if len({*one}) == 1 else BROADCAST for one in same)
        return
    for maker, reader, lies_as_made in facts.again:
        want = along(read, reader)
        kept = (
            home(cuts, maker) if lies_as_made or is_shared(cuts, reader) else one
            for (_, cuts), one in zip(assignment, want, strict=True)
        )
        yield SHARED, tuple(kept), want
    for maker, adders in facts.sums:
        have = tuple(map(_summed, zip(*(along(added, one) for one in adders), strict=True)))
        if maker is None:  # whoever made it has not dealt it out
            yield SUMMED, have, tuple(BROADCAST if one == PARTIAL else one for one in have)
        else:  # all but the gradient of a product's output is for the one kernel that reads it
            yield SUMMED, have, along(home if maker.type.kind == PRODUCT else differentiated, maker)
    for one in facts.readers:
        yield READ, along(home, one), along(differentiated, one)


# a tensor grows in the last of them, and shrinks in the first
_IN_TURN = (REDUCE_SCATTER, ALL_TO_ALL, ALL_REDUCE, ALL_GATHER)


def _turn(of: int, have: Layout, want: Layout, names: Sequence[str]) -> Iterator[Exchange]:
    """Yield what turns a layout into another; axes with the same collective go together."""
    now = dict(zip(names, have, strict=True))
    wanted = dict(zip(names, want, strict=True))
    for collective in _IN_TURN:
        along = [axis for axis in names if turned(now[axis], wanted[axis]) == collective]
        if along:
            after = now | {axis: wanted[axis] for axis in along}
            # a gather is of what there is after it; all-to-all, of what one device deals out
            whole = after if collective == ALL_GATHER else now
            rows, cols = (
                axes(*(axis for axis in names if whole[axis] in side)) for side in (_OF_ROWS, (COLS,))
            )
            yield Exchange(collective, axes(*along), of, 0, rows, cols)
            now = after


def _exchanges(facts: Facts, assignment: Assignment) -> Iterator[Exchange]:
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


@lru_cache(maxsize=4096)  # repeated layers are alike
def _split(facts: Facts, assignment: Assignment) -> Split:
    form, on_weights = facts.form, facts.kind == ON_WEIGHTS
    rows, inner, cols, groups = (_along(assignment, form, side, (where,)) for where in SIDES)
    forward = facts.phase == FORWARD
    products = [one for one in facts.readers if one.type.kind == PRODUCT]
    reader = products[0] if forward and products else Form(_READER, form.dims._replace(inner=form.dims.cols))
    layout = read if forward else differentiated
    needed = [{layout(cuts, one) for one in products} for _, cuts in assignment]
    if forward:
        whole = bool(products) and not any(COLS in one for one in needed)
    else:
        lies = [home(cuts, products[0] if products else form) for _, cuts in assignment]
        whole = any(here == COLS and BROADCAST in one for here, one in zip(lies, needed, strict=True))
    dealt, read_dealt = _along(assignment, form, made, _OF_ROWS), _along(assignment, form, read, (GROUPS,))
    is_pass, is_batched = facts.kind == ON_ACTIVATIONS, form.type.kind == BATCHED
    contracts = is_batched and form.operand > 0 and facts.phase == BACKWARD  # the rows of the other operand
    return Split(
        rows=0 if on_weights or contracts else dealt if is_pass else rows,
        inner=rows if contracts else inner,
        cols=cols,
        products=groups | cols if is_batched else (read_dealt & ~dealt) if is_pass else groups,
        lies_rows=0 if on_weights else _along(assignment, form, home, _OF_ROWS),
        lies_cols=_along(assignment, form, home, (COLS,)),
        read_rows=_along(assignment, reader, read, _OF_ROWS),
        read_cols=_along(assignment, reader, read, (COLS,)),
        sharing=rows if form.type.gradient != NO_GRADIENT else 0,
        reads=int(bool(products)),
        travels=STATISTICS_IN_A_GATHER * facts.statistics,
        whole=int(whole),
        partial=int(facts.kind == INPUT_GRADIENT and cols > 0),
        exchanges=tuple(_exchanges(facts, assignment)),
    )
