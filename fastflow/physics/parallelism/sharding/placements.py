"""Placement of a tensor along an axis of the mesh: sharded, replicated, or a partial sum.

`propagation` explains placements, and the collectives between the placements of producer and reader.
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
    """Yield the dimensions of an axis that may shard a kernel of these dimensions.

    Each without its prefix; the prefix; and the sides that may have the dimension.
    """
    for name in cuts:
        prefix, _, dimension = name.rpartition(".")
        if prefix != _DENSE or not dims.groups:
            yield dimension, prefix, SIDES if prefix in ("", _ACTIVATIONS, _DENSE) else (prefix,)


def cut_at(cuts: tuple[str, ...], form: Form) -> tuple[str, str]:
    """Return the side of a kernel that an axis shards, and the dimension's name; "" for none.

    cuts: dimensions.
    """
    for name, prefix, sides in _cutting(cuts, form.dims):
        if prefix == _ACTIVATIONS and form.type.gradient != NO_GRADIENT:
            continue
        if name in form.type.sides:
            return form.type.sides[name], name
        for where, names in zip(SIDES, form.dims, strict=True):
            if name in names and where in form.type.makes and where in sides:
                return where, name
    return "", ""


def side(cuts: tuple[str, ...], form: Form) -> str:
    """Return the side of a kernel that an axis shards, "" for none."""
    return cut_at(cuts, form)[0]


@lru_cache(maxsize=256)
def ambiguous_cut(structure: Structure, cuts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a side that an axis shards in more than one dimension, and the dimensions; "" for none.

    Such an axis has no placement: a tensor sharded by batch is not one sharded by sequence.
    """
    row_cuts = {(cut_at(cuts, kernel.form), kernel.form.type) for kernel in structure}
    rows = {name for (where, name), op_type in row_cuts if where and op_type.makes[where] == ROWS}
    if len(rows) > 1:
        return ROWS, (*sorted(rows),)
    for kernel in structure:
        forms = [
            form for form in kernel.readers if kernel.phase == FORWARD and input_placement(cuts, form) == COLS
        ]
        forms += [kernel.form] if forms and output_placement(cuts, kernel.form) == COLS else []
        cols = {cut_at(cuts, form)[1] for form in forms} - set(SIDES)  # a whole side suits all
        if len(cols) > 1:
            return COLS, (*sorted(cols),)
    return "", ()


def output_placement(cuts: tuple[str, ...], form: Form) -> str:
    """Return the placement of a kernel's output along an axis, before any collective."""
    cut = side(cuts, form)
    return form.type.makes[cut] if cut else REPLICATE


def canonical_placement(cuts: tuple[str, ...], form: Form | None) -> str:
    """Return the placement of a stored tensor; form: of its producer, None for an input of the graph."""
    if form is None:
        return REPLICATE
    placement = output_placement(cuts, form)
    return placement_of_pass(cuts, form.dims) if placement == PARTIAL else placement


def placement_of_pass(cuts: tuple[str, ...], dims: Dims) -> str:
    """Return the placement along an axis of a tensor that a pass reads."""
    for dimension, _, sides in _cutting(cuts, dims):
        for where, names in ((ROWS, dims.rows), (COLS, dims.cols), (GROUPS, dims.groups)):
            if (dimension in names or dimension == where != GROUPS) and where in sides:
                return where
    return REPLICATE


def operand_placement(cuts: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's operand, by the kernel's sides."""
    cut = side(cuts, form)
    return form.type.reads[form.operand][cut] if cut else REPLICATE


def is_shared(cuts: tuple[str, ...], form: Form) -> bool:
    """Say whether all devices need all of a kernel's operand, since another operand is sharded."""
    return form.operand > 0 and side(cuts, form) != "" and operand_placement(cuts, form) == REPLICATE


def input_placement(cuts: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's input, whose columns are the kernel's inner side."""
    placement = operand_placement(cuts, form)
    return COLS if placement == INNER else placement


def gradient_placement(cut: str, placement: str) -> str:
    """Return the placement along an axis of the gradient of a tensor with this placement.

    cut: the side of a kernel that the axis shards. The gradient of a replicated tensor is a partial sum, and
    that of a partial sum is replicated.
    """
    return {REPLICATE: PARTIAL, PARTIAL: REPLICATE}.get(placement, placement) if cut else placement


def output_gradient_placement(cuts: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's output gradient, as backward kernels read it."""
    return gradient_placement(side(cuts, form), output_placement(cuts, form))


def input_gradient_placement(cuts: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of the gradient that a kernel adds to its input's."""
    return gradient_placement(side(cuts, form), input_placement(cuts, form))


def collective_for(have: str, want: str) -> int:
    """Return the collective that redistributes a tensor from one placement to another."""
    if have == PARTIAL:
        return ALL_REDUCE if want == REPLICATE else REDUCE_SCATTER
    if have in (want, REPLICATE):
        return NO_EXCHANGE
    return ALL_GATHER if want == REPLICATE else ALL_TO_ALL
