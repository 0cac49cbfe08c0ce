"""Rows of measurements as points of the model: their inputs, one call for many, and what it says of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.csv_file import Given
from fastflow.core.tables import Columns, Floats, Ints, Texts, take
from fastflow.engine.run.predict import Predicted, columns_of, predict_points

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction


class PredictedRows(NamedTuple):
    """What is known of some rows: result columns of shape (rows,), masked or NaN where there is none."""

    rows: Ints
    columns: dict[str, NDArray[Any]]


class PredictedPoints(NamedTuple):
    """What the model says of points; shape (points,)."""

    reason: Texts  # why a point has no time; "" where it has
    columns: dict[str, NDArray[Any]]  # of `schema.RESULTS`
    needs: dict[str, NDArray[Any]]  # what all launches take of each thing alone [s]


def replaced(inputs: Columns, given: Mapping[str, Given], rows: Ints) -> Columns:
    """Return the model's inputs with what a file says of some rows in place of the configuration's."""
    found = dict(inputs)
    for key, column in given.items():
        values, there = take(column, rows)
        found[key] = np.where(there, values, found[key]) if key in found else values
    return found


def results_of_rows(inputs: Columns) -> Columns:
    """Return result columns of rows, (rows,); raises InputError where the model lacks an input."""
    return _columns_of(predict_points(inputs))


def predict_iterations(inputs: Columns) -> PredictedPoints:
    """Predict iterations, or kernels, of the model; raises InputError where it lacks an input."""
    points = predict_points(inputs)
    prediction = cast("Prediction", points.prediction)
    return PredictedPoints(prediction.reason, _columns_of(points), _needs(prediction))


def _columns_of(points: Predicted) -> Columns:
    """Return result columns; why no strategy fits is not among their reasons: devices are as measured."""
    return columns_of(points._replace(no_fit=None))


def device_times(inputs: Columns) -> Floats:
    """Return the time of points on their device [s], NaN where one has none."""
    prediction = cast("Prediction", predict_points(inputs).prediction)
    found = np.full(prediction.reason.size, np.nan)
    found[prediction.timed] = prediction.timeline.total
    return found


def _needs(prediction: Prediction) -> dict[str, NDArray[Any]]:
    """Return what all launches of a point take of each thing alone [s]; NaN where it has no time."""
    from fastflow.physics.timing.roofline import limiter_names

    names = limiter_names(len(prediction.chip.levels))
    found = np.full((prediction.reason.size, len(names)), np.nan)
    if prediction.timed.size:
        of_kernels = prediction.launches[:, None] * prediction.timing.times
        found[prediction.timed] = np.add.reduceat(of_kernels, prediction.graph.offset[:-1])
    return {f"needs_{name}_s": found[:, place] for place, name in enumerate(names)}


def with_reasons(predicted: PredictedRows) -> PredictedRows:
    """Return rows whose times are above 0 and finite; any other becomes NaN, and its reason says so."""
    time = np.asarray(predicted.columns["time_s"], dtype=np.float64)
    reason = predicted.columns["reason"]
    none = np.isnan(time) & (reason == "")
    wrong = none | ~(np.isnan(time) | ((time > 0.0) & np.isfinite(time)))
    if not wrong.any():
        return predicted
    said = np.array([f"the model gives {'no time' if t != t else f'{t:g} s'}" for t in time[wrong]])
    reason = reason.astype(object)
    reason[wrong] = said
    columns = predicted.columns | {"time_s": np.where(wrong, np.nan, time), "reason": reason}
    return predicted._replace(columns=columns)
