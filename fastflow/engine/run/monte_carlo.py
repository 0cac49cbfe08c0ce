"""Monte Carlo: points evaluated with sampled figures, for bands and probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastflow.core.reasons.codes import Code
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, broadcast_column, is_broadcast
from fastflow.core.uncertainty.percentiles import percentiles
from fastflow.core.uncertainty.sampling import Uncertainty, figure_factors, model_factors
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.run.predict import Predicted, predict_range, results_of
from fastflow.performance.accuracy.classes import typical_errors
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.slo import COMPARED, LIMITS
from fastflow.physics.workload import OTHERS, family_of
from fastflow.schema import BANDED, OTHER_CHIPS, band_of, find_input

_ROWS = 8192  # evaluated at once, about
_DESIGN = ("tech", "mem", "net", "chip", "system")
"""The choices that identify a design: its part of the model's error is the same for all its points."""
_ERROR_WORK = {"ttft_s": "first_token"}
"""Results with the model error of another kind of work than their points."""
_TIME, _FEASIBLE = "time_s", "feasible"
BUDGETS = ("chip.area.", "chip.power.", "chip.perimeter.")
"""Prefixes of inputs whose shares sum to at most 1."""


def band_columns(grid: Grid, predicted: Predicted, columns: Columns) -> Columns:
    """Return the bands of points that shared a call of the model, each (points,).

    columns: their results; those in BANDED have bands. The bands do not depend on the other points of the
    call, since every draw has its seed.
    """
    names = [name for name in BANDED if name in columns]
    points = predicted.positions.size
    bands = {name: np.full((3, points), np.nan) for name in names}
    shares, failed = np.full(points, np.nan), np.zeros(points, dtype=np.int64)
    num_samples = _samples(grid)
    size = max(1, _ROWS // num_samples)
    for first in range(0, points, size):
        rows = np.arange(first, min(first + size, points))
        samples = _sample_results(grid, predicted, rows)
        for name in names:
            if name in samples:
                bands[name][:, rows] = percentiles(samples[name])
        failed[rows] = num_samples - samples[_FEASIBLE].sum(axis=1)
        shares[rows] = _model_share(samples[_TIME], samples["model"])
    return {
        **{band: bands[name][i] for name in names for i, band in enumerate(band_of(name))},
        "model_error_share": shares,
        "samples_failed": failed,
    }


def samples_of(grid: Grid, points: Sequence[int], names: Sequence[str]) -> list[dict[str, Floats]]:
    """Return samples of results of some points of a grid, (samples,) each; names: of result columns."""
    sampled = []
    for point in points:
        (predicted,) = predict_range(grid, point, point + 1)
        results = _sample_results(grid, predicted, np.zeros(1, dtype=np.int64))
        nan = np.full((1, _samples(grid)), np.nan)
        sampled.append({name: results.get(name, nan)[0] for name in names})
    return sampled


def samples_by(
    grid: Grid, resolved: Columns, share: Share, measure: Callable[[Columns], Floats], power: int
) -> Floats:
    """Return samples of a function of inputs, (points, samples).

    resolved: inputs of points, under a strategy; share: their points of the grid. measure: input
    columns to values, proportional to a time to the `power`.
    """
    assert grid.uncertainty is not None
    inputs = _sampled_inputs(resolved, *_batch_and_rows(grid, share), grid.uncertainty)
    work = _work_of(resolved)
    errors = _model_errors(work, resolved, grid, share)
    model = model_factors(work, _designs(grid, share), errors, grid.uncertainty)
    samples: Floats = measure(inputs).reshape(model.shape) * model**power
    return samples


def _samples(grid: Grid) -> int:
    assert grid.uncertainty is not None
    return grid.uncertainty.samples


def _sample_results(grid: Grid, predicted: Predicted, rows: Ints) -> dict[str, Floats]:
    """Return samples of the results that have bands, (points, samples), of rows of a call.

    Also whether a sample is feasible, and "model": the factor of the model's error on times.
    """
    assert grid.uncertainty is not None
    assert predicted.share is not None
    share = predicted.share._replace(points=predicted.share.points[rows])
    resolved = {
        key: column[:1] if is_broadcast(column) else column[rows]
        for key, column in predicted.resolved.items()
    }
    results = results_of(_sampled_inputs(resolved, *_batch_and_rows(grid, share), grid.uncertainty))
    designs = _designs(grid, share)
    factors = {
        work: model_factors(work, designs, _model_errors(work, resolved, grid, share), grid.uncertainty)
        for work in (_work_of(resolved), *_ERROR_WORK.values())
    }
    model = factors[_work_of(resolved)]
    factor_of = {name: factors[work] for name, work in _ERROR_WORK.items()}
    samples: dict[str, Floats] = {"model": model}
    for name in (*BANDED, _FEASIBLE):
        if name in results:
            values = np.ma.filled(np.ma.asarray(results[name], dtype=np.float64), np.nan)
            samples[name] = values.reshape(model.shape) * factor_of.get(name, model) ** BANDED.get(name, 0)
    if is_serving(resolved):
        samples[_FEASIBLE] = _feasible_samples(
            results, resolved, {"ttft": factor_of["ttft_s"], "tpot": model}
        )
    return samples


def _feasible_samples(results: Columns, resolved: Columns, errors: Mapping[str, Floats]) -> Floats:
    """Return 1 for samples that are feasible, 0 for others, (points, samples).

    errors: factors of the model's error on times that may have limits.
    """
    late = results["reason_code"] == Code.SLO.label
    feasible: Bools = (np.asarray(results[_FEASIBLE]) | late).reshape(errors["ttft"].shape)
    for name, error in errors.items():
        limit = np.broadcast_to(resolved[LIMITS[name]], error.shape[:1])[:, None]
        feasible &= ~((limit > 0.0) & (results[COMPARED[name]].reshape(error.shape) * error > limit))
    return feasible.astype(np.float64)


def _batch_and_rows(grid: Grid, share: Share) -> tuple[int, Ints]:
    """Return the batch of some points, and their rows in it."""
    return share.batch, grid.row[share.block.combinations(share.points)]


def _work_of(inputs: Columns) -> str:
    """Return the kind of work of points that share a call."""
    return "serving" if is_serving(inputs) else family_of(inputs).work


def _model_errors(work: str, inputs: Columns, grid: Grid, share: Share) -> Floats:
    """Return the model's error in the times of points: as configured, or of their class; (points,).

    Points in no class have the error of other work.
    """
    assert grid.uncertainty is not None
    stated = grid.uncertainty.model[work].error
    if stated is not None:
        return np.full(share.points.size, stated)
    other = grid.uncertainty.model[OTHERS].error
    assert other is not None
    typical = typical_errors(inputs, grid.is_stock(share), work == _ERROR_WORK["ttft_s"])
    return np.where(np.isnan(typical), other, typical)


def _designs(grid: Grid, share: Share) -> list[str]:
    """Name the design of each point."""
    combinations = share.block.combinations(share.points)
    choices = [grid.labels[group][combinations].tolist() for group in _DESIGN if group in grid.labels]
    return [" ".join(map(str, names)) for names in zip(*choices, strict=True)]


def _sampled_inputs(inputs: Columns, batch: int, rows: Ints, uncertainty: Uncertainty) -> Columns:
    """Return every point once per sample, with sampled figures, as `with_samples` does.

    inputs: of some rows of a batch. The figure of another chip, such as that of prefill, is sampled with
    that of the chip where both are equal.
    """
    values: dict[str, Floats] = {}
    for distribution in uncertainty.distributions[batch]:
        value = np.broadcast_to(inputs[distribution.key], rows.shape)
        values[distribution.key] = value[:, None] * figure_factors(distribution, rows, uncertainty)
        for other in (prefix + distribution.key for prefix in OTHER_CHIPS):
            if other in inputs and np.array_equal(inputs[other], inputs[distribution.key]):
                values[other] = values[distribution.key]
    return with_samples(inputs, values, rows.size, uncertainty.samples)


def with_samples(inputs: Inputs, values: Mapping[str, Floats], points: int, samples: int) -> Columns:
    """Return every point once per sample, point by point, with sampled figures.

    inputs: (points,) each, (1,) where all are equal; values: of figures, (points, samples) each. A figure
    keeps within its bounds, and shares of a budget sum to at most 1: a larger sum is normalised to 1.
    """
    sampled_columns = {
        key: broadcast_column(column[:1], points * samples)
        if column.size == 1 or is_broadcast(column)
        else np.repeat(column, samples)
        for key, column in inputs.items()
    }
    for key, sampled in values.items():
        column_of_key = find_input(key)
        assert column_of_key is not None
        sampled_columns[key] = sampled.clip(column_of_key.low, column_of_key.high).ravel()
    for budget in (prefix + budget for budget in BUDGETS for prefix in ("", *OTHER_CHIPS)):
        if any(key.startswith(budget) for key in values):
            shares = [key for key in sampled_columns if key.startswith(budget)]
            total = np.maximum(np.sum([sampled_columns[key] for key in shares], axis=0), 1.0)
            sampled_columns |= {key: sampled_columns[key] / total for key in shares}
    return sampled_columns


def _model_share(times: Floats, model: Floats) -> Floats:
    """Return the share of the model's error in the variance of log times, (points,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(times)
        is_known = np.isfinite(logs)
        total = np.where(is_known, logs, 0.0)
        model_logs = np.where(is_known, np.log(model), 0.0)
        num_known = is_known.sum(axis=1, keepdims=True)
        deviation = np.where(is_known, model_logs - model_logs.sum(axis=1, keepdims=True) / num_known, 0.0)
        centred = np.where(is_known, total - total.sum(axis=1, keepdims=True) / num_known, 0.0)
        figures = centred - deviation
        squares = (deviation**2).sum(axis=1)
        share_of_variance = squares / (squares + (figures**2).sum(axis=1))
    result: Floats = np.where(
        np.isfinite(share_of_variance), share_of_variance, np.where(num_known[:, 0] > 0, 0.0, np.nan)
    )
    return result
