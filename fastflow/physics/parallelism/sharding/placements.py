"""How a tensor lies along an axis of the mesh that cuts some dimensions: split, broadcast, or a partial sum.

`splits` says what that is, and what is exchanged where a tensor is not read as it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fastflow.physics.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    FORWARD,
    NO_EXCHANGE,
    NO_GRADIENT,
    REDUCE_SCATTER,
    Dims,
    Form,
    Structure,
)
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, INNER, PARTIAL, REPLICATE, ROWS, SIDES

_ACTIVATIONS, _DENSE = "activations", "dense"


def _cutting(cuts: tuple[str, ...], dims: Dims) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the dimensions of an axis that may cut a kernel of these dimensions.

    Without what stands before the dot, that, and the sides where it may be.
    """
    for name in cuts:
        of, _, one = name.rpartition(".")
        if of != _DENSE or not dims.groups:
            yield one, of, SIDES if of in ("", _ACTIVATIONS, _DENSE) else (of,)


def cut_at(cuts: tuple[str, ...], form: Form) -> tuple[str, str]:
    """Return the side of a kernel that an axis cuts, and by which name; "" for none.

    cuts: dimensions.
    """
    for one, of, sides in _cutting(cuts, form.dims):
        if of == _ACTIVATIONS and form.type.gradient != NO_GRADIENT:
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


@lru_cache(maxsize=256)
def cut_in_two(structure: Structure, cuts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a side that an axis cuts in more than one dimension, and these; "" for none.

    They make no layout: a tensor that is split by batch is not what is read by sequence.
    """
    found = {(cut_at(cuts, facts.form), facts.form.type) for facts in structure}
    rows = {name for (where, name), of in found if where and of.makes[where] == ROWS}
    if len(rows) > 1:
        return ROWS, (*sorted(rows),)
    for facts in structure:
        forms = [one for one in facts.readers if facts.phase == FORWARD and read(cuts, one) == COLS]
        forms += [facts.form] if forms and made(cuts, facts.form) == COLS else []
        cols = {cut_at(cuts, one)[1] for one in forms} - set(SIDES)  # a whole side suits all
        if len(cols) > 1:
            return COLS, (*sorted(cols),)
    return "", ()


def made(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout of a kernel's output along an axis, before anything is exchanged."""
    cut = side(cuts, form)
    return form.type.makes[cut] if cut else REPLICATE


def canonical_placement(cuts: tuple[str, ...], form: Form | None) -> str:
    """Return the layout in which a tensor lies along an axis; form: of its maker, None outside."""
    if form is None:
        return REPLICATE
    found = made(cuts, form)
    return placement_of_pass(cuts, form.dims) if found == PARTIAL else found


def placement_of_pass(cuts: tuple[str, ...], dims: Dims) -> str:
    """Return the layout along an axis in which a pass over a tensor would be cut."""
    for one, _, sides in _cutting(cuts, dims):
        for where, names in ((ROWS, dims.rows), (COLS, dims.cols), (GROUPS, dims.groups)):
            if (one in names or one == where != GROUPS) and where in sides:
                return where
    return REPLICATE


def taken(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel reads, by the kernel's own sides."""
    cut = side(cuts, form)
    return form.type.reads[form.operand][cut] if cut else REPLICATE


def is_shared(cuts: tuple[str, ...], form: Form) -> bool:
    """Say whether all that share an operand of a kernel need all of it, since others are cut."""
    return form.operand > 0 and side(cuts, form) != "" and taken(cuts, form) == REPLICATE


def read(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel reads: its inner side are the columns of that."""
    found = taken(cuts, form)
    return COLS if found == INNER else found


def gradient(cut: str, placement: str) -> str:
    """Return the layout along an axis of the gradient of a tensor that lies so there.

    cut: the side of a kernel that the axis cuts. Of what all of its devices read each makes a part of the
    gradient, and of a sum of their parts each needs all of it.
    """
    return {REPLICATE: PARTIAL, PARTIAL: REPLICATE}.get(placement, placement) if cut else placement


def differentiated(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis in which backward kernels read the gradient of a kernel's output."""
    return gradient(side(cuts, form), made(cuts, form))


def added(cuts: tuple[str, ...], form: Form) -> str:
    """Return the layout along an axis of what a kernel adds to the gradient of what it reads."""
    return gradient(side(cuts, form), read(cuts, form))


def collective_for(have: str, want: str) -> int:
    """Return the collective that turns one layout into another."""
    if have == PARTIAL:
        return ALL_REDUCE if want == REPLICATE else REDUCE_SCATTER
    if have in (want, REPLICATE):
        return NO_EXCHANGE
    return ALL_GATHER if want == REPLICATE else ALL_TO_ALL
