"""The best layouts of a transformer: its strategy and all other inputs that are `auto` (docs/strategies.md).

The search is exact: the best `KEPT` layouts are those of a search through all of them. It computes the
lower bounds of all layouts first. Layouts that lack memory are not predicted, where any has enough. Then it
predicts layouts in the order of their lower bounds, the work of the busiest stage, until no remaining layout
can be among the best. Of the `KEPT` best, those within limits of the power of racks and of the site
come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Reason
from fastflow.core.tables import Columns, Inputs, Ints, concat_tables, take
from fastflow.performance.auto.no_fit import least_training_memory
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import LowerBounds, lower_bounds
from fastflow.performance.site_power import keeps_to_limits
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.physics.parallelism.defaults import zero_stage
from fastflow.physics.parallelism.options import AUTO
from fastflow.physics.parallelism.virtual_stages import NONE, RECOMPUTE

AT_ONCE = 1024  # layouts bounded or predicted together
FIRST = 128  # predicted at first; twice as many each time
KEPT = 100  # layouts of a ranking
_ROUNDING = 1e-9  # of equal sums


class Search(NamedTuple):
    """Result of a search through the layouts of a point."""

    best: Columns  # the inputs that are chosen, the best first, (KEPT or fewer,)
    layouts: int  # all that there are
    num_invalid: int  # of these, that have no time
    num_without_memory: int  # that lack memory
    predicted: int
    least: Reason | None = None  # where none fits, which of them needs least memory, and how much


def best_layouts(inputs: Inputs) -> Search:
    """Return the best layouts of a transformer; inputs: of one point, (1,).

    Layouts with enough memory alone are ranked, by time, the `KEPT` fastest; of these, layouts within limits
    of power come first. Where none has enough memory, those that have a time are ranked, by what they need.
    Ties go to the first of `every_layout`. Raises InputError as the model does, and where there is nothing to
    choose from.
    """
    layouts = every_layout(inputs)
    count = next(iter(layouts.values())).size
    inputs_of = partial(_with_layouts, inputs, layouts)
    reason, least, memory, capacity = _bounds(inputs, layouts)
    is_valid = ~reason.exists
    has_memory = is_valid & (memory <= capacity)
    rows = np.flatnonzero(has_memory if has_memory.any() else is_valid)
    none_fits = is_valid.any() and not has_memory.any()
    time, predicted = np.full(count, np.inf), 0
    keeps = np.ones(count, dtype=np.bool_)
    if none_fits:
        rows = rows[np.argsort(memory[rows], kind="stable")][:KEPT]
    for batch in _batches(rows[np.argsort(least[rows], kind="stable")], FIRST):
        worst_kept = np.partition(time, KEPT - 1)[KEPT - 1] if count >= KEPT else np.inf
        batch = batch[least[batch] * (1.0 - _ROUNDING) <= worst_kept]
        if not batch.size:
            break
        prediction = predict(inputs_of(batch))
        time[batch[prediction.timed]] = prediction.timeline.total
        keeps[batch] = keeps_to_limits(prediction)
        predicted += batch.size
    ranked = rows
    if not none_fits:
        ranked = np.argsort(time, kind="stable")[:KEPT]
        ranked = ranked[np.argsort(~keeps[ranked], kind="stable")]
    timed = ranked[np.isfinite(time[ranked])]
    return Search(
        best=take(layouts, timed if timed.size else ranked[:1]),
        layouts=count,
        num_invalid=int(count - is_valid.sum()),
        num_without_memory=int((is_valid & ~has_memory).sum()),
        predicted=predicted,
        least=_least_memory(inputs_of(rows[:1])) if none_fits else None,
    )


def share_of_memory(inputs: Inputs) -> float:
    """Return the memory that a layout of a point needs, over what a device is offered; inputs: (1,).

    At most 1 where a layout fits; else the least of all layouts, infinite where none has a time.
    """
    least = np.inf
    for bounds in _bounds_of_batches(inputs, every_layout(inputs)):
        least = min(least, least_share(bounds))
        if least <= 1.0:
            break
    return least


def least_share(bounds: LowerBounds) -> float:
    """Return the least memory of some layouts, over what a device is offered; infinite without a time."""
    return float(np.min(np.where(bounds.reason.exists, np.inf, bounds.memory / bounds.capacity)))


def _bounds(inputs: Inputs, layouts: Columns) -> LowerBounds:
    """Return the lower bounds of the layouts of a point."""
    return concat_tables([*_bounds_of_batches(inputs, layouts)])


def _bounds_of_batches(inputs: Inputs, layouts: Columns) -> Iterator[LowerBounds]:
    """Yield the lower bounds of the layouts of a point, some layouts at a time."""
    for rows in _batches(np.arange(next(iter(layouts.values())).size), AT_ONCE):
        yield lower_bounds(_with_layouts(inputs, layouts, rows))


def _with_layouts(inputs: Inputs, layouts: Columns, rows: Ints) -> Inputs:
    """Return the inputs of a point under some of its layouts, (rows,)."""
    return take(dict(inputs), np.zeros(rows.size, dtype=np.int64)) | take(layouts, rows)


def _least_memory(inputs: Inputs) -> Reason | None:
    """Return the layout that needs least memory, of those that do not fit; inputs: of it, (1,)."""
    prediction = predict(inputs)
    if not prediction.timed.size:
        return None
    recompute, zero = str(inputs[RECOMPUTE][0]), int(zero_stage(inputs)[0])
    layout = f"{prediction.parallelism.printed[0]} with ZeRO {zero}"
    if recompute not in (AUTO, NONE):
        layout += f", recompute {recompute}"
    return least_training_memory(layout, prediction.footprint, 0, float(prediction.offered[0]))


def _batches(rows: Ints, first: int) -> Iterator[Ints]:
    """Yield rows some at a time: so many at first, then twice as many each time, up to `AT_ONCE`."""
    start = 0
    while start < rows.size:
        yield rows[start : start + first]
        start, first = start + first, min(2 * first, AT_ONCE)
