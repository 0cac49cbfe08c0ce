"""Predicting measurements: every row of a file becomes a point of the model, and all go in few calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.errors import CompositionError, InputError
from fastflow.evaluation.runner import naming_what_is_missing
from fastflow.grid.grid import Columns, Grid
from fastflow.measured.host import with_host
from fastflow.measured.measurements import (
    EXCHANGES,
    ITERATIONS,
    OPERATORS,
    TENSORS,
    Given,
    Measurements,
    tensors,
)
from fastflow.tables import Floats, Ints, take

if TYPE_CHECKING:
    from fastflow.crossflow import Prediction

AT_ONCE = 4096  # rows predicted together
ITERATIONS_AT_ONCE = 256  # of whole iterations, whose graphs are larger


class Predicted(NamedTuple):
    """What is known of some rows: result columns of shape (rows,), masked or NaN where there is none."""

    rows: Ints
    columns: dict[str, NDArray[Any]]


def predict(
    grid: Grid, measurements: Measurements, advance: Callable[[int], None] = lambda rows: None
) -> Iterator[Predicted]:
    """Predict all rows of a file, some thousand at a time; raises InputError.

    grid: of one point, whose inputs the rows replace; of whole iterations a point a row. Columns are those of
    `columns.RESULTS` and `columns.VALIDATION`; `reason` says why a row cannot be predicted. advance: told how
    many rows are done.
    """
    kind, rows = measurements.kind, measurements.measured.size
    step = ITERATIONS_AT_ONCE if kind is ITERATIONS else AT_ONCE
    for start in range(0, rows, step):
        some = np.arange(start, min(start + step, rows), dtype=np.int64)
        if kind is EXCHANGES:
            yield Predicted(some, _collectives(grid, measurements, some))
        else:
            for of, inputs in inputs_of(grid, measurements, some):
                yield Predicted(of, _points(measurements, of, inputs))
        advance(some.size)


def inputs_of(grid: Grid, measurements: Measurements, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
    """Yield rows that share a call of the model, and the model's inputs of them; raises InputError.

    The inputs of a row are the configuration's, but for what the file says.
    """
    if measurements.kind is ITERATIONS:
        batch = grid.batch[rows]  # every row is a combination of its own
        for number in np.unique(batch).tolist():
            some = rows[batch == number]
            columns = {
                key: np.repeat(values, some.size) if values.size == 1 else values[grid.row[some]]
                for key, values in grid.batches[number].columns.items()
            }
            yield some, columns
        return
    inputs = {key: np.repeat(column, rows.size) for key, column in grid.first_inputs().items()}
    for key, given in measurements.inputs.items():
        _replace(inputs, key, take(given, rows))
    if measurements.kind is OPERATORS and "min_bytes" in measurements.frame:
        _replace(inputs, TENSORS, tensors(measurements, inputs, rows))
    yield rows, inputs


def _replace(inputs: Columns, key: str, given: Given) -> None:
    """Put what a file says of an input in place of what the configuration says."""
    inputs[key] = np.where(given.there, given.values, inputs[key]) if key in inputs else given.values


def _points(measurements: Measurements, rows: Ints, inputs: Columns) -> dict[str, NDArray[Any]]:
    """Predict points of the model; raises InputError where the chip lacks a row's data type."""
    from fastflow import crossflow
    from fastflow.optimize.strategies import settle
    from fastflow.results import summary

    with naming_what_is_missing(inputs):
        prediction = crossflow.predict(settle(inputs))
    columns = summary(prediction)
    lacks = np.char.startswith(prediction.reason.astype(np.str_), "model.dtype=")
    if lacks.any():
        place = int(lacks.argmax())
        mistake = InputError.read(str(prediction.reason[place]))
        assert mistake is not None
        if "dtype" in measurements.frame:
            raise measurements.mistake("dtype", int(rows[place]), mistake.allowed)
        raise mistake
    seen = with_host(measurements, rows, inputs, columns["time_s"])
    host = seen - columns["time_s"]
    bound_by = np.where(host > 0.5 * seen, "host", columns["bound_by"])
    return columns | {"time_s": seen, "host_s": host, "bound_by": bound_by} | needs(prediction)


def needs(prediction: Prediction) -> dict[str, NDArray[Any]]:
    """Return what all launches of a point take of each thing alone [s]; NaN where it has no time."""
    from fastflow.timing.roofline import limiter_names

    names = limiter_names(len(prediction.chip.levels))
    found = np.full((prediction.reason.size, len(names)), np.nan)
    if prediction.timed.size:
        of_kernels = prediction.launches[:, None] * prediction.timing.times
        found[prediction.timed] = np.add.reduceat(of_kernels, prediction.graph.offset[:-1])
    return {f"needs_{name}_s": found[:, place] for place, name in enumerate(names)}


def _collectives(grid: Grid, measurements: Measurements, rows: Ints) -> dict[str, NDArray[Any]]:
    """Predict collectives among neighbouring devices; raises InputError."""
    from fastflow import crossflow
    from fastflow.workload.graph import COLLECTIVES

    inputs = grid.first_inputs()
    devices = int(inputs["system.devices"][0])
    ranks, size = measurements.ranks[rows], measurements.bytes[rows]
    if (ranks > devices).any():
        row = int(rows[int((ranks > devices).argmax())])
        raise measurements.mistake("ranks", row, f"at most {devices:,}, the devices of the system")
    time, latency = np.empty(rows.size), np.empty(rows.size)
    for name in np.unique(measurements.collective[rows]).tolist():
        some = measurements.collective[rows] == name
        number = COLLECTIVES.index(name)
        time[some] = crossflow.time_collectives(inputs, number, size[some], ranks[some])
        latency[some] = crossflow.time_collectives(inputs, number, np.zeros(int(some.sum())), ranks[some])
    return {
        "time_s": time,
        "latency_s": latency,
        "bound_by": np.where(latency > 0.5 * time, "latency", "network"),
        "reason": np.full(rows.size, "", dtype=object),
    }


def check_all(reason: NDArray[Any], predicted: Floats) -> None:
    """Raise CompositionError where no row of a file can be predicted."""
    if np.isnan(predicted).all():
        raise CompositionError(f"no row can be predicted; the first one: {reason[0]}")
