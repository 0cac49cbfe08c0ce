"""How the kernels of networks are cut under assignments, as tables of numbers that kernels look up.

A row for every kernel of a network and every assignment. What does not depend on degrees is here, once for a
network and an assignment; sets of axes have numbers, by which a point's degrees are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints, Reasons, Texts
from fastflow.physics.parallelism.mesh import AXES, DATA, PIPELINE, REPLICAS, SHARDS
from fastflow.physics.parallelism.plans import assignments
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.placements import cut_in_two
from fastflow.physics.parallelism.sharding.propagation import Exchange, Split, splits_of
from fastflow.physics.parallelism.strategy import COLUMN_ROW
from fastflow.physics.workload.graph import Graph, Structure

STAGES = 1 << PIPELINE
"""The set of axes of a pipeline."""
# of splits.Split and Exchange, sets of axes
_SETS = ("rows", "inner", "cols", "products", "lies_rows", "lies_cols", "read_rows", "read_cols", "sharing")
_SETS_OF_A_SLOT = ("axes", "rows_by", "cols_by")


class Groups(NamedTuple):
    """Who may exchange. Sets of axes are bits."""

    sets: tuple[int, ...] = ()  # by number
    exchanging: tuple[tuple[int, ...], ...] = ()  # those that an assignment exchanges along


class Slot(NamedTuple):
    """One exchange of every kernel of the structures, by assignment; (cuts,). Sets of axes by number."""

    collective: Ints
    axes: Ints
    of: Ints  # which columns: splits.STATISTICS, SUMMED, READ or SHARED
    cols: Ints
    rows_by: Ints
    cols_by: Ints


class Cuts(NamedTuple):
    """How kernels of the structures are cut, by assignment, as `propagation.Split`; (cuts,).

    Sets by number.
    """

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


class Tables(NamedTuple):
    """How the kernels of some structures are cut under every assignment."""

    cuts: Cuts
    slots: tuple[Slot, ...]
    first: Ints  # of the cuts of a structure under an assignment, (structures, assignments)
    groups: Groups


def _cutting(splits: Iterable[Split]) -> int:
    """Return the axes that cut any kernel, as bits."""
    return reduce(or_, (one.rows | one.inner | one.cols | one.products for one in splits), 0)


def unshardable_axes(graph: Graph, layouts: Layouts) -> Texts:
    """Say for every point which axis of its layout cannot cut its model; or "", (points,)."""
    reason = Reasons(graph.structure.size)
    named = layouts.assignment.max(axis=1, initial=0) > COLUMN_ROW  # by dimensions that a model may not have
    if not named.any():
        return reason.texts()
    every, rows = assignments(), np.flatnonzero(named)
    first, place = unique_rows([graph.structure[rows], *layouts.assignment[rows].T], rows.size)
    for number, i in enumerate(rows[first].tolist()):
        structure, alike = graph.structures[graph.structure[i]], rows[place == number]
        ways = [every[one] for one in layouts.assignment[i].tolist()]
        cuts = _cutting(split for way in ways for split in splits_of(structure, way))
        for name, dimensions in dict.fromkeys(one for way in ways for one in way):
            axis, dims = AXES.index(name), ", ".join(dimensions)
            where, by = cut_in_two(structure, dimensions)
            for point in alike[layouts.degrees[alike, 0, axis] > 1].tolist():
                if not cuts >> axis & 1:
                    degree = int(layouts.degrees[point, 0, axis])
                    allowed = f"1, since the model names none of the dimensions that {name} cuts: {dims}"
                    reason.add(point, str(InputError(f"degree of {name}", degree, allowed)))
                elif where:
                    allowed = f"an axis that cuts {where} in one dimension; the kernels have {', '.join(by)}"
                    reason.add(point, str(InputError(f"parallel.layout: axes.{name}", dims, allowed)))
    return reason.texts()


@lru_cache(maxsize=64)
def tables_of(
    structures: tuple[Structure, ...], numbers: tuple[int, ...], replicated: bool = False
) -> Tables:
    """Return how structures are cut under some assignments, by their numbers.

    replicated: whether some devices along dp have all weights between them, and others the same.
    """
    known = assignments()
    every = [splits_of(one, known[number]) for one in structures for number in numbers]
    splits = [split for one in every for split in one]
    count = max((len(split.exchanges) for split in splits), default=0)
    padded = [(*split.exchanges, *[Exchange()] * (max(count, 1) - len(split.exchanges))) for split in splits]
    sets = {0, STAGES}
    for split in splits:
        sets |= {getattr(split, field) for field in _SETS}
        sets |= {getattr(one, field) for one in split.exchanges for field in _SETS_OF_A_SLOT}
    exchanging: list[tuple[int, ...]] = [(STAGES,)] * len(known)
    for place, by in enumerate(numbers):
        along = {STAGES}
        for split in (split for one in every[place :: len(numbers)] for split in one):
            along |= split.exchanging
            if replicated and split.sharing >> DATA & 1:
                along |= {split.sharing | SHARDS, REPLICAS}
        exchanging[by] = tuple(sorted(along))
        sets |= along
    number = {found: i for i, found in enumerate(sorted(sets))}

    def column(rows: Sequence[NamedTuple], field: str, is_set: bool) -> Ints:
        values = [getattr(row, field) for row in rows]
        return np.array([number[value] for value in values] if is_set else values, dtype=np.int64)

    return Tables(
        cuts=Cuts(*(column(splits, field, field in _SETS) for field in Cuts._fields)),
        slots=tuple(
            Slot(*(column(of, field, field in _SETS_OF_A_SLOT) for field in Slot._fields))
            for of in zip(*padded, strict=True)
        ),
        first=np.cumsum([0, *map(len, every)])[:-1].reshape(len(structures), len(numbers)),
        groups=Groups(tuple(sorted(sets)), tuple(exchanging)),
    )
