"""Rows of measurements as points of the model: their inputs, and predictions in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.core.reasons.columns import ReasonColumn, column_of
from fastflow.core.reasons.forms import wrong_time
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.engine.run.predict import Predicted, columns_of, predict_points
from fastflow.schema.validation import ROOFLINE

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction


class PredictedRows(NamedTuple):
    """Predictions of some rows: result columns of shape (rows,), masked or NaN without a result."""

    rows: Ints
    columns: dict[str, NDArray[Any]]


class PredictedPoints(NamedTuple):
    """Predictions of points; shape (points,)."""

    reason: ReasonColumn  # why a point has no time
    columns: dict[str, NDArray[Any]]  # of `schema.RESULTS`
    needs: dict[str, NDArray[Any]]  # time of all launches by each limiter alone [s]


def with_rows(inputs: Columns, overrides: Mapping[str, InputColumn], rows: Ints) -> Columns:
    """Return the model's inputs with the configuration's values replaced by those of some rows of a file."""
    columns = dict(inputs)
    for key, column in overrides.items():
        values, is_set = take(column, rows)
        columns[key] = np.where(is_set, values, columns[key]) if key in columns else values
    return columns


def results_of_rows(inputs: Columns) -> Columns:
    """Return result columns of rows, (rows,); raises InputError where the model lacks an input."""
    return _columns_of(predict_points(inputs))


def predict_iterations(inputs: Columns) -> PredictedPoints:
    """Predict iterations, or kernels, of the model; raises InputError where it lacks an input."""
    points = predict_points(inputs)
    prediction = cast("Prediction", points.prediction)
    return PredictedPoints(prediction.reason, _columns_of(points), _needs(prediction))


def _columns_of(points: Predicted) -> Columns:
    """Return result columns, without hints on the number of devices: it is as measured."""
    return columns_of(points._replace(no_fit=None))


def device_times(inputs: Columns) -> Floats:
    """Return the time of points on their device [s], NaN without a time."""
    prediction = cast("Prediction", predict_points(inputs).prediction)
    times = np.full(prediction.reason.size, np.nan)
    times[prediction.timed] = prediction.timeline.total
    return times


def _needs(prediction: Prediction) -> dict[str, NDArray[Any]]:
    """Return the time of all launches of a point by each limiter alone [s]; NaN without a time."""
    from fastflow.physics.timing.roofline import limiter_names

    names = limiter_names(len(prediction.chip.levels))
    needs = np.full((prediction.reason.size, len(names)), np.nan)
    if prediction.timed.size:
        of_kernels = prediction.pipeline.launches[:, None] * prediction.timing.times
        needs[prediction.timed] = np.add.reduceat(of_kernels, prediction.graph.offset[:-1])
    return {f"{ROOFLINE}{name}_s": needs[:, index] for index, name in enumerate(names)}


def with_reasons(predicted: PredictedRows) -> PredictedRows:
    """Return rows with times above 0 and finite; other times become NaN, with a reason."""
    time = np.asarray(predicted.columns["time_s"], dtype=np.float64)
    no_time = np.isnan(time) & (predicted.columns["reason"] == "")
    wrong = no_time | ~(np.isnan(time) | ((time > 0.0) & np.isfinite(time)))
    if not wrong.any():
        return predicted
    added = column_of(wrong_time(time=float(t)) for t in time[wrong])
    columns = predicted.columns | {"time_s": np.where(wrong, np.nan, time)}
    for name, texts in added.columns().items():
        columns[name] = columns[name].astype(object)
        columns[name][wrong] = texts
    return predicted._replace(columns=columns)
