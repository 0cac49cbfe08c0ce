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
"""What is calibrated, as keys of the `chip` section."""
MOST = 6
"""Scalars that are fitted at once, at most."""
_SHARE = (0.05, 1.0)  # a kernel library reaches more than a twentieth of a peak, and never more than all
_TIME = (1e-8, 1e-3)  # [s]; no launch takes a millisecond, and one of 10 ns cannot be told from none
_POWER = (0.25, 4.0)  # of matrix units over that of vector lanes


class FilePoints(NamedTuple):
    """Rows of one file that share a call of the model."""

    rows: Ints  # among those that were asked for
    inputs: Columns
    measurements: Measurements  # the file that they are of,
    place: Ints  # and their rows in it


def points_of(planned: Sequence[PlannedFile], rows: Ints) -> list[FilePoints]:
    """Return the model's inputs of some rows; rows: among those of all files, rising. Raises InputError."""
    found = []
    for own, at in _by_file(planned, rows):
        measurements, run = planned[own]
        first = sum(before.measurements.rows for before in planned[:own])
        for some in measurements.batches(at):
            for of, inputs in measurements.points(run.grid, rows[some] - first):
                place = np.searchsorted(rows, of + first)
                found.append(FilePoints(place, inputs, measurements, of))
    return found


def _by_file(planned: Sequence[PlannedFile], rows: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the number of a file, and the places of those rows that are its own."""
    ends = np.cumsum([one.measurements.rows for one in planned])
    file = np.searchsorted(ends, rows, side="right")
    for number in np.unique(file).tolist():
        yield number, np.flatnonzero(file == number)


def times(points: Sequence[FilePoints], values: Mapping[str, float], rows: int) -> Floats:
    """Return what rows take under some values of the scalars [s], shape (rows,); NaN for no time."""
    found = np.full(rows, np.nan)
    for some in points:
        inputs = some.inputs | {
            f"chip.{name}": np.full(some.rows.size, value) for name, value in values.items()
        }
        found[some.rows] = some.measurements.with_host(some.place, inputs, device_times(inputs))
    return found


def own_values(planned: Sequence[PlannedFile], names: Sequence[str]) -> Floats:
    """Return the chip's own figures of some keys, in SI units, shape (names,)."""
    inputs = planned[0].run.grid.first_inputs()
    return np.array([float(inputs[f"chip.{name}"][0]) for name in names])


def bounds_of(names: Sequence[str]) -> Bounds:
    """Return what physics allows of some scalars."""
    is_share, is_time = (np.array([name in some for name in names]) for some in (SHARES, TIMES))
    low, high = (
        np.select([is_share, is_time], [share, of_time], power)
        for share, of_time, power in zip(_SHARE, _TIME, _POWER, strict=True)
    )
    return Bounds(low, high, is_share, np.where(is_time, 0.0, low))


def chosen_scalars(
    planned: Sequence[PlannedFile], points: Sequence[FilePoints], fit: str | list[Any] | None, origin: str
) -> list[str]:
    """Return the scalars to fit, in order: those that `fit` names, or those on which rows may depend.

    Raises InputError.
    """
    inputs = planned[0].run.grid.first_inputs()
    there = [name for name in SCALARS if f"chip.{name}" in inputs]
    if fit is None:
        depend = _depend(points)
        return [name for name in there if name in depend][:MOST]
    named = [part.strip() for part in fit.split(",")] if isinstance(fit, str) else fit
    if not named:
        raise InputError("fit", fit, f"null, or one or more of {', '.join(there)}", origin)
    names = [str(name).removeprefix("chip.") for name in named]
    for number, name in enumerate(names):
        if name not in there:
            raise InputError("fit", name, f"{one_of(there)}{suggestion(name, there)}", origin)
        if name in names[:number]:
            raise InputError("fit", name, "each scalar once", origin)
    if len(names) > MOST:
        raise InputError("fit", ", ".join(names), f"at most {MOST} scalars", origin)
    return [name for name in there if name in names]


def _depend(points: Sequence[FilePoints]) -> set[str]:
    """Return the scalars on which some row may depend, by its data type and by how it was measured.

    Power is not among them: few files tell it from a utilisation.
    """
    found = {"dram_utilization", "memory.l2.utilization", "memory.l1.utilization"}
    called, rows = 0, 0
    for some in points:
        units = some.measurements.shares_of_units(some.inputs)
        found |= units
        if "utilization" in units and some.inputs[f"chip.{STEP}"].any():
            found.add(STEP)
        called += int(some.measurements.called(some.place).sum())
        rows += some.rows.size
    found.add(CALL if 2 * called > rows else LAUNCH)  # a call's one kernel does not tell one from the other
    return found
