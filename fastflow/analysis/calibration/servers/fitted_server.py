"""A server with fitted figures of its host: their values, its errors, and the text of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fastflow.analysis.calibration import robust_fit
from fastflow.analysis.calibration.base_choice import extended
from fastflow.analysis.calibration.output_file import content_of, text_of
from fastflow.analysis.calibration.robust_fit import (
    AT_BOUND,
    FITTED,
    NOT_DETERMINED,
    Bounds,
    Fit,
    Settings,
)
from fastflow.analysis.calibration.servers.replay import (
    COLUMNS,
    MEAN,
    P50,
    STATISTICS,
    Times,
    measured,
    replay,
    statistic_of,
)
from fastflow.analysis.calibration.servers.task import SERVER, ServerTask, bounds_of, starts_of
from fastflow.config.messages import pluralize
from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.core.tables import Floats

_FITTED = tuple(key for key in COLUMNS if key[1] in (MEAN, P50))
"""The times that are fitted, a row each of every load; the 99th percentile of few requests is an accident."""


_STEP = 0.2  # of a figure: times are linear in it, but for who shares an iteration with whom
_MAX_VARIANCE = 0.05**2  # of the times of a run: larger differences are the model's
_NEAR_ZERO = 5.0  # over its low bound, where a figure is 0


class FittedServer(NamedTuple):
    """Fitted figures of a server's host, and the replays with the figures before and after."""

    task: ServerTask
    library: Floats  # figures before [s]
    fit: Fit  # its figures as written in the server's file
    written: dict[str, str]  # fitted figure to its value in the file
    measured: Times
    before: Times
    after: Times


def fit_server(task: ServerTask, advance: Callable[[int], None] = lambda done: None) -> FittedServer:
    """Fit the figures, and replay all loads with their written values; raises InputError.

    advance: called after every replay.
    """
    names, loads = task.names, task.loads
    library = np.array([float(task.inputs[f"{SERVER}.{name}"][0]) for name in names])
    in_file, before = measured(loads), _replay_with(task, {})
    advance(1)
    times = _rows(in_file)
    is_known = np.isfinite(times) & np.isfinite(_rows(before))
    if is_known.sum() <= len(names):
        most = f"at most {pluralize(int(is_known.sum()) - 1, 'figure')}"
        allowed = f"{most}, since these loads have {is_known.sum()} times; or more loads"
        raise InputError("fit", ", ".join(names), allowed)

    def model(values: Floats) -> Floats:
        replayed = _replay_with(task, dict(zip(names, values.tolist(), strict=True)))
        advance(1)
        return _rows(replayed)[is_known]

    bounds = bounds_of(names)
    settings = Settings(_STEP, starts_of(names), _MAX_VARIANCE)
    fitted = robust_fit.fit(model, times[is_known], library, bounds, settings)
    fitted = _with_zeros(fitted, bounds)
    # the written and the used values are the same to the bit
    written = {
        name: f"{1e3 * value:.4g} ms"
        for name, value, state in zip(names, fitted.figures.tolist(), fitted.states, strict=True)
        if state != NOT_DETERMINED
    }
    values = {name: float(convert(f"{SERVER}.{name}", text)) for name, text in written.items()}
    after = _replay_with(task, values) if values else before
    exact = np.array([values.get(name, value) for name, value in zip(names, library.tolist(), strict=True)])
    return FittedServer(task, library, fitted._replace(figures=exact), written, in_file, before, after)


def _with_zeros(fitted: Fit, bounds: Bounds) -> Fit:
    """Return a fit whose figures near their low bound, which no time tells from 0, are at it."""
    is_zero = (fitted.figures <= _NEAR_ZERO * bounds.low) & (np.array(fitted.states) == FITTED)
    return Fit(
        np.where(is_zero, bounds.at_low, fitted.figures),
        np.where(is_zero, np.nan, fitted.standard_errors),
        np.where(is_zero, AT_BOUND, fitted.states).tolist(),
    )


