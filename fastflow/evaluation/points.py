"""Points of a grid, or of any input columns, predicted together: the strategy settled, then the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.evaluation.effects import Trial, trials_of, with_trials, without_effect
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
    trials: Sequence[Trial] = ()
    """What the prediction has after the points: some of them again, without keys of the user."""
    least: Texts | None = None
    """Why nothing fits where the best strategy was asked for, of every point; or ""."""


def predict_points(grid: Grid, start: int, stop: int) -> list[Predicted]:
    """Run the model on points start to stop; raises InputError."""
    predicted = []
    for share in grid.shares(start, stop):
        inputs = grid.inputs(share)
        one = predict(inputs, trials=trials_of(grid, share, inputs))
        predicted.append(one._replace(place=share.points - start, share=share))
    return predicted


def predict(inputs: Columns, rehearsed: bool = False, trials: Sequence[Trial] = ()) -> Predicted:
    """Run the model; raises InputError where it asks for an input that the configuration does not give.

    rehearsed: the result does not count, so any strategy does where the best one is asked for. trials: of
    some of the points, which are predicted after them.
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
            prediction = serve(with_trials(settled, trials))
        else:
            settled = dict(settle_on_any(inputs) if rehearsed else settle(inputs))
            least = settled.pop(LEAST, None)
            prediction = crossflow.predict(with_trials(settled, trials))
    points = next(iter(inputs.values())).size
    return Predicted(np.arange(points), inputs, prediction, settled, trials=trials, least=least)


def columns_of(one: Predicted) -> Columns:
    """Return the result columns of points that shared a call."""
    if serves(one.inputs):
        from fastflow.served_results import served_columns

        served = cast("Served", one.prediction)
        columns = served_columns(served.inputs, served)
    else:
        from fastflow.results import summary

        columns = summary(cast("Prediction", one.prediction))
    columns = without_effect(columns, one.place.size, one.trials, one.settled, results_of)
    if one.least is not None and (one.least != "").any():
        columns["reason"] = np.where(one.least != "", one.least, columns["reason"])
    return columns


def results_of(inputs: Columns, trials: Sequence[Trial] = ()) -> Columns:
    """Return the result columns of points that are given as input columns; raises InputError.

    trials: of some of the points, which say which of the user's keys have no effect.
    """
    return columns_of(predict(inputs, trials=trials))


def serves(inputs: Columns) -> bool:
    """Say whether points serve: those of a call all do, or none, since they have the same keys."""
    from fastflow.precompile import SERVES

    return SERVES in inputs
