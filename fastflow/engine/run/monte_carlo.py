"""Points evaluated again and again with figures that differ as they may: bands, and chances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, broadcast_column, is_broadcast
from fastflow.core.uncertainty.percentiles import percentiles
from fastflow.core.uncertainty.sampling import Uncertainty, figure_factors, model_factors
from fastflow.engine.grid.grid import Grid, Share
from fastflow.engine.run.predict import Predicted, predict_range, results_of
from fastflow.performance.accuracy.classes import typical_errors
from fastflow.performance.serving import serves
from fastflow.performance.serving.slo import COMPARED, LIMITS, is_slo_violation
from fastflow.physics.workload import OTHERS, family_of
from fastflow.schema import BANDED, OF_PREFILL, band_of, find_input

_ROWS = 8192  # evaluated at once, about
_DESIGN = ("tech", "mem", "net", "chip", "system")
"""The choices that a design's own part of the model's error is of."""
_OWN_ERROR = {"ttft_s": "first_token"}
"""Results whose times err as another kind of work than their points."""
_TIME, _FEASIBLE = "time_s", "feasible"
BUDGETS = ("chip.area.", "chip.power.", "chip.perimeter.")
"""Inputs that are shares of one whole each."""


def band_columns(grid: Grid, one: Predicted, columns: Columns) -> Columns:
    """Return the bands of points that shared a call of the model, each (points,).

    columns: their results, which say what has bands. The same to the bit whichever points are evaluated with
    them, since every draw has its own seed.
    """
    names = [name for name in BANDED if name in columns]
    points = one.place.size
    bands = {name: np.full((3, points), np.nan) for name in names}
    shares, failed = np.full(points, np.nan), np.zeros(points, dtype=np.int64)
    samples = _samples(grid)
    size = max(1, _ROWS // samples)
    for first in range(0, points, size):
        some = np.arange(first, min(first + size, points))
        found = _sampled(grid, one, some)
        for name in names:
            if name in found:
                bands[name][:, some] = percentiles(found[name])
        failed[some] = samples - found[_FEASIBLE].sum(axis=1)
        shares[some] = _model_share(found[_TIME], found["model"])
    return {
        **{band: bands[name][nth] for name in names for nth, band in enumerate(band_of(name))},
        "model_share": shares,
        "samples_failed": failed,
    }


def samples_of(grid: Grid, points: Sequence[int], names: Sequence[str]) -> list[dict[str, Floats]]:
    """Return samples of results of some points of a grid, (samples,) each; names: of result columns."""
    found = []
    for point in points:
        (one,) = predict_range(grid, point, point + 1)
        sampled = _sampled(grid, one, np.zeros(1, dtype=np.int64))
        nothing = np.full((1, _samples(grid)), np.nan)
        found.append({name: sampled.get(name, nothing)[0] for name in names})
    return found


def samples_by(
    grid: Grid, settled: Columns, share: Share, measure: Callable[[Columns], Floats], power: int
) -> Floats:
    """Return samples of what a function makes of inputs, (points, samples).

    settled: inputs of points, under a strategy; share: which points of the grid they are of. measure: input
    columns to values, of which as many as `power` says are times.
    """
    assert grid.uncertainty is not None
    inputs = _drawn(settled, *_rows(grid, share), grid.uncertainty)
    work = _work(settled)
    errors = _errors(work, settled, grid, share)
    model = model_factors(work, _designs(grid, share), errors, grid.uncertainty)
    found: Floats = measure(inputs).reshape(model.shape) * model**power
    return found


def _samples(grid: Grid) -> int:
    assert grid.uncertainty is not None
    return grid.uncertainty.samples


def _sampled(grid: Grid, one: Predicted, some: Ints) -> dict[str, Floats]:
    """Return samples of the results that have bands, (points, samples), of some points of a call.

    Beside them whether a sample is feasible, and "model": by what the model's own error multiplies times.
    """
    assert grid.uncertainty is not None
    assert one.share is not None
    share = one.share._replace(points=one.share.points[some])
    settled = {
        key: column[:1] if is_broadcast(column) else column[some] for key, column in one.settled.items()
    }
    results = results_of(_drawn(settled, *_rows(grid, share), grid.uncertainty))
    designs = _designs(grid, share)
    every = {
        work: model_factors(work, designs, _errors(work, settled, grid, share), grid.uncertainty)
        for work in (_work(settled), *_OWN_ERROR.values())
    }
    model = every[_work(settled)]
    own = {name: every[work] for name, work in _OWN_ERROR.items()}
    found: dict[str, Floats] = {"model": model}
    for name in (*BANDED, _FEASIBLE):
        if name in results:
            values = np.ma.filled(np.ma.asarray(results[name], dtype=np.float64), np.nan)
            found[name] = values.reshape(model.shape) * own.get(name, model) ** BANDED.get(name, 0)
    if serves(settled):
        found[_FEASIBLE] = _within_limits(results, settled, {"ttft": own["ttft_s"], "tpot": model})
    return found


def _within_limits(results: Columns, settled: Columns, errors: Mapping[str, Floats]) -> Floats:
    """Return 1 for samples that are feasible, 0 for others, (points, samples).

    errors: by what the model's own error multiplies times that may have limits.
    """
    late = np.array([is_slo_violation(reason) for reason in results["reason"].tolist()])
    feasible: Bools = (np.asarray(results[_FEASIBLE]) | late).reshape(errors["ttft"].shape)
    for name, error in errors.items():
        most = np.broadcast_to(settled[LIMITS[name]], error.shape[:1])[:, None]
        feasible &= ~((most > 0.0) & (results[COMPARED[name]].reshape(error.shape) * error > most))
    return feasible.astype(np.float64)


def _rows(grid: Grid, share: Share) -> tuple[int, Ints]:
    """Return the batch of some points, and their rows in it."""
    return share.batch, grid.row[share.block.combinations(share.points)]


def _work(inputs: Columns) -> str:
    """Return the kind of work of points that share a call."""
    return "serving" if serves(inputs) else family_of(inputs).work


def _errors(work: str, inputs: Columns, grid: Grid, share: Share) -> Floats:
    """Return the model's own error in the times of some points: as said, or of their class; (points,).

    That of other work where they are in no class.
    """
    assert grid.uncertainty is not None
    said = grid.uncertainty.model[work].error
    if said is not None:
        return np.full(share.points.size, said)
    other = grid.uncertainty.model[OTHERS].error
    assert other is not None
    found = typical_errors(inputs, grid.is_stock(share), work == _OWN_ERROR["ttft_s"])
    return np.where(np.isnan(found), other, found)


def _designs(grid: Grid, share: Share) -> list[str]:
    """Name the design of each point."""
    combinations = share.block.combinations(share.points)
    choices = [grid.labels[group][combinations].tolist() for group in _DESIGN if group in grid.labels]
    return [" ".join(map(str, names)) for names in zip(*choices, strict=True)]


def _drawn(inputs: Columns, batch: int, rows: Ints, uncertainty: Uncertainty) -> Columns:
    """Return points as often as there are samples, with figures as they are drawn; as `varied`.

    inputs: of some rows of a batch. The figure of devices that prefill alone goes with that of the others
    where it is the same.
    """
    values: dict[str, Floats] = {}
    for spread in uncertainty.spreads[batch]:
        value = np.broadcast_to(inputs[spread.key], rows.shape)
        values[spread.key] = value[:, None] * figure_factors(spread, rows, uncertainty)
        prefill = OF_PREFILL + spread.key
        if prefill in inputs and np.array_equal(inputs[prefill], inputs[spread.key]):
            values[prefill] = values[spread.key]
    return varied(inputs, values, rows.size, uncertainty.samples)


def varied(inputs: Inputs, values: Mapping[str, Floats], points: int, samples: int) -> Columns:
    """Return every point as often as there are samples, one point after the other, with other figures.

    inputs: (points,) each, (1,) where all are alike; values: of figures, (points, samples) each. A figure
    stays within its bounds, and shares of one budget within the whole: where they would sum to more, all of
    them shrink alike.
    """
    many = {
        key: broadcast_column(column[:1], points * samples)
        if column.size == 1 or is_broadcast(column)
        else np.repeat(column, samples)
        for key, column in inputs.items()
    }
    for key, each in values.items():
        known = find_input(key)
        assert known is not None
        many[key] = each.clip(known.low, known.high).ravel()
    for budget in (of + budget for budget in BUDGETS for of in ("", OF_PREFILL)):
        if any(key.startswith(budget) for key in values):
            shares = [key for key in many if key.startswith(budget)]
            over = np.maximum(np.sum([many[key] for key in shares], axis=0), 1.0)
            many |= {key: many[key] / over for key in shares}
    return many


def _model_share(times: Floats, model: Floats) -> Floats:
    """Return the share of the variance of log times that is the model's own error, (points,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(times)
        known = np.isfinite(logs)
        whole = np.where(known, logs, 0.0)
        own = np.where(known, np.log(model), 0.0)
        number = known.sum(axis=1, keepdims=True)
        deviation = np.where(known, own - own.sum(axis=1, keepdims=True) / number, 0.0)
        of_all = np.where(known, whole - whole.sum(axis=1, keepdims=True) / number, 0.0)
        figures = of_all - deviation
        squares = (deviation**2).sum(axis=1)
        shares = squares / (squares + (figures**2).sum(axis=1))
    found: Floats = np.where(np.isfinite(shares), shares, np.where(number[:, 0] > 0, 0.0, np.nan))
    return found