def _replay_with(task: ServerTask, values: Mapping[str, float]) -> Times:
    """Replay all loads with some figures of the host [s]."""
    figures = {f"{SERVER}.{name}": np.full(len(task.loads), value) for name, value in values.items()}
    return replay(task.loads, task.inputs | figures)


def _rows(replayed: Times) -> Floats:
    """Return the times that are fitted [s], (rows,)."""
    return np.concatenate([replayed[key] for key in _FITTED])


def figure_frame(fitted: FittedServer) -> pd.DataFrame:
    """Return the fit of every figure, a row each [s]."""
    fit = fitted.fit
    return pd.DataFrame(
        {
            "figure": fitted.task.names,
            "before": fitted.library,
            "after": fit.figures,
            "standard_error": fit.standard_errors,
            "state": fit.states,
        }
    )


def run_frame(fitted: FittedServer) -> pd.DataFrame:
    """Return what was read, a row for each run: requests, how they arrive, lengths and measured times."""
    rows = []
    for load in fitted.task.loads:
        run = load.run
        row: dict[str, Any] = {"run": run.name, "tool": run.tool, "requests": run.isl.size}
        row |= {"failed": run.failed, "arrivals": load.describe()}
        columns: dict[str, Sequence[int] | Floats] = {"isl": run.isl.tolist(), "osl": run.osl.tolist()}
        times = {f"{name}_s": values for name, values in run.times().items()}
        for name, values in (columns | times).items():
            first, unit = (name.removesuffix("_s"), "_s") if name.endswith("_s") else (name, "")
            for statistic in STATISTICS:
                row[f"{first}_{statistic}{unit}"] = statistic_of(values, statistic) if len(values) else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def time_frame(fitted: FittedServer) -> pd.DataFrame:
    """Return measured and predicted times, a row for each statistic of each run [s]."""
    rows = []
    for index, load in enumerate(fitted.task.loads):
        for (name, statistic), times in fitted.measured.items():
            key = (name, statistic)
            if np.isnan(times[index]):
                continue
            before, after = (replayed[key][index] for replayed in (fitted.before, fitted.after))
            rows.append((load.run.name, name, statistic, times[index], before, after))
    return pd.DataFrame(rows, columns=["run", "time", "statistic", "measured_s", "before_s", "after_s"])


def error_frame(fitted: FittedServer) -> pd.DataFrame:
    """Return the mean relative errors over all runs before and after, a row for each statistic of a time."""
    times = time_frame(fitted)
    rows = []
    for (name, statistic), group in times.groupby(["time", "statistic"], sort=False):
        errors = [
            float((np.abs(group[column] - group["measured_s"]) / group["measured_s"]).mean())
            for column in ("before_s", "after_s")
        ]
        rows.append((name, statistic, len(group), *errors))
    return pd.DataFrame(rows, columns=["time", "statistic", "runs", "before", "after"])


def mean_errors(errors: pd.DataFrame) -> list[tuple[str, float, float]]:
    """Return the errors of the means of each time, before and after; errors: of a calibration."""
    means = errors[errors["statistic"] == MEAN]
    columns = (means[name].tolist() for name in ("time", "before", "after"))
    return [(str(name).upper(), before, after) for name, before, after in zip(*columns, strict=True)]


def calibrated_server_text(fitted: FittedServer) -> str:
    """Return the text of the server's file: values that differ from the server, with their sources."""
    task = fitted.task
    runs = [load.run for load in task.loads]
    names = ", ".join(run.name for run in runs)
    errors = ", ".join(
        f"{name} {after:.1%} ({before:.1%} before)"
        for name, before, after in mean_errors(error_frame(fitted))
    )
    source = (
        f"calibrated: {names} of {', '.join(dict.fromkeys(run.tool for run in runs))}, "
        f"{pluralize(sum(run.isl.size for run in runs), 'request')} to {task.where}; "
        f"mean relative error of {errors}"
    )
    content = extended(task.base, content_of(task.overrides, fitted.written, source))
    if "source" in content:  # last, as in the library
        content["source"] = content.pop("source")
    return text_of(SERVER, task.server, task.base, content)
