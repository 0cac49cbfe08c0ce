"""What is to be calibrated: from the overrides to the rows that are fitted, and those that are held back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.calibration.chip_output import check_chip_output
from fastflow.analysis.calibration.parameters import FilePoints, chosen_scalars, points_of
from fastflow.analysis.calibration.robust_fit import held_back
from fastflow.analysis.measurements.csv_file import listed
from fastflow.analysis.measurements.kind import each_once
from fastflow.analysis.measurements.plan import PlannedFile, plan_file, said_of
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import related
from fastflow.config.model_inputs import is_documentation
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.engine.grid.run import explaining

HELD_BACK = 0.2  # of the rows
SEED = 0
ROWS_OF_A_SCALAR = 5  # to fit, at least
MOST_ROWS = 3000  # to fit, at most: they say all that some scalars can be
LISTS = ("fit", "measurements")


class CalibrationTask(NamedTuple):
    """What is to be calibrated, from what. Arrays are of shape (rows,), of all files."""

    planned: list[PlannedFile]  # the same chip, a file each
    chip: str  # the choice
    own: dict[str, Any]  # other keys of the chip that the overrides set, as written
    names: list[str]  # the scalars to fit
    measured: Floats  # [s]
    before: Floats  # predicted with the chip's own figures [s]; NaN where nothing is
    held: Bools  # rows that are not fitted
    fitted: Ints  # rows that are
    points: list[FilePoints]  # of the rows that can be predicted

    @property
    def paths(self) -> list[str]:
        """The files."""
        return [one.measurements.file.path for one in self.planned]

    @property
    def known(self) -> Bools:
        """Which rows can be predicted."""
        return ~np.isnan(self.before)


def plan_calibration(
    composer: Composer, overrides: Sequence[str], output: str | None
) -> tuple[CalibrationTask, str | None]:
    """Read the files, and plan their rows; returns what is to be done, and the file to write if one is named.

    Raises InputError.
    """
    parsed = composer.parse(overrides)
    origin = composer.origin_of_overrides
    mine = [text for text, one in zip(overrides, parsed, strict=True) if one.key_or_group in LISTS]
    others = [text for text, one in zip(overrides, parsed, strict=True) if one.key_or_group not in LISTS]
    leaves = composer.compose(mine).leaves
    paths = _paths(said_of(leaves, "measurements"), origin)
    planned = [plan_file(composer, (*others, f"measurements={_quoted(path)}")) for path in paths]
    run = planned[0].run
    named = run.first.leaves.get("output") is not None
    where = output if output is not None else run.output if named else None
    if where is not None:
        check_chip_output(composer, run, where)
    _check_files(planned, origin)
    keys = [one.key_or_group for one in parsed if one.key_or_group.startswith("chip.")]
    for one in parsed:
        if one.key_or_group in keys and one.is_delete():
            allowed = "a value, since a chip file cannot remove a key"
            raise InputError(f"~{one.key_or_group}", "removed", allowed, origin)
    own = {
        key.removeprefix("chip."): value
        for key, value in run.first.leaves.items()
        if any(related(key, name) for name in keys) and not is_documentation(key)
    }
    before = np.concatenate([_predicted(composer, one) for one in planned])
    points = points_of(planned, np.flatnonzero(~np.isnan(before)))
    names = _names(planned, points, said_of(leaves, "fit"), origin)
    held, fitted = _drawn(planned, before, len(names), origin)
    measured = np.concatenate([one.measurements.measured for one in planned])
    chip = run.first.choices["chip"]
    return CalibrationTask(
        planned=planned,
        chip=chip,
        own=own,
        names=names,
        measured=measured,
        before=before,
        held=held,
        fitted=fitted,
        points=points,
    ), where


def _paths(written: Any, origin: str) -> list[str]:
    """Return the files that a configuration names; raises InputError."""
    paths = written if isinstance(written, list) else [written]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        shown = "null" if written is None else written
        raise InputError("measurements", shown, "one or more CSV files", origin)
    if len(set(paths)) < len(paths):
        raise InputError("measurements", ", ".join(paths), "each file once", origin)
    return paths


def _quoted(path: str) -> str:
    """Write a text as a quoted one of the grammar."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", path)
    return f"'{escaped}'"


def _check_files(planned: Sequence[PlannedFile], origin: str) -> None:
    """Refuse files from which no chip can be calibrated; raises InputError."""
    digests = [one.measurements.file.digest for one in planned]
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


def _predicted(composer: Composer, planned: PlannedFile) -> Floats:
    """Predict the rows of a file as the chip is [s], NaN where nothing is; raises InputError."""
    measurements, run = planned
    with explaining(composer, run):
        parts = list(measurements.predict_all(run.grid))
    times = np.full(measurements.rows, np.nan)
    for part in parts:
        times[part.rows] = part.columns["time_s"]
    if np.isnan(times).all():
        raise CompositionError(f"no row can be predicted; the first one: {parts[0].columns['reason'][0]}")
    return times


def _names(planned: Sequence[PlannedFile], points: Sequence[FilePoints], fit: Any, origin: str) -> list[str]:
    """Return the scalars to fit; points: of the rows that can be predicted. Raises InputError."""
    if not isinstance(fit, str | list | None):
        raise InputError("fit", fit, "null, or names of scalars", origin)
    return chosen_scalars(planned, points, fit, origin)


def _drawn(planned: Sequence[PlannedFile], before: Floats, scalars: int, origin: str) -> tuple[Bools, Ints]:
    """Draw the rows to hold back, and to fit; raises InputError where there are too few."""
    known = np.flatnonzero(~np.isnan(before))
    shapes = [shape for one in planned for shape in one.measurements.shapes()]
    groups = np.unique(shapes, return_inverse=True)[1].astype(np.int64)
    held = np.zeros(before.size, dtype=np.bool_)
    held[known] = held_back(groups[known], HELD_BACK, SEED)
    fitted = known[~held[known]]
    least = ROWS_OF_A_SCALAR * scalars
    if fitted.size < least or not held.any():
        paths = ", ".join(one.measurements.file.path for one in planned)
        have = f"{fitted.size:,} to fit and {int(held.sum()):,} to hold back"
        allowed = (
            f"at least {least} rows to fit {scalars} scalars, and some rows to hold back; there are {have}"
        )
        raise InputError("measurements", paths, allowed, origin)
    if fitted.size > MOST_ROWS:
        fitted = np.sort(np.random.default_rng(SEED).choice(fitted, MOST_ROWS, replace=False))
    return held, fitted
