"""A chip with fitted scalars: their values, its errors, and the text of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastflow.analysis.calibration import robust_fit
from fastflow.analysis.calibration.base_choice import extended
from fastflow.analysis.calibration.output_file import content_of, text_of
from fastflow.analysis.calibration.parameters import TIMES, bounds_of, library_values, points_of, times
from fastflow.analysis.calibration.robust_fit import NOT_DETERMINED, Fit
from fastflow.analysis.calibration.task import CalibrationTask
from fastflow.config.model_inputs import convert
from fastflow.core.errors import CompositionError
from fastflow.core.tables import Floats


class FittedChip(NamedTuple):
    """Fitted scalars of a chip, and the predictions with them."""

    task: CalibrationTask
    before: Floats  # of every scalar, in SI units
    fit: Fit  # its figures as written in the chip file
    written: dict[str, str | float]  # fitted scalar to its value in the chip file
    after: Floats  # predicted [s]


def fit_chip(task: CalibrationTask, advance: Callable[[int], None] = lambda done: None) -> FittedChip:
    """Fit the scalars, and predict all rows with their written values; raises InputError.

    advance: called after every prediction.
    """
    names, before = task.names, library_values(task.planned, task.names)
    points = points_of(task.planned, task.fitted)

    def model(values: Floats) -> Floats:
        predicted = times(points, dict(zip(names, values.tolist(), strict=True)), task.fitted.size)
        advance(1)
        return predicted

    fitted = robust_fit.fit(model, task.measured[task.fitted], before, bounds_of(names))
    # four digits are more than any file determines; the written and the used values are the same to the bit
    rounded = {
        name: _written(name, value)
        for name, value, state in zip(names, fitted.figures.tolist(), fitted.states, strict=True)
        if state != NOT_DETERMINED
    }
    if not rounded:
        raise CompositionError(f"{', '.join(task.paths)}: these rows determine none of {', '.join(names)}")
    values = {name: float(convert(f"chip.{name}", text)) for name, text in rounded.items()}
    known = np.flatnonzero(task.known)
    after = np.full(task.before.size, np.nan)
    after[known] = times(task.points, values, known.size)
    exact = np.array([values.get(name, value) for name, value in zip(names, before.tolist(), strict=True)])
    return FittedChip(
        task=task, before=before, fit=fitted._replace(figures=exact), written=rounded, after=after
    )


def _written(name: str, value: float) -> str | float:
    return f"{value * 1e6:.4g} us" if name in TIMES else float(f"{value:.4g}")


def scalar_frame(fitted: FittedChip) -> pd.DataFrame:
    """Return the fit of every scalar, a row each."""
    fit, names = fitted.fit, fitted.task.names
    return pd.DataFrame(
        {
            "scalar": names,
            "before": fitted.before,
            "after": fit.figures,
            "standard_error": fit.standard_errors,
            "unit": ["s" if name in TIMES else "" for name in names],
            "state": fit.states,
        }
    )


def error_frame(fitted: FittedChip) -> pd.DataFrame:
    """Return the mean relative errors before and after, of fitted rows (drawn or not) and held-out rows."""
    task = fitted.task
    rows = []
    for name, subset in (("fitted", task.known & ~task.held_out), ("held back", task.held_out)):
        measured = task.measured[subset]
        before, after = (
            float((np.abs(predicted[subset] - measured) / measured).mean())
            for predicted in (task.before, fitted.after)
        )
        rows.append((name, int(subset.sum()), before, after))
    return pd.DataFrame(rows, columns=["rows_of", "rows", "before", "after"])


def calibrated_chip_text(fitted: FittedChip) -> str:
    """Return the text of the chip file: values that differ from the chip, with their sources."""
    task = fitted.task
    files = ", ".join(Path(path).name for path in task.paths)
    errors = error_frame(fitted).set_index("rows_of")
    rows = int(errors["rows"].sum())
    before, after = errors.loc["held back", ["before", "after"]]
    source = (
        f"calibrated: {files}, {rows} rows, mean relative error {after:.1%} on a held-back fifth "
        f"({before:.1%} before)"
    )
    content = content_of(task.chip_overrides, fitted.written, source)
    return text_of("chip", task.chip, task.base, extended(task.base, content))
