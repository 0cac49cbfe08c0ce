"""The physical scalars of a chip that measurements calibrate, and the predictions that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.calibration.robust_fit import Bounds
from fastflow.analysis.measurements.kind import Measurements
from fastflow.analysis.measurements.plan import PlannedFile
from fastflow.analysis.measurements.predict import device_times
from fastflow.config.messages import one_of, suggestion
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Floats, Ints

LAUNCH, CALL, STEP = "launch_overhead", "call_overhead", "step_latency"
SHARES = (
    "utilization", "vector_utilization", "dram_utilization", "memory.l2.utilization", "memory.l1.utilization",
)  # fmt: skip
TIMES, POWER = (LAUNCH, CALL, STEP), "matrix_power"
SCALARS = (*SHARES, *TIMES, POWER)
"""Calibrated scalars, as keys of the `chip` section."""
MAX_SCALARS = 6
"""Scalars that are fitted at once, at most."""
_SHARE = (0.05, 1.0)  # a kernel library reaches more than a twentieth of a peak, and never more than all
_TIME = (1e-8, 1e-3)  # [s]; no launch takes a millisecond, and 10 ns are too short to measure
_POWER = (0.25, 4.0)  # of matrix units over that of vector lanes


class FilePoints(NamedTuple):
    """Rows of one file that share a call of the model."""

    rows: Ints  # indices into the requested rows
    inputs: Columns
    measurements: Measurements  # the file of these rows
    file_rows: Ints  # rows of that file


def points_of(planned: Sequence[PlannedFile], rows: Ints) -> list[FilePoints]:
    """Return the model's inputs of some rows; rows: numbers over all files, ascending. Raises InputError."""
    points = []
    for number, indices in _rows_by_file(planned, rows):
        measurements, run = planned[number]
        first = sum(file.measurements.rows for file in planned[:number])
        for batch in measurements.batches(indices):
            for file_rows, inputs in measurements.points(run.grid, rows[batch] - first):
                index = np.searchsorted(rows, file_rows + first)
                points.append(FilePoints(index, inputs, measurements, file_rows))
    return points


def _rows_by_file(planned: Sequence[PlannedFile], rows: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the number of each file, and the indices of its rows."""
    ends = np.cumsum([file.measurements.rows for file in planned])
    file_of_row = np.searchsorted(ends, rows, side="right")
    for number in np.unique(file_of_row).tolist():
        yield number, np.flatnonzero(file_of_row == number)


def times(points: Sequence[FilePoints], values: Mapping[str, float], rows: int) -> Floats:
    """Return predicted times of rows for some values of the scalars [s], shape (rows,); NaN for no time."""
    predicted = np.full(rows, np.nan)
    for batch in points:
        inputs = batch.inputs | {
            f"chip.{name}": np.full(batch.rows.size, value) for name, value in values.items()
        }
        predicted[batch.rows] = batch.measurements.add_host_time(
            batch.file_rows, inputs, device_times(inputs)
        )
    return predicted


def library_values(planned: Sequence[PlannedFile], names: Sequence[str]) -> Floats:
    """Return the library's values of some scalars of the chip, in SI units, shape (names,)."""
    inputs = planned[0].run.grid.first_inputs()
    return np.array([float(inputs[f"chip.{name}"][0]) for name in names])


def bounds_of(names: Sequence[str]) -> Bounds:
    """Return the physical bounds of some scalars."""
    is_share, is_time = (np.array([name in group for name in names]) for group in (SHARES, TIMES))
    low, high = (
        np.select([is_share, is_time], [share, of_time], power)
        for share, of_time, power in zip(_SHARE, _TIME, _POWER, strict=True)
    )
    return Bounds(low, high, is_share, np.where(is_time, 0.0, low))


def chosen_scalars(
    planned: Sequence[PlannedFile], points: Sequence[FilePoints], fit: str | list[Any] | None, origin: str
) -> list[str]:
    """Return the scalars to fit, in order: those in `fit`, or the observable ones.

    Raises InputError.
    """
    inputs = planned[0].run.grid.first_inputs()
    available = [name for name in SCALARS if f"chip.{name}" in inputs]
    if fit is None:
        observable = _observable_scalars(points)
        return [name for name in available if name in observable][:MAX_SCALARS]
    named = [part.strip() for part in fit.split(",")] if isinstance(fit, str) else fit
    if not named:
        raise InputError("fit", fit, f"null, or one or more of {', '.join(available)}", origin)
    names = [str(name).removeprefix("chip.") for name in named]
    for number, name in enumerate(names):
        if name not in available:
            raise InputError("fit", name, f"{one_of(available)}{suggestion(name, available)}", origin)
        if name in names[:number]:
            raise InputError("fit", name, "each scalar once", origin)
    if len(names) > MAX_SCALARS:
        raise InputError("fit", ", ".join(names), f"at most {MAX_SCALARS} scalars", origin)
    return [name for name in available if name in names]


def _observable_scalars(points: Sequence[FilePoints]) -> set[str]:
    """Return the scalars on which some row may depend, by its data type and its kind of timing.

    Power is left out: in few files it differs from a utilisation.
    """
    scalars = {"dram_utilization", "memory.l2.utilization", "memory.l1.utilization"}
    num_calls, num_rows = 0, 0
    for batch in points:
        units = batch.measurements.shares_of_units(batch.inputs)
        scalars |= units
        if "utilization" in units and batch.inputs[f"chip.{STEP}"].any():
            scalars.add(STEP)
        num_calls += int(batch.measurements.includes_call(batch.file_rows).sum())
        num_rows += batch.rows.size
    # of a call with one kernel only their sum shows
    scalars.add(CALL if 2 * num_calls > num_rows else LAUNCH)
    return scalars
