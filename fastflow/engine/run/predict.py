"""Points of a grid, or of any input columns, predicted together: the strategy resolved, then the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.core.errors import InputError
from fastflow.core.reasons.columns import ReasonColumn, column_of, first_reasons
from fastflow.core.tables import Bools, Columns, Ints, take
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.grid.run import naming_missing_input
from fastflow.engine.run.no_effect import Trial, inputs_of_trial, trials_of, with_trials, without_effect
from fastflow.performance.serving import is_serving
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO

if TYPE_CHECKING:
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import ServingResult
    from fastflow.performance.serving.slo import Limit

STRATEGIES = ("parallel.strategy", "serve.prefill.strategy")
"""Keys whose value may be `auto`."""


class Predicted(NamedTuple):
    """Points of a chunk that shared a call of the model."""

    positions: NDArray[np.int64]
    """Their indices in the chunk."""
    inputs: Columns
    prediction: Prediction | ServingResult
    resolved: Columns
    """The inputs under the strategy that they were predicted with."""
    share: Share | None = None
    trials: Sequence[Trial] = ()
    """Trials after the points in the prediction: points without keys of the user."""
    no_fit: ReasonColumn | None = None
    """Of every point, why no strategy fits where `auto` selects it."""
    any_strategy: bool = False
    """Whether any strategy was used in place of the best one."""


def predict_range(grid: Grid, start: int, stop: int) -> list[Predicted]:
    """Predict points start to stop of a grid; raises InputError."""
    predicted = []
    for share in grid.shares(start, stop):
        inputs = grid.inputs(share)
        points = predict_points(inputs, trials=trials_of(grid, share, inputs))
        predicted.append(points._replace(positions=share.points - start, share=share))
    return predicted


def predict_points(
    inputs: Columns,
    any_strategy: bool = False,
    trials: Sequence[Trial] = (),
    kernels: str = "",
    stop_at: tuple[Limit, ...] | None = None,
) -> Predicted:
    """Compile missing kernels, resolve the strategy, and run the model of training or of serving.

    inputs: (points,) each. any_strategy: use any strategy in place of the best one, for a warm-up. trials:
    of some of the points, predicted after them. kernels: the list of kernels to compile, as of
    `compile_ahead`. stop_at: limits of fleets, as of `serve`. `columns_of` makes the result columns. Raises
    InputError, also for a missing input.
    """
    from fastflow.performance.auto.no_fit import LEAST
    from fastflow.performance.precompile import compile_ahead

    with naming_missing_input(inputs):
        compile_ahead(inputs, kernels)
    inputs, none_fits = with_devices(inputs, any_strategy)
    resolved = resolved_inputs(inputs, any_strategy)
    least = reasons_of_no_number(resolved.pop(LEAST, None), none_fits)
    no_fit = None if least is None else column_of(least)
    prediction, trials = _with_trials(resolved, trials, stop_at)
    points = next(iter(inputs.values())).size
    return Predicted(np.arange(points), inputs, prediction, resolved, None, trials, no_fit, any_strategy)


def with_devices(inputs: Columns, any_number: bool = False) -> tuple[Columns, Bools]:
    """Return inputs with the least number of devices for `auto`, and where no number fits; raises InputError.

    any_number: use any number in place of the least one.
    """
    if (inputs[DEVICES] > 0).all():
        return inputs, np.zeros(inputs[DEVICES].size, dtype=np.bool_)
    from fastflow.performance.auto.least_devices import resolve_devices

    with naming_missing_input(inputs):
        resolved, none_fits = resolve_devices(inputs, any_number)
    return dict(resolved), none_fits


def reasons_of_no_number(least: NDArray[Any] | None, none_fits: Bools) -> NDArray[Any] | None:
    """Return why no strategy fits, (points,), and that no number of devices does where this holds."""
    if least is None or not none_fits.any():
        return least
    pairs = zip(least.tolist(), none_fits.tolist(), strict=True)
    texts = [reason.with_fields(devices=0) if reason and none else reason for reason, none in pairs]
    return np.array(texts, dtype=object)


def resolved_inputs(inputs: Columns, any_strategy: bool = False) -> Columns:
    """Return inputs with the best strategy for `auto`, and why no strategy fits; raises InputError."""
    with naming_missing_input(inputs):
        if is_serving(inputs):
            from fastflow.performance.auto.serving import resolve_servers

            return dict(resolve_servers(inputs, any_strategy))
        from fastflow.performance.auto.resolve import resolve_any_strategy, resolve_strategy

        return dict(resolve_any_strategy(inputs) if any_strategy else resolve_strategy(inputs))


def _model(inputs: Columns, stop_at: tuple[Limit, ...] | None = None) -> Prediction | ServingResult:
    """Run the model on points with resolved strategies; raises InputError."""
    with naming_missing_input(inputs):
        if is_serving(inputs):
            from fastflow.performance.serving.predict import serve

            return serve(inputs, stop_at)
        from fastflow.performance import crossflow

        return crossflow.predict(inputs)


def _with_trials(
    resolved: Columns, trials: Sequence[Trial], stop_at: tuple[Limit, ...] | None
) -> tuple[Prediction | ServingResult, Sequence[Trial]]:
    """Run the model on points and their trials; returns the prediction, and the trials that it accepts."""
    try:
        return _model(with_trials(resolved, trials), stop_at), trials
    except InputError:
        if not trials:
            raise
    untried = _model(resolved)
    kept = [
        trial
        for trial in trials
        if not trial.fits(resolved) or _is_accepted(inputs_of_trial(resolved, trial))
    ]
    return (_model(with_trials(resolved, kept)) if kept else untried), kept


def _is_accepted(inputs: Columns) -> bool:
    """Say whether the model accepts inputs."""
    try:
        _model(inputs)
    except InputError:
        return False
    return True


def columns_of(predicted: Predicted) -> Columns:
    """Return the result columns of points that shared a call."""
    columns = _columns_of_model(predicted)
    columns = without_effect(
        columns,
        predicted.positions.size,
        predicted.trials,
        predicted.resolved,
        results_of,
        partial(_same_strategy, predicted),
    )
    if predicted.no_fit is not None and predicted.no_fit.exists.any():
        columns |= reasons_of(predicted).columns()
    return columns


def _columns_of_model(predicted: Predicted) -> Columns:
    """Return the result columns of points and their trials, with the reasons of the strategies used."""
    if is_serving(predicted.inputs):
        from fastflow.performance.serving.columns import served_columns

        served = cast("ServingResult", predicted.prediction)
        return served_columns(served.inputs, served)
    from fastflow.performance.results import summary

    return summary(cast("Prediction", predicted.prediction))


def reasons_of(predicted: Predicted) -> ReasonColumn:
    """Return why points that shared a call are not feasible, (points,)."""
    if is_serving(predicted.inputs):
        from fastflow.performance.serving.columns import reasons_of as reasons_of_served

        reasons = reasons_of_served(cast("ServingResult", predicted.prediction))
    else:
        from fastflow.performance.results import reasons_of as reasons_of_iterations

        reasons = reasons_of_iterations(cast("Prediction", predicted.prediction))
    reasons = take(reasons, np.arange(predicted.positions.size))  # without those of trials
    return reasons if predicted.no_fit is None else first_reasons(predicted.no_fit, reasons)


def has_wrong_degree(inputs: Columns) -> bool:
    """Say whether the first point has no results since a degree of its strategy does not suit its model."""
    reason = reasons_of(predict_points(take(inputs, np.zeros(1, dtype=np.int64)))).at(0)
    return reason is not None and reason.wrong_degree


def _same_strategy(predicted: Predicted, trial: Trial, rows: Ints) -> Bools:
    """Return whether rows of a trial have the same best strategy without the key, (rows,).

    True where the strategy is not `auto`.
    """
    from fastflow.performance.auto.no_fit import LEAST

    points = trial.points[rows]
    same = np.ones(rows.size, dtype=np.bool_)
    is_auto = np.zeros(rows.size, dtype=np.bool_)
    for key in (key for key in STRATEGIES if key in predicted.inputs):
        is_auto |= (predicted.inputs[key][points] == AUTO) & (key not in trial.values)
    selected = np.flatnonzero(is_auto)
    if not selected.size:
        return same
    try:
        of_trial = resolved_inputs(take(inputs_of_trial(predicted.inputs, trial), rows[selected]))
    except InputError:  # no strategy fits
        same[selected] = False
        return same
    of_points = take(predicted.resolved, points[selected])
    if predicted.any_strategy:
        of_points = resolved_inputs(take(predicted.inputs, points[selected]))
    elif predicted.no_fit is not None:
        of_points[LEAST] = take(predicted.no_fit, points[selected]).reason
    for key in of_points.keys() & of_trial.keys() - trial.values.keys():
        same[selected] &= (
            column_of(of_points[key]).texts() == column_of(of_trial[key]).texts()
            if key == LEAST
            else of_points[key] == of_trial[key]
        )
    return same


def results_of(inputs: Columns, trials: Sequence[Trial] = ()) -> Columns:
    """Return the result columns of points from their input columns; raises InputError.

    trials: of some of the points, to find the user's keys without effect.
    """
    return columns_of(predict_points(inputs, trials=trials))
