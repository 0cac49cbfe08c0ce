"""Points of a grid, or of any input columns, predicted together: the strategy settled, then the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Ints, Texts, take
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.no_effect import Trial, changed, trials_of, with_trials, without_effect
from fastflow.performance.serving import serves
from fastflow.physics.parallelism.strategy import AUTO

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import Served

STRATEGIES = ("parallel.strategy", "serve.prefill.strategy")
"""Keys whose value may be the best there is."""


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
    rehearsed: bool = False
    """Whether any strategy was taken where the best one is asked for."""


def predict_range(grid: Grid, start: int, stop: int) -> list[Predicted]:
    """Predict points start to stop of a grid; raises InputError."""
    predicted = []
    for share in grid.shares(start, stop):
        inputs = grid.inputs(share)
        points = predict_points(inputs, trials=trials_of(grid, share, inputs))
        predicted.append(points._replace(place=share.points - start, share=share))
    return predicted


def predict_points(
    inputs: Columns, rehearsed: bool = False, trials: Sequence[Trial] = (), kernels: str = ""
) -> Predicted:
    """Compile what is not compiled, settle the strategy, and run the model, of training or of serving.

    inputs: (points,) each. rehearsed: the result does not count, so any strategy does where the best one is
    asked for. trials: of some of the points, which are predicted after them. kernels: which list of them is
    compiled, as of `compile_ahead`. `columns_of` makes the result columns. Raises InputError, also where the
    model asks for an input that is not there.
    """
    from fastflow.performance.auto.no_fit import LEAST
    from fastflow.performance.precompile import compile_ahead

    with naming_missing_input(inputs):
        compile_ahead(inputs, kernels)
    settled = settled_inputs(inputs, rehearsed)
    least = settled.pop(LEAST, None)
    prediction, trials = _with_trials(settled, trials)
    points = next(iter(inputs.values())).size
    return Predicted(np.arange(points), inputs, prediction, settled, None, trials, least, rehearsed)


def settled_inputs(inputs: Columns, rehearsed: bool = False) -> Columns:
    """Return inputs with the best strategy where it is asked for, and why none fits; raises InputError."""
    with naming_missing_input(inputs):
        if serves(inputs):
            from fastflow.performance.auto.serving import settle_servers

            return dict(settle_servers(inputs, rehearsed))
        from fastflow.performance.auto.resolve import resolve_strategy, settle_on_any

        return dict(settle_on_any(inputs) if rehearsed else resolve_strategy(inputs))


def _model(inputs: Columns) -> Prediction | Served:
    """Run the model on points whose strategies are settled; raises InputError."""
    with naming_missing_input(inputs):
        if serves(inputs):
            from fastflow.performance.serving.predict import serve

            return serve(inputs)
        from fastflow.performance import crossflow

        return crossflow.predict(inputs)


def _with_trials(settled: Columns, trials: Sequence[Trial]) -> tuple[Prediction | Served, Sequence[Trial]]:
    """Run the model on points and their trials, but for those that it refuses; and return these trials."""
    try:
        return _model(with_trials(settled, trials)), trials
    except InputError:
        if not trials:
            raise
    alone = _model(settled)
    kept = [trial for trial in trials if not trial.fits(settled) or _is_taken(changed(settled, trial))]
    return (_model(with_trials(settled, kept)) if kept else alone), kept


def _is_taken(inputs: Columns) -> bool:
    """Say whether the model takes inputs."""
    try:
        _model(inputs)
    except InputError:
        return False
    return True


def columns_of(predicted: Predicted) -> Columns:
    """Return the result columns of points that shared a call."""
    if serves(predicted.inputs):
        from fastflow.performance.serving.columns import served_columns

        served = cast("Served", predicted.prediction)
        columns = served_columns(served.inputs, served)
    else:
        from fastflow.performance.results import summary

        columns = summary(cast("Prediction", predicted.prediction))
    columns = without_effect(
        columns,
        predicted.place.size,
        predicted.trials,
        predicted.settled,
        results_of,
        partial(_chosen_alike, predicted),
    )
    if predicted.least is not None and (predicted.least != "").any():
        columns["reason"] = np.where(predicted.least != "", predicted.least, columns["reason"])
    return columns


def _chosen_alike(predicted: Predicted, trial: Trial, rows: Ints) -> Bools:
    """Say of some of a trial's points whether the same strategy is the best without the key.

    Where none is asked for, it is.
    """
    from fastflow.performance.auto.no_fit import LEAST

    points = trial.points[rows]
    alike = np.ones(rows.size, dtype=np.bool_)
    asked = np.zeros(rows.size, dtype=np.bool_)
    for key in (key for key in STRATEGIES if key in predicted.inputs):
        asked |= (predicted.inputs[key][points] == AUTO) & (key not in trial.values)
    some = np.flatnonzero(asked)
    if not some.size:
        return alike
    try:
        others = settled_inputs(take(changed(predicted.inputs, trial), rows[some]))
    except InputError:  # none is found
        alike[some] = False
        return alike
    here = take(predicted.settled, points[some])
    if predicted.rehearsed:
        here = settled_inputs(take(predicted.inputs, points[some]))
    elif predicted.least is not None:
        here[LEAST] = predicted.least[points[some]]
    for key in here.keys() & others.keys() - trial.values.keys():
        alike[some] &= here[key] == others[key]
    return alike


def results_of(inputs: Columns, trials: Sequence[Trial] = ()) -> Columns:
    """Return the result columns of points that are given as input columns; raises InputError.

    trials: of some of the points, which say which of the user's keys have no effect.
    """
    return columns_of(predict_points(inputs, trials=trials))
