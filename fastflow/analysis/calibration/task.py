"""The task of a calibration: overrides to scalars, fitted rows and held-out rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.calibration.base_choice import BaseChoice, base_choice
from fastflow.analysis.calibration.output_file import check_output
from fastflow.analysis.calibration.parameters import FilePoints, chosen_scalars, points_of
from fastflow.analysis.calibration.robust_fit import draw_held_out
from fastflow.analysis.measurements.csv_file import listed
from fastflow.analysis.measurements.kind import each_once
from fastflow.analysis.measurements.plan import PlannedFile, plan_file, section_of
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import related
from fastflow.config.model_inputs import is_documentation
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.grid.run import naming_errors

HELD_OUT_SHARE = 0.2  # of the rows
SEED = 0
ROWS_OF_A_SCALAR = 5  # to fit, at least
MAX_ROWS = 3000  # to fit, at most: enough for so few scalars
LISTS = ("fit", "measurements", "requests")
"""Keys whose commas are of a list."""
_SERVERS = "; or requests=RESULT.json, for a server"


class CalibrationTask(NamedTuple):
    """Scalars to fit and measured rows. Arrays are of shape (rows,), of all files."""

    planned: list[PlannedFile]  # the same chip, a file each
    chip: str  # the choice
    base: BaseChoice  # of the chip file
    chip_overrides: dict[str, Any]  # other keys of the chip that the overrides set, as written
    names: list[str]  # the scalars to fit
    measured: Floats  # [s]
    before: Floats  # predicted with the library's chip [s]; NaN without a time
    held_out: Bools  # rows that are not fitted
    fitted: Ints  # numbers of the fitted rows
    points: list[FilePoints]  # of the rows that can be predicted

    @property
    def paths(self) -> list[str]:
        """The files."""
        return [file.measurements.file.path for file in self.planned]

    @property
    def known(self) -> Bools:
        """Which rows can be predicted."""
        return ~np.isnan(self.before)


def plan_calibration(
    composer: Composer, overrides: Sequence[str], output: str | None
) -> tuple[CalibrationTask, str | None]:
    """Read the files, and plan their rows; returns the task, and the output file if there is any.

    Raises InputError.
    """
    parsed = composer.parse(overrides)
    origin = composer.origin_of_overrides
    task_overrides = [
        text for text, override in zip(overrides, parsed, strict=True) if override.key_or_group in LISTS
    ]
    others = [
        text for text, override in zip(overrides, parsed, strict=True) if override.key_or_group not in LISTS
    ]
    leaves = composer.compose(task_overrides).leaves
    paths = paths_of(leaves, "measurements", f"one or more CSV files{_SERVERS}", origin)
    planned = [plan_file(composer, (*others, f"measurements={quoted(path)}")) for path in paths]
    run = planned[0].run
    is_named = run.first.leaves.get("output") is not None
    where = output if output is not None else run.output if is_named else None
    if where is not None:
        check_output(composer, run, where, "chip")
    _check_files(planned, origin)
    keys = [override.key_or_group for override in parsed if override.key_or_group.startswith("chip.")]
    for override in parsed:
        if override.key_or_group in keys and override.is_delete():
            allowed = "a value, since a chip file cannot remove a key"
            raise InputError(f"~{override.key_or_group}", "removed", allowed, origin)
    chip_overrides = {
        key.removeprefix("chip."): value
        for key, value in run.first.leaves.items()
        if any(related(key, name) for name in keys) and not is_documentation(key)
    }
    before = np.concatenate([_library_times(composer, file) for file in planned])
    points = points_of(planned, np.flatnonzero(~np.isnan(before)))
    names = _scalars(planned, points, section_of(leaves, "fit"), origin)
    held_out, fitted = _split_rows(planned, before, len(names), origin)
    measured = np.concatenate([file.measurements.measured for file in planned])
    chip = run.first.choices["chip"]
    return CalibrationTask(
        planned=planned,
        chip=chip,
        base=base_choice("chip", chip),
        chip_overrides=chip_overrides,
        names=names,
        measured=measured,
        before=before,
        held_out=held_out,
        fitted=fitted,
        points=points,
    ), where


def paths_of(leaves: Mapping[str, Any], key: str, allowed: str, origin: str) -> list[str]:
    """Return the files that a key of a configuration names; allowed: in words. Raises InputError."""
    written = section_of(leaves, key)
    paths = written if isinstance(written, list) else [written]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise InputError(key, "null" if written is None else written, allowed, origin)
    if len(set(paths)) < len(paths):
        raise InputError(key, ", ".join(paths), "each file once", origin)
    return paths


def quoted(path: str) -> str:
    """Quote a text for the override grammar."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", path)
    return f"'{escaped}'"


def _check_files(planned: Sequence[PlannedFile], origin: str) -> None:
    """Refuse files from which no chip can be calibrated; raises InputError."""
    digests = [file.measurements.file.digest for file in planned]
    for number, (measurements, run) in enumerate(planned):
        if digests[number] in digests[:number]:
            raise InputError("measurements", measurements.file.path, "each file once", origin)
        measurements.check_fit(origin)
        path, chips = measurements.file.path, each_once(run.grid.labels["chip"])
        if len(chips) > 1:
            allowed = f"a file of one chip; this one has {', '.join(chips)}"
            raise InputError("measurements", path, allowed, origin)
        if len(measurements.devices) > 1:
            allowed = f"one of the devices in {path}: {listed(measurements.devices)}"
            raise InputError("device", "null", allowed, origin)


def _library_times(composer: Composer, planned: PlannedFile) -> Floats:
    """Predict the rows of a file with the library's chip [s], NaN without a time; raises InputError."""
    measurements, run = planned
    with naming_errors(composer, run):
        parts = list(measurements.predict_all(run.grid))
    times = np.full(measurements.rows, np.nan)
    for part in parts:
        times[part.rows] = part.columns["time_s"]
    if np.isnan(times).all():
        raise CompositionError(f"no row can be predicted; the first one: {parts[0].columns['reason'][0]}")
    return times


def _scalars(
    planned: Sequence[PlannedFile], points: Sequence[FilePoints], fit: Any, origin: str
) -> list[str]:
    """Return the scalars to fit; points: of the rows that can be predicted. Raises InputError."""
    if not isinstance(fit, str | list | None):
        raise InputError("fit", fit, "null, or names of scalars", origin)
    return chosen_scalars(planned, points, fit, origin)


def _split_rows(
    planned: Sequence[PlannedFile], before: Floats, scalars: int, origin: str
) -> tuple[Bools, Ints]:
    """Split rows into held-out and fitted ones; raises InputError where there are too few."""
    known = np.flatnonzero(~np.isnan(before))
    shapes = [shape for file in planned for shape in file.measurements.shapes()]
    groups = np.unique(shapes, return_inverse=True)[1].astype(np.int64)
    held_out = np.zeros(before.size, dtype=np.bool_)
    held_out[known] = draw_held_out(groups[known], HELD_OUT_SHARE, SEED)
    fitted = known[~held_out[known]]
    least = ROWS_OF_A_SCALAR * scalars
    if fitted.size < least or not held_out.any():
        paths = ", ".join(file.measurements.file.path for file in planned)
        have = f"{fitted.size:,} to fit and {int(held_out.sum()):,} to hold back"
        allowed = (
            f"at least {least} rows to fit {scalars} scalars, and some rows to hold back; there are {have}"
        )
        raise InputError("measurements", paths, allowed, origin)
    if fitted.size > MAX_ROWS:
        fitted = np.sort(np.random.default_rng(SEED).choice(fitted, MAX_ROWS, replace=False))
    return held_out, fitted
