"""The best layouts of a transformer: `parallel.strategy=auto` with what is left to it (docs/strategies.md).

The search is exact: the best `KEPT` layouts are those of a search through all of them. It weighs all layouts
first. Those that lack memory are not timed, where any has enough. Then it predicts them, those that could be
fastest first, until nothing that is left can be among the best: none is faster than its busiest stage
computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Inputs, Ints, take
from fastflow.performance.auto.no_fit import least_of
from fastflow.performance.crossflow import predict
from fastflow.performance.partial_predictions import LowerBounds, lower_bounds
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.physics.parallelism.defaults import zero_stage
from fastflow.physics.parallelism.options import AUTO
from fastflow.physics.parallelism.virtual_stages import NONE, RECOMPUTE

AT_ONCE = 1024  # layouts weighed or predicted together
FIRST = 128  # predicted at first; twice as many each time
KEPT = 100  # layouts of a ranking
_ROUNDING = 1e-9  # of sums that come to the same


class Search(NamedTuple):
    """What a search through the layouts of a point has found."""

    best: Columns  # the inputs that are chosen, the best first, (KEPT or fewer,)
    layouts: int  # all that there are
    untimed: int  # of these, that have no time
    lacking: int  # that lack memory
    predicted: int
    least: str = ""  # where none fits, which of them needs least memory, and how much


def best_layouts(inputs: Inputs) -> Search:
    """Return the best layouts of a transformer; inputs: of one point, (1,).

    Feasible layouts alone are ranked, by time; or where none is, those that have a time, by the memory that
    they need. Ties go to the first of `every_layout`. Raises InputError as the model does, and where there is
    nothing to choose from.
    """
    layouts = every_layout(inputs)
    count = next(iter(layouts.values())).size
    of = partial(_of, inputs, layouts)
    reason, least, memory, capacity = _bounds(inputs, layouts)
    can = reason == ""
    enough = can & (memory <= capacity)
    rows = np.flatnonzero(enough if enough.any() else can)
    nothing = can.any() and not enough.any()
    time, predicted = np.full(count, np.inf), 0
    if nothing:
        rows = rows[np.argsort(memory[rows], kind="stable")][:KEPT]
    for some in _batches(rows[np.argsort(least[rows], kind="stable")], FIRST):
        most = np.partition(time, KEPT - 1)[KEPT - 1] if count >= KEPT else np.inf
        some = some[least[some] * (1.0 - _ROUNDING) <= most]
        if not some.size:
            break
        prediction = predict(of(some))
        time[some[prediction.timed]] = prediction.timeline.total
        predicted += some.size
    ranked = rows if nothing else np.argsort(time, kind="stable")[:KEPT]
    timed = ranked[np.isfinite(time[ranked])]
    return Search(
        best=take(layouts, timed if timed.size else ranked[:1]),
        layouts=count,
        untimed=int(count - can.sum()),
        lacking=int((can & ~enough).sum()),
        predicted=predicted,
        least=_least(of(rows[:1])) if nothing else "",
    )


def fits(inputs: Inputs) -> bool:
    """Say whether a point has a layout that has a time, and enough memory; inputs: of one point, (1,)."""
    reason, _, memory, capacity = _bounds(inputs, every_layout(inputs))
    return bool(((reason == "") & (memory <= capacity)).any())


def _bounds(inputs: Inputs, layouts: Columns) -> LowerBounds:
    """Weigh the layouts of a point."""
    count = next(iter(layouts.values())).size
    parts = [lower_bounds(_of(inputs, layouts, rows)) for rows in _batches(np.arange(count), AT_ONCE)]
    return LowerBounds(*map(np.concatenate, zip(*parts, strict=True)))


def _of(inputs: Inputs, layouts: Columns, rows: Ints) -> Inputs:
    """Return the inputs of a point under some of its layouts, (rows,)."""
    return take(dict(inputs), np.zeros(rows.size, dtype=np.int64)) | take(layouts, rows)


def _least(inputs: Inputs) -> str:
    """Say what a layout needs, of those that do not fit the one that needs least; inputs: of it, (1,)."""
    found = predict(inputs)
    if not found.timed.size:
        return ""
    again, zero = str(inputs[RECOMPUTE][0]), int(zero_stage(inputs)[0])
    layout = f"{found.parallelism.printed[0]} with ZeRO {zero}"
    if again not in (AUTO, NONE):
        layout += f", recompute {again}"
    return least_of(layout, found.footprint, 0, float(found.chip.dram.capacity[0]))


def _batches(rows: Ints, first: int) -> Iterator[Ints]:
    """Yield rows some at a time: so many at first, then twice as many each time, up to `AT_ONCE`."""
    start = 0
    while start < rows.size:
        yield rows[start : start + first]
        start, first = start + first, min(2 * first, AT_ONCE)
