"""The physical scalars of a chip that measurements calibrate, and the predictions that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastflow.configuration.wording import one_of, suggestion
from fastflow.errors import InputError
from fastflow.grid.grid import Columns
from fastflow.measured.host import with_host
from fastflow.measured.least_squares import Bounds
from fastflow.measured.measurements import EXCHANGES, GEMMS, ITERATIONS, OPERATORS, Measurements
from fastflow.measured.predict import AT_ONCE, ITERATIONS_AT_ONCE, inputs_of
from fastflow.measured.validate import Planned, set_of
from fastflow.tables import Floats, Ints

LAUNCH, CALL = "launch_overhead", "call_overhead"
SHARES = (
    "utilization", "vector_utilization", "dram_utilization", "memory.l2.utilization", "memory.l1.utilization",
)  # fmt: skip
TIMES = (LAUNCH, CALL)
SCALARS = (*SHARES, *TIMES)
"""What is calibrated, as keys of the `chip` section."""
MOST = 6
"""Scalars that are fitted at once, at most."""
_SHARE = (0.05, 1.0)  # a kernel library reaches more than a twentieth of a peak, and never more than all
_TIME = (1e-8, 1e-3)  # [s]; no launch takes a millisecond, and one of 10 ns cannot be told from none


class Points(NamedTuple):
    """Rows that share a call of the model."""

    rows: Ints  # among those that were asked for
    inputs: Columns
    measurements: Measurements  # the file that they are of,
    place: Ints  # and their rows in it


def points_of(planned: Sequence[Planned], rows: Ints) -> list[Points]:
    """Return the model's inputs of some rows; rows: among those of all files, rising.

    Raises InputError as `validation.inputs_of` does.
    """
    found = []
    for own, at in _by_file(planned, rows):
        measurements, grid = planned[own].measurements, planned[own].run.grid
        first = sum(before.measurements.measured.size for before in planned[:own])
        step = ITERATIONS_AT_ONCE if measurements.kind is ITERATIONS else AT_ONCE
        for start in range(0, at.size, step):
            some = at[start : start + step]
            for of, inputs in inputs_of(grid, measurements, rows[some] - first):
                place = np.searchsorted(rows, of + first)
                found.append(Points(place, inputs, measurements, of))
    return found


def _by_file(planned: Sequence[Planned], rows: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the number of a file, and the places of those rows that are its own."""
    ends = np.cumsum([one.measurements.measured.size for one in planned])
    file = np.searchsorted(ends, rows, side="right")
    for number in np.unique(file).tolist():
        yield number, np.flatnonzero(file == number)


def times(points: Sequence[Points], values: Mapping[str, float], rows: int) -> Floats:
    """Return what rows take under some values of the scalars [s], shape (rows,); NaN for no time."""
    from fastflow import crossflow
    from fastflow.optimize.strategies import settle

    found = np.full(rows, np.nan)
    for some in points:
        inputs = some.inputs | {
            f"chip.{name}": np.full(some.rows.size, value) for name, value in values.items()
        }
        prediction = crossflow.predict(settle(inputs))
        of_device = np.full(some.rows.size, np.nan)
        of_device[prediction.timed] = prediction.timeline.total
        found[some.rows] = with_host(some.measurements, some.place, inputs, of_device)
    return found


def own_values(planned: Sequence[Planned], names: Sequence[str]) -> Floats:
    """Return the chip's own figures of some scalars, in SI units, shape (names,)."""
    inputs = planned[0].run.grid.first_inputs()
    return np.array([float(inputs[f"chip.{name}"][0]) for name in names])


def bounds_of(names: Sequence[str]) -> Bounds:
    """Return what physics allows of some scalars."""
    is_time = np.array([name in TIMES for name in names])
    low, high = (np.where(is_time, of_time, share) for of_time, share in zip(_TIME, _SHARE, strict=True))
    return Bounds(low, high, is_time)


def check_files(planned: Sequence[Planned], origin: str) -> None:
    """Refuse files from which no chip can be calibrated; raises InputError."""
    for one in planned:
        measurements, labels = one.measurements, one.run.grid.labels
        if measurements.kind is EXCHANGES:
            allowed = "a file of kernels or iterations; the time of a collective depends on the network only"
            raise InputError("measurements", measurements.path, allowed, origin)
        if len(set_of(labels["chip"])) > 1:
            allowed = f"a file of one chip; this one has {', '.join(set_of(labels['chip']))}"
            raise InputError("measurements", measurements.path, allowed, origin)
        if len(measurements.devices) > 1:
            allowed = f"one of the devices in {measurements.path}: {', '.join(measurements.devices)}"
            raise InputError("device", "null", allowed, origin)
        for row, said in enumerate(measurements.overrides):
            for key in said:
                if key.startswith("chip."):
                    raise measurements.mistake(key, row, "a key outside the chip, since the chip is fitted")


def chosen(planned: Sequence[Planned], points: Sequence[Points], fit: object, origin: str) -> list[str]:
    """Return the scalars to fit, in order: those that `fit` names, or those on which rows may depend.

    Raises InputError.
    """
    inputs = planned[0].run.grid.first_inputs()
    there = [name for name in SCALARS if f"chip.{name}" in inputs]
    if fit is None:
        depend = _depend(planned, points)
        return [name for name in there if name in depend]
    written = [part.strip() for part in fit.split(",")] if isinstance(fit, str) else fit
    if not isinstance(written, list) or not written:
        raise InputError("fit", fit, f"null, or one or more of {', '.join(there)}", origin)
    asked = [str(name).removeprefix("chip.") for name in written]
    for number, name in enumerate(asked):
        if name not in there:
            raise InputError("fit", name, f"{one_of(there)}{suggestion(name, there)}", origin)
        if name in asked[:number]:
            raise InputError("fit", name, "each scalar once", origin)
    if len(asked) > MOST:
        raise InputError("fit", ", ".join(asked), f"at most {MOST} scalars", origin)
    return [name for name in there if name in asked]


def _depend(planned: Sequence[Planned], points: Sequence[Points]) -> set[str]:
    """Return the scalars on which some row may depend, by its data type and by how it was measured."""
    found = {"dram_utilization", "memory.l2.utilization", "memory.l1.utilization"}
    kinds = {one.measurements.kind.name for one in planned}
    multiply = kinds != {OPERATORS.name}
    by_matrix, called, rows = set(), 0, 0
    for some in points:
        for dtype in np.unique(some.inputs["model.dtype"]).tolist():
            by_matrix |= {bool(some.inputs.get(f"chip.matrix.{dtype}", np.zeros(1))[0])}
        called += int((some.measurements.timed[some.place] == "call").sum())
        rows += some.rows.size
    found.add(CALL if 2 * called > rows else LAUNCH)  # a call's one kernel does not tell one from the other
    if multiply and True in by_matrix:
        found.add("utilization")
    if kinds != {GEMMS.name} or False in by_matrix:  # pointwise passes compute on lanes
        found.add("vector_utilization")
    return found
