"""Shardings of the kernels of networks under assignments, as tables of numbers that Numba kernels index.

A row for every kernel of a network and every assignment. The tables do not depend on degrees: they are made
once for a network and an assignment. Sets of axes have numbers, which index a point's degrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.reasons.codes import Code, invalid_degree, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Ints
from fastflow.physics.parallelism.mesh import AXES, DATA, PIPELINE, REPLICAS, SHARDS
from fastflow.physics.parallelism.plans import assignments
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.placements import ambiguous_dims
from fastflow.physics.parallelism.sharding.propagation import Exchange, Sharding, shardings_of
from fastflow.physics.parallelism.strategy import COLUMN_ROW
from fastflow.physics.workload.graph import Graph, Structure

STAGES = 1 << PIPELINE
"""The set of axes of a pipeline."""
# of propagation.Sharding and Exchange, the fields that are sets of axes
_SETS = (
    "rows", "inner", "cols", "products", "activation_rows", "activation_cols", "read_rows", "read_cols",
    "owners",
)  # fmt: skip
_SETS_OF_A_SLOT = ("axes", "rows_by", "cols_by")


class Groups(NamedTuple):
    """Groups of devices that may have collectives. Sets of axes are bits."""

    sets: tuple[int, ...] = ()  # by number
    by_assignment: tuple[tuple[int, ...], ...] = ()  # the sets along which each assignment has collectives


class Slot(NamedTuple):
    """One exchange of every kernel of the structures, by assignment; (entries,). Sets of axes by number."""

    collective: Ints
    axes: Ints
    of: Ints  # which columns: propagation.STATISTICS, SUMMED, READ or SHARED
    cols: Ints
    rows_by: Ints
    cols_by: Ints


class Shardings(NamedTuple):
    """Shardings of the structures' kernels, by assignment, as `propagation.Sharding`; (entries,).

    Sets by number.
    """

    rows: Ints
    inner: Ints
    cols: Ints
    products: Ints
    activation_rows: Ints
    activation_cols: Ints
    read_rows: Ints
    read_cols: Ints
    owners: Ints
    reads: Ints
    statistics_cols: Ints
    reads_all_cols: Ints
    partial_gradient: Ints


class Tables(NamedTuple):
    """Shardings of the kernels of some structures under every assignment."""

    shardings: Shardings
    slots: tuple[Slot, ...]
    first: Ints  # entry of a structure under an assignment, (structures, assignments)
    groups: Groups


def _sharded_axes(shardings: Iterable[Sharding]) -> int:
    """Return the axes that shard any kernel, as bits."""
    return reduce(
        or_, (sharding.rows | sharding.inner | sharding.cols | sharding.products for sharding in shardings), 0
    )


def unshardable_axes(graph: Graph, layouts: Layouts) -> ReasonColumn:
    """Say for every point which axis of its layout cannot shard its model, (points,)."""
    reason = Reasons(graph.structure.size)
    # assignments by named dimensions, which a model may lack
    named = layouts.assignment.max(axis=1, initial=0) > COLUMN_ROW
    if not named.any():
        return reason.column()
    known, rows = assignments(), np.flatnonzero(named)
    first, inverse = unique_rows([graph.structure[rows], *layouts.assignment[rows].T], rows.size)
    for number, i in enumerate(rows[first].tolist()):
        structure, points = graph.structures[graph.structure[i]], rows[inverse == number]
        plans = [known[column] for column in dict.fromkeys(layouts.assignment[i].tolist())]
        sharded = _sharded_axes(sharding for plan in plans for sharding in shardings_of(structure, plan))
        for name, dimensions in dict.fromkeys(entry for plan in plans for entry in plan):
            axis, dims = AXES.index(name), ", ".join(dimensions)
            where, by = ambiguous_dims(structure, dimensions)
            for point in points[layouts.degrees[points, 0, axis] > 1].tolist():
                if not sharded >> axis & 1:
                    degree = int(layouts.degrees[point, 0, axis])
                    allowed = f"1, since the model names none of the dimensions that {name} cuts: {dims}"
                    reason.add(point, invalid_degree(Code.LAYOUT, name, degree, allowed))
                elif where:
                    allowed = f"an axis that cuts {where} in one dimension; the kernels have {', '.join(by)}"
                    reason.add(point, rejected(Code.LAYOUT, f"parallel.layout: axes.{name}", dims, allowed))
    return reason.column()


def _named_sets(shardings: Iterable[Sharding]) -> set[int]:
    """Return all sets of axes that fields of shardings and of their exchanges name, and that of stages."""
    sets = {0, STAGES}
    for sharding in shardings:
        sets |= {getattr(sharding, field) for field in _SETS}
        sets |= {getattr(exchange, field) for exchange in sharding.exchanges for field in _SETS_OF_A_SLOT}
    return sets


def _collective_sets(shardings: Iterable[Sharding], replicated: bool) -> set[int]:
    """Return the sets of axes along which kernels have collectives; replicated: as `tables_of` takes it."""
    sets = {STAGES}
    for sharding in shardings:
        sets |= sharding.axis_sets
        if replicated and sharding.owners >> DATA & 1:
            sets |= {sharding.owners | SHARDS, REPLICAS}
    return sets


def _padded_exchanges(shardings: Sequence[Sharding]) -> Iterator[tuple[Exchange, ...]]:
    """Yield the first exchange of every kernel, then the second...; an empty one where there is none."""
    count = max((len(sharding.exchanges) for sharding in shardings), default=0)
    for index in range(max(count, 1) if shardings else 0):
        yield tuple(
            sharding.exchanges[index] if index < len(sharding.exchanges) else Exchange()
            for sharding in shardings
        )


@lru_cache(maxsize=64)
def tables_of(
    structures: tuple[Structure, ...], numbers: tuple[int, ...], replicated: bool = False
) -> Tables:
    """Return the shardings of structures under some assignments, by their numbers.

    replicated: whether dp has several replicas, each with all weights sharded over its devices.
    """
    known = assignments()
    by_network = [shardings_of(structure, known[number]) for structure in structures for number in numbers]
    shardings = list(chain.from_iterable(by_network))
    sets = _named_sets(shardings)
    by_assignment: list[tuple[int, ...]] = [(STAGES,)] * len(known)
    for index, assignment in enumerate(numbers):
        collective_sets = _collective_sets(chain(*by_network[index :: len(numbers)]), replicated)
        by_assignment[assignment] = tuple(sorted(collective_sets))
        sets |= collective_sets
    set_number = {mask: i for i, mask in enumerate(sorted(sets))}

    def column(rows: Sequence[NamedTuple], field: str, is_set: bool) -> Ints:
        values = [getattr(row, field) for row in rows]
        return np.array([set_number[value] for value in values] if is_set else values, dtype=np.int64)

    return Tables(
        shardings=Shardings(*(column(shardings, field, field in _SETS) for field in Shardings._fields)),
        slots=tuple(
            Slot(*(column(exchanges, field, field in _SETS_OF_A_SLOT) for field in Slot._fields))
            for exchanges in _padded_exchanges(shardings)
        ),
        first=np.cumsum([0, *map(len, by_network)])[:-1].reshape(len(structures), len(numbers)),
        groups=Groups(tuple(sorted(sets)), tuple(by_assignment)),
    )
