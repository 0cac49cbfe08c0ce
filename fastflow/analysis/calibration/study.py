"""A chip fitted to files of measurements, and written into a chip file."""

from __future__ import annotations

from fastflow.analysis.calibration.fitted_chip import FittedChip, calibrated_chip_text, fit_chip
from fastflow.analysis.calibration.output_file import output_file
from fastflow.analysis.calibration.task import CalibrationTask
from fastflow.config.composer import Composer
from fastflow.config.messages import pluralize
from fastflow.engine.grid.run import naming_errors
from fastflow.engine.run.progress import SILENT, Listener


def fit_and_write(
    composer: Composer, task: CalibrationTask, where: str | None, listener: Listener = SILENT
) -> tuple[FittedChip, str]:
    """Fit, and write the chip file, if a path is given; returns its text, too. Raises InputError.

    listener: gets every prediction of all rows; their number is not known before.
    """
    with output_file(where) as write:
        with naming_errors(composer, task.planned[0].run):
            scalars, rows = pluralize(len(task.names), "scalar"), pluralize(task.fitted.size, "row")
            listener.start(f"fitting {scalars} of {task.chip} to {rows}", 0, "predictions")
            fitted = fit_chip(task, listener.advance)
        text = calibrated_chip_text(fitted)
        write(text)
    return fitted, text
