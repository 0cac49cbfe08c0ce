"""Points of a grid, or of any input columns, predicted together: the strategy settled, then the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.grid.grid import Grid, Share
from fastflow.grid.run import naming_what_is_missing
from fastflow.tables import Columns

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
    from fastflow.optimize.settled import settle, settle_on_any
    from fastflow.precompile import compile_ahead

    prediction: Prediction | Served
    with naming_what_is_missing(inputs):
        compile_ahead(inputs)
        if serves(inputs):
            from fastflow.optimize.servers import settle_servers
            from fastflow.serving.serve import serve

            settled = settle_servers(inputs, rehearsed)
            prediction = serve(settled)
        else:
            settled = settle_on_any(inputs) if rehearsed else settle(inputs)
            prediction = crossflow.predict(settled)
    points = next(iter(inputs.values())).size
    return Predicted(np.arange(points), inputs, prediction, dict(settled))


def columns_of(one: Predicted) -> Columns:
    """Return the result columns of points that shared a call."""
    if serves(one.inputs):
        from fastflow.served_results import served_columns

        return served_columns(one.inputs, cast("Served", one.prediction))
    from fastflow.results import summary

    return summary(cast("Prediction", one.prediction))


def results_of(inputs: Columns) -> Columns:
    """Return the result columns of points that are given as input columns; raises InputError."""
    return columns_of(predict(inputs))


def serves(inputs: Columns) -> bool:
    """Say whether points serve: those of a call all do, or none, since they have the same keys."""
    from fastflow.precompile import SERVES

    return SERVES in inputs
