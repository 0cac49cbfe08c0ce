"""`python -m fastflow.calibrate`: prints the fit and writes the chip file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.analysis.calibration.chip_output import check_chip_output, default_output
from fastflow.analysis.calibration.study import fit_and_write
from fastflow.analysis.calibration.task import CalibrationTask, plan_calibration
from fastflow.config.composer import Composer


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Calibrate what Hydra composed, into a file rather than the folder; raises InputError."""
    calibrate_chip(composer, *plan_calibration(composer, overrides, None))


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    return partial(calibrate_chip, composer, *plan_calibration(composer, arguments.overrides, None))


def calibrate_chip(composer: Composer, task: CalibrationTask, output: str | None) -> None:
    """Calibrate as planned: print the fit, and write the chip file; raises InputError."""
    from fastflow.reporting.terminal import calibration
    from fastflow.reporting.terminal.progress import Progress

    if output is None:
        output = default_output(task.chip)
        check_chip_output(composer, task.planned[0].run, output)
    with Progress() as progress:
        fitted, _ = fit_and_write(composer, task, output, progress)
    calibration.show(fitted)
    print(f"Chip: {output}")
    sys.stdout.flush()
