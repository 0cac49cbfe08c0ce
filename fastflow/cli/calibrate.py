"""`python -m fastflow.calibrate`: prints the fit and writes the chip file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.configuration.composer import Composer
from fastflow.errors import CompositionError
from fastflow.measured.calibration import fit_and_write
from fastflow.measured.calibration_task import CalibrationTask, plan_calibration
from fastflow.measured.chip_output import check_chip_output, default_output


def run_calibration(composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None) -> None:
    """Calibrate what a command line asks for; raises InputError."""
    if spans is not None:
        raise CompositionError("a calibration takes one configuration, without -m")
    calibrate_chip(composer, *plan_calibration(composer, overrides, None))


def calibrate_chip(composer: Composer, task: CalibrationTask, where: str | None) -> None:
    """Calibrate as planned: what is found is printed, and the chip file written; raises InputError."""
    from fastflow.show import calibration
    from fastflow.show.progress import Progress

    if where is None:
        where = default_output(task.chip)
        check_chip_output(composer, task.planned[0].run, where)
    with Progress() as progress:
        fitted, _ = fit_and_write(composer, task, where, progress)
    calibration.show(fitted)
    print(f"Chip: {where}")
    sys.stdout.flush()
