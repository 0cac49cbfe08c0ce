"""Points of a grid, or of any input columns, predicted together: the strategy settled, then the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.grid.grid import Grid, Share
from fastflow.grid.run import naming_what_is_missing
from fastflow.tables import Columns, Texts

if TYPE_CHECKING:
    from fastflow.prediction import Prediction
    from fastflow.serving.serve import Served


class Predicted(NamedTuple):
    """Some points of a chunk that shared a call of the model."""

    place: NDArray[np.int64]
    """Where in the chunk they are."""
    inputs: Columns
    prediction: Prediction | Served
    settled: Columns
    """The inputs under the strategy that they were predicted with."""
    share: Share | None = None
    least: Texts | None = None
    """Why nothing fits where the best strategy was asked for, of every point; or ""."""


def predict_points(grid: Grid, start: int, stop: int) -> list[Predicted]:
    """Run the model on points start to stop; raises InputError."""
    predicted = []
    for share in grid.shares(start, stop):
        inputs = grid.inputs(share)
        predicted.append(predict(inputs)._replace(place=share.points - start, share=share))
    return predicted


def predict(inputs: Columns, rehearsed: bool = False) -> Predicted:
    """Run the model; raises InputError where it asks for an input that the configuration does not give.

    rehearsed: the result does not count, so any strategy does where the best one is asked for.
    """
    from fastflow import crossflow
    from fastflow.optimize.fitting import LEAST
    from fastflow.optimize.settled import settle, settle_on_any
    from fastflow.precompile import compile_ahead

    prediction: Prediction | Served
    with naming_what_is_missing(inputs):
        compile_ahead(inputs)
        if serves(inputs):
            from fastflow.optimize.servers import settle_servers
            from fastflow.serving.serve import serve

            settled = dict(settle_servers(inputs, rehearsed))
            least = settled.pop(LEAST, None)
            prediction = serve(settled)
        else:
            settled = dict(settle_on_any(inputs) if rehearsed else settle(inputs))
            least = settled.pop(LEAST, None)
            prediction = crossflow.predict(settled)
    points = next(iter(inputs.values())).size
    return Predicted(np.arange(points), inputs, prediction, settled, least=least)


def columns_of(one: Predicted) -> Columns:
    """Return the result columns of points that shared a call."""
    if serves(one.inputs):
        from fastflow.served_results import served_columns

        columns = served_columns(one.inputs, cast("Served", one.prediction))
    else:
        from fastflow.results import summary

        columns = summary(cast("Prediction", one.prediction))
    if one.least is not None and (one.least != "").any():
        columns["reason"] = np.where(one.least != "", one.least, columns["reason"])
    return columns


def results_of(inputs: Columns) -> Columns:
    """Return the result columns of points that are given as input columns; raises InputError."""
    return columns_of(predict(inputs))


def serves(inputs: Columns) -> bool:
    """Say whether points serve: those of a call all do, or none, since they have the same keys."""
    from fastflow.precompile import SERVES

    return SERVES in inputs
