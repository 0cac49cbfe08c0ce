"""Running a grid: ranges of points, evaluated side by side, as tables in point order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.columns import find_input, find_result, result_order
from fastflow.engine.grid import Columns, Grid
from fastflow.engine.inputs import Settings
from fastflow.errors import InputError

if TYPE_CHECKING:
    from fastflow.crossflow import Prediction

Table = dict[str, NDArray[Any]]
"""Result columns in the dataset's order, shape (points,); masked where a point has no such column."""

_KINDS: dict[str, Any] = {"float": np.float64, "int": np.int64, "bool": np.bool_, "str": np.object_}
_FEWEST = 16  # points of a chunk: fewer are not worth the handing around
_CHUNKS_A_JOB = 4  # so that a slow chunk at the end keeps nobody waiting long


class Predicted(NamedTuple):
    """Some points of a chunk that shared a call of the model."""

    place: NDArray[np.int64]
    """Where in the chunk they are."""
    inputs: Columns
    prediction: Prediction


def column_order(grid: Grid) -> list[str]:
    """Return the names of the dataset's columns, in order: what was chosen, what varies, what results."""
    names = result_order(grid.levels)
    swept = [axis.key for axis in grid.axes if axis.key not in names]
    after = names.index("tiling") + 1
    return names[:after] + swept + names[after:]


def kind_of(name: str, grid: Grid) -> str:
    """Return the type of a column of the dataset: "float", "int", "bool" or "str"."""
    if name in grid.labels:
        return "str"
    column = find_result(name) or find_input(name)
    assert column is not None, name
    return column.kind


def predict_points(grid: Grid, start: int, stop: int) -> list[Predicted]:
    """Run the model on points start to stop; raises InputError."""
    from fastflow import crossflow

    points = np.arange(start, stop, dtype=np.int64)
    batch = grid.batch[grid.combinations(points)]
    predicted = []
    for number in np.unique(batch):
        place = np.flatnonzero(batch == number)
        inputs = grid.inputs(int(number), points[place])
        try:
            predicted.append(Predicted(place, inputs, crossflow.predict(inputs)))
        except KeyError as error:
            _refuse_missing(error, inputs)
            raise
    return predicted


def _refuse_missing(error: KeyError, inputs: Columns) -> None:
    """Raise InputError where the model asked for an input that the configuration does not give."""
    key = error.args[0] if error.args else None
    column = find_input(key) if isinstance(key, str) and key not in inputs else None
    if column is not None:
        raise InputError(str(key), "nothing", f"{column.allowed()}; it is missing") from None


def tabulate(grid: Grid, start: int, stop: int, predicted: list[Predicted]) -> Table:
    """Put what was predicted for points start to stop into one table, in point order."""
    from fastflow.results import summary

    points = np.arange(start, stop, dtype=np.int64)
    combinations = grid.combinations(points)
    table: Table = {}
    summaries = [summary(one.prediction) for one in predicted]
    for name in column_order(grid):
        if name == "point":
            table[name] = points
        elif name in grid.labels:
            table[name] = grid.labels[name][combinations].astype(object)
        else:
            empty: Any = np.empty(stop - start, _KINDS[kind_of(name, grid)])
            column: Any = np.ma.MaskedArray(empty, mask=True)
            for one, results in zip(predicted, summaries, strict=True):
                values = results.get(name, one.inputs.get(name))
                if values is not None:
                    column[one.place] = values
            table[name] = column if np.ma.is_masked(column) else column.data
    return table


def rows(grid: Grid, start: int, stop: int) -> Table:
    """Evaluate points start to stop; shape of every column (stop - start,)."""
    return tabulate(grid, start, stop, predict_points(grid, start, stop))


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Raise a KeyboardInterrupt only once the block is done.

    Numba runs Python code, unchecked, where a kernel hands over its results: an interrupt raised just
    there is lost, or ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def run(grid: Grid, settings: Settings) -> Iterator[Table]:
    """Evaluate all points, chunk after chunk; the tables come in point order.

    A result depends neither on the number of jobs nor on the chunk.
    """
    if grid.points <= _FEWEST or settings.jobs == 1:
        for start, stop in _ranges(grid.points, settings.chunk):
            with interrupts_held():
                table = rows(grid, start, stop)
            yield table
        return

    import joblib

    share = -(-grid.points // (joblib.effective_n_jobs(settings.jobs) * _CHUNKS_A_JOB))
    ranges = _ranges(grid.points, min(settings.chunk, max(_FEWEST, share)))
    # compile, or load from the cache, once: every worker would do it for itself
    for batch in range(len(grid.batches)):
        with interrupts_held():
            _warm(grid, batch)
    parallel = joblib.Parallel(n_jobs=settings.jobs, prefer="threads", return_as="generator")
    yield from parallel(joblib.delayed(rows)(grid, start, stop) for start, stop in ranges)


def _warm(grid: Grid, batch: int) -> None:
    """Run the model once on the first point of a batch, which compiles its kernels."""
    from fastflow import crossflow

    combination = int(np.flatnonzero(grid.batch == batch)[0])
    composed = [axis.size if axis.composed else 1 for axis in grid.axes]
    digits = np.unravel_index(combination, composed) if composed else ()
    point = 0
    for axis, digit in zip(grid.axes, digits, strict=True):
        point = point * axis.size + int(digit)
    crossflow.predict(grid.inputs(batch, np.array([point], dtype=np.int64)))


def _ranges(points: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, points)) for start in range(0, points, size)]
