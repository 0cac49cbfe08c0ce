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


def _candidate_dims(dimensions: tuple[str, ...], dims: Dims) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the dimensions of an axis that may shard a kernel of these dimensions.

    Each without its prefix; the prefix; and the sides that may have the dimension.
    """
    for name in dimensions:
        prefix, _, dimension = name.rpartition(".")
        if prefix != _DENSE or not dims.groups:
            yield dimension, prefix, SIDES if prefix in ("", _ACTIVATIONS, _DENSE) else (prefix,)


def sharded_dim(dimensions: tuple[str, ...], form: Form) -> tuple[str, str]:
    """Return the side of a kernel that an axis shards, and the dimension's name; "" for none.

    dimensions: that the axis shards, the first that the kernel has.
    """
    for name, prefix, sides in _candidate_dims(dimensions, form.dims):
        if prefix == _ACTIVATIONS and form.type.gradient != NO_GRADIENT:
            continue
        if name in form.type.sides:
            return form.type.sides[name], name
        for where, names in zip(SIDES, form.dims, strict=True):
            if name in names and where in form.type.makes and where in sides:
                return where, name
    return "", ""


def side(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the side of a kernel that an axis shards, "" for none."""
    return sharded_dim(dimensions, form)[0]


@lru_cache(maxsize=256)
def ambiguous_dims(structure: Structure, dimensions: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return a side that an axis shards in more than one dimension, and the dimensions; "" for none.

    The axis has no placement then: a tensor sharded by batch is not one sharded by sequence.
    """
    row_dims = {(sharded_dim(dimensions, kernel.form), kernel.form.type) for kernel in structure}
    rows = {name for (where, name), op_type in row_dims if where and op_type.makes[where] == ROWS}
    if len(rows) > 1:
        return ROWS, (*sorted(rows),)
    for kernel in structure:
        forms = [
            form
            for form in kernel.readers
            if kernel.phase == FORWARD and input_placement(dimensions, form) == COLS
        ]
        forms += [kernel.form] if forms and output_placement(dimensions, kernel.form) == COLS else []
        cols = {sharded_dim(dimensions, form)[1] for form in forms} - set(SIDES)  # a whole side suits all
        if len(cols) > 1:
            return COLS, (*sorted(cols),)
    return "", ()


def output_placement(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the placement of a kernel's output along an axis, before any collective."""
    sharded_side = side(dimensions, form)
    return form.type.makes[sharded_side] if sharded_side else REPLICATE


def canonical_placement(dimensions: tuple[str, ...], form: Form | None) -> str:
    """Return the placement of a stored tensor; form: of its producer, None for an input of the graph."""
    if form is None:
        return REPLICATE
    placement = output_placement(dimensions, form)
    return placement_of_pass(dimensions, form.dims) if placement == PARTIAL else placement


def placement_of_pass(dimensions: tuple[str, ...], dims: Dims) -> str:
    """Return the placement along an axis of a tensor that a pass reads."""
    for dimension, _, sides in _candidate_dims(dimensions, dims):
        for where, names in ((ROWS, dims.rows), (COLS, dims.cols), (GROUPS, dims.groups)):
            if (dimension in names or dimension == where != GROUPS) and where in sides:
                return where
    return REPLICATE


def operand_placement(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's operand, by the kernel's sides."""
    sharded_side = side(dimensions, form)
    return form.type.reads[form.operand][sharded_side] if sharded_side else REPLICATE


def is_shared(dimensions: tuple[str, ...], form: Form) -> bool:
    """Say whether all devices need all of a kernel's operand, since another operand is sharded."""
    return (
        form.operand > 0 and side(dimensions, form) != "" and operand_placement(dimensions, form) == REPLICATE
    )


def input_placement(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's input, whose columns are the kernel's inner side."""
    placement = operand_placement(dimensions, form)
    return COLS if placement == INNER else placement


def gradient_placement(sharded_side: str, placement: str) -> str:
    """Return the placement along an axis of the gradient of a tensor with this placement.

    sharded_side: the side of a kernel that the axis shards. The gradient of a replicated tensor is a partial
    sum, and that of a partial sum is replicated.
    """
    return {REPLICATE: PARTIAL, PARTIAL: REPLICATE}.get(placement, placement) if sharded_side else placement


def output_gradient_placement(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of a kernel's output gradient, as backward kernels read it."""
    return gradient_placement(side(dimensions, form), output_placement(dimensions, form))


def input_gradient_placement(dimensions: tuple[str, ...], form: Form) -> str:
    """Return the placement along an axis of the gradient that a kernel adds to its input's."""
    return gradient_placement(side(dimensions, form), input_placement(dimensions, form))


def collective_for(have: str, want: str) -> int:
    """Return the collective that redistributes a tensor from one placement to another."""
    if have == PARTIAL:
        return ALL_REDUCE if want == REPLICATE else REDUCE_SCATTER
    if have in (want, REPLICATE):
        return NO_EXCHANGE
    return ALL_GATHER if want == REPLICATE else ALL_TO_ALL
