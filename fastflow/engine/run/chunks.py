"""Evaluation of ranges of points in chunks of bounded size; returns tables in the order of points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.engine_settings import Settings
from fastflow.core.tables import Columns, Floats, broadcast_column
from fastflow.engine.dataset.schema import ResultTable, column_order, kind_of
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.monte_carlo import band_columns
from fastflow.engine.run.no_effect import COLUMN, trials_of, with_no_effect_of_sample
from fastflow.engine.run.predict import Predicted, columns_of, predict_points, predict_range
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.slo import Limit

KINDS: dict[str, Any] = {"float": np.float64, "int": np.int64, "bool": np.bool_, "str": np.object_}
# Peak memory of a chunk, of the language model at three levels (tests/engine/run/test_chunks.py) [B]
BYTES_A_POINT = 5_000
BYTES_A_KERNEL = 870
BYTES_A_SERVER = 60_000.0  # of points with separate servers
NOTHING: Mapping[str, str | int] = MappingProxyType({})


def tabulate(grid: Grid, points: NDArray[np.int64], predicted: list[Predicted]) -> ResultTable:
    """Return the table of predictions for points of a grid, in their order."""
    known = [
        (part.positions, part.inputs | columns_of(part) | _typical_error_columns(grid, part))
        for part in predicted
    ]
    if grid.no_effect is not None:
        no_effect = np.array([grid.no_effect])
        known = [
            (positions, columns | {COLUMN: broadcast_column(no_effect, positions.size)})
            for positions, columns in known
        ]
    if grid.uncertainty is not None:
        known = [
            (positions, columns | band_columns(grid, part, columns))
            for part, (positions, columns) in zip(predicted, known, strict=True)
        ]
    return assemble_table(grid, points, known)


def _typical_error_columns(grid: Grid, predicted: Predicted) -> Columns:
    """Return the typical errors of validated points of the same class."""
    assert predicted.share is not None
    return typical_columns(predicted.inputs, grid.is_stock(predicted.share))


def assemble_table(
    grid: Grid, points: NDArray[np.int64], known: Sequence[tuple[NDArray[np.int64], Columns]]
) -> ResultTable:
    """Return the table of points of a grid, in their order.

    known: indices among the points, with the inputs and result columns of these points.
    """
    table: ResultTable = {}
    only = known[0][1] if len(known) == 1 else {}
    labels = grid.label_columns(grid.labels, points)
    for name in column_order(grid):
        if name == "point":
            table[name] = points
        elif name in labels:
            table[name] = labels[name]
        elif name in only:
            table[name] = only[name]  # all points are from one call of the model
        else:
            empty: Any = np.empty(points.size, KINDS[kind_of(name, grid)])
            column: Any = np.ma.MaskedArray(empty, mask=True)
            for positions, columns in known:
                if name in columns:
                    column[positions] = columns[name]
            table[name] = column if np.ma.is_masked(column) else column.data
    return table


def rows(grid: Grid, start: int, stop: int) -> ResultTable:
    """Evaluate points start to stop; shape of every column (stop - start,)."""
    return tabulate(grid, np.arange(start, stop, dtype=np.int64), predict_range(grid, start, stop))


def rows_of(
    grid: Grid,
    points: NDArray[np.int64],
    changed: Mapping[str, str | int] = NOTHING,
    stop_at: tuple[Limit, ...] | None = None,
) -> ResultTable:
    """Evaluate points of a grid in any order; (points,) each.

    changed: values in place of inputs, by key. stop_at: limits of fleets, as of `predict_points`.
    """
    predicted = []
    for positions, share in grid.shares_of(points):
        inputs = grid.inputs(share)
        inputs |= {key: broadcast_column(np.array([value]), positions.size) for key, value in changed.items()}
        part = predict_points(inputs, trials=trials_of(grid, share, inputs), stop_at=stop_at)
        predicted.append(part._replace(positions=positions, share=share))
    return tabulate(grid, points, predicted)


def evaluated(grid: Grid, start: int, stop: int, settings: Settings) -> Iterator[ResultTable]:
    """Evaluate points start to stop, chunk after chunk in order; a result does not depend on the chunk."""
    while start < stop:
        end = min(start + settings.chunk, stop)
        end = start + _points_in_memory(grid, start, end, settings.chunk_bytes)
        yield rows(grid, start, end)
        start = end


def _points_in_memory(grid: Grid, start: int, stop: int, capacity: float) -> int:
    """Return how many of the points start to stop fit into memory, at least 1; capacity: [B]."""
    if stop - start == 1:
        return 1
    needed = np.zeros(stop - start)
    for share in grid.shares(start, stop):
        needed[share.points - start] = bytes_of(grid, share)
    return max(1, int(np.searchsorted(np.cumsum(needed), capacity, side="right")))


def bytes_of(grid: Grid, share: Share) -> Floats:
    """Return the peak memory of each point of a share [B], (points,)."""
    from fastflow.physics.workload import count_kernels
    from fastflow.physics.workload.request_lengths import SERVES

    inputs = grid.inputs(share, ("model.", SERVES))
    if is_serving(inputs):
        return np.full(share.points.size, BYTES_A_SERVER)
    with naming_missing_input(inputs):
        return BYTES_A_POINT + BYTES_A_KERNEL * count_kernels(inputs).astype(np.float64)


def with_no_effect(grid: Grid) -> Grid:
    """Return a grid with the user's keys without effect, if it has many points."""
    return with_no_effect_of_sample(
        grid, lambda inputs, trials: columns_of(predict_points(inputs, any_strategy=True, trials=trials))
    )


def warm_up(grid: Grid) -> None:
    """Run the model on a point of every batch, to compile or load its kernels."""
    if grid.unset and grid.no_effect is not None:
        return  # the trials ran points of every batch
    for _, share in grid.shares_of(grid.first_points()):
        predict_points(grid.inputs(share), any_strategy=True)
