"""Evaluation of ranges of points in chunks of bounded size; returns tables in the order of points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Columns, Floats, broadcast_column
from fastflow.engine.dataset.schema import ResultTable, column_order, kind_of
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.monte_carlo import band_columns
from fastflow.engine.run.no_effect import COLUMN, tried_of_large
from fastflow.engine.run.predict import Predicted, columns_of, predict_points, predict_range
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import serves

KINDS: dict[str, Any] = {"float": np.float64, "int": np.int64, "bool": np.bool_, "str": np.object_}
# Peak memory of a chunk, of the language model at three levels (tests/engine/run/test_chunks.py) [B]
BYTES_A_POINT = 5_000
BYTES_A_KERNEL = 870
BYTES_A_SERVER = 60_000.0  # where each point has a server of its own


def tabulate(grid: Grid, start: int, stop: int, predicted: list[Predicted]) -> ResultTable:
    """Put what was predicted for points start to stop into one table, in point order."""
    known = [(one.place, one.inputs | columns_of(one) | _typical(grid, one)) for one in predicted]
    if grid.no_effect is not None:
        said = np.array([grid.no_effect])
        known = [(place, columns | {COLUMN: broadcast_column(said, place.size)}) for place, columns in known]
    if grid.uncertainty is not None:
        known = [
            (place, columns | band_columns(grid, one, columns))
            for one, (place, columns) in zip(predicted, known, strict=True)
        ]
    return lay_out(grid, start, stop, known)


def _typical(grid: Grid, one: Predicted) -> Columns:
    """Return how far such answers as some points' were off."""
    assert one.share is not None
    return typical_columns(one.inputs, grid.is_stock(one.share))


def lay_out(
    grid: Grid, start: int, stop: int, known: Sequence[tuple[NDArray[np.int64], Columns]]
) -> ResultTable:
    """Put what is known of points start to stop into one table, in point order.

    known: where in the chunk some points are, and their inputs and result columns.
    """
    table: ResultTable = {}
    alone = known[0][1] if len(known) == 1 else {}
    labels = grid.label_columns(grid.labels, start, stop)
    for name in column_order(grid):
        if name == "point":
            table[name] = np.arange(start, stop, dtype=np.int64)
        elif name in labels:
            table[name] = labels[name]
        elif name in alone:
            table[name] = alone[name]  # one call of the model made them all
        else:
            empty: Any = np.empty(stop - start, KINDS[kind_of(name, grid)])
            column: Any = np.ma.MaskedArray(empty, mask=True)
            for place, columns in known:
                if name in columns:
                    column[place] = columns[name]
            table[name] = column if np.ma.is_masked(column) else column.data
    return table


def rows(grid: Grid, start: int, stop: int) -> ResultTable:
    """Evaluate points start to stop; shape of every column (stop - start,)."""
    return tabulate(grid, start, stop, predict_range(grid, start, stop))


def evaluated(grid: Grid, start: int, stop: int, settings: Settings) -> Iterator[ResultTable]:
    """Evaluate points start to stop, chunk after chunk in order; a result does not depend on the chunk."""
    while start < stop:
        ahead = min(start + settings.chunk, stop)
        ahead = start + _fitting(grid, start, ahead, settings.chunk_bytes)
        yield rows(grid, start, ahead)
        start = ahead


def _fitting(grid: Grid, start: int, stop: int, room: float) -> int:
    """Return how many of the points start to stop, at least one, take no more memory than there is room."""
    if stop - start == 1:
        return 1
    needed = np.zeros(stop - start)
    for share in grid.shares(start, stop):
        needed[share.points - start] = bytes_of(grid, share)
    return max(1, int(np.searchsorted(np.cumsum(needed), room, side="right")))


def bytes_of(grid: Grid, share: Share) -> Floats:
    """Return what each of some points may take of memory [B]."""
    from fastflow.physics.workload import count_kernels
    from fastflow.physics.workload.request_lengths import SERVES

    inputs = grid.inputs(share, ("model.", SERVES))
    if serves(inputs):
        return np.full(share.points.size, BYTES_A_SERVER)
    with naming_missing_input(inputs):
        return BYTES_A_POINT + BYTES_A_KERNEL * count_kernels(inputs).astype(np.float64)


def tried(grid: Grid) -> Grid:
    """Return a grid that says, if its points are many, which of the user's keys have no effect in it."""
    return tried_of_large(
        grid, lambda inputs, trials: columns_of(predict_points(inputs, rehearsed=True, trials=trials))
    )


def warm_up(grid: Grid) -> None:
    """Run the model on one point of every batch, which compiles its kernels, or loads them, once for all."""
    if grid.unset and grid.no_effect is not None:
        return  # points of every batch were tried
    for _, share in grid.shares_of(grid.first_points()):
        predict_points(grid.inputs(share), rehearsed=True)
