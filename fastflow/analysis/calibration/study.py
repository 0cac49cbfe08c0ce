"""`fastflow.calibrate`: a chip fitted to files of measurements, and written into a chip file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, NamedTuple

import pandas as pd

from fastflow.analysis.calibration.fitted_chip import (
    FittedChip,
    calibrated_chip_text,
    error_frame,
    fit_chip,
    scalar_frame,
)
from fastflow.analysis.calibration.task import LISTS, CalibrationTask, plan_calibration
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.list_keys import as_lists
from fastflow.config.messages import counted, path_of
from fastflow.engine.dataset.folder import LocalFolder, remove_empty
from fastflow.engine.grid.run import explaining
from fastflow.engine.run.progress import SILENT, Listener


class Calibration(NamedTuple):
    """What measurements say of a chip."""

    scalars: pd.DataFrame
    """A row a scalar: `scalar`, `before`, `after`, `standard_error`, their `unit`, and `state`."""
    errors: pd.DataFrame
    """A row each for the rows that were fitted and those held back: mean relative errors."""
    text: str
    """The chip file, which `chip=FILE.yaml` accepts."""
    path: Path | None
    """Where it was written, if it was."""


def calibrate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    listener: Listener = SILENT,
) -> Calibration:
    """Fit the scalars of a chip to measurements; see `fastflow.calibrate`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="calibrate")
        asked = None if output is None else str(output)
        task, where = plan_calibration(composer, as_lists(overrides, LISTS), asked)
        fitted, text = fit_and_write(composer, task, where, listener)
    path = None if where is None else Path(where)
    return Calibration(scalars=scalar_frame(fitted), errors=error_frame(fitted), text=text, path=path)


def fit_and_write(
    composer: Composer, task: CalibrationTask, where: str | None, listener: Listener = SILENT
) -> tuple[FittedChip, str]:
    """Fit, and write the chip file where one is asked for; returns its text too. Raises InputError.

    listener: hears of every prediction of all rows; nobody knows how many there will be.
    """
    folder = None if where is None else LocalFolder(Path(where).parent, path_of(Path(where).parent))
    made = [] if folder is None else folder.make()  # what cannot be written is not fitted first
    try:
        with explaining(composer, task.planned[0].run):
            scalars, rows = counted(len(task.names), "scalar"), counted(task.fitted.size, "row")
            listener.start(f"fitting {scalars} of {task.chip} to {rows}", 0, "predictions")
            fitted = fit_chip(task, listener.advance)
        text = calibrated_chip_text(fitted)
        if folder is not None and where is not None:

            def into(file: IO[bytes]) -> None:
                file.write(text.encode())

            folder.write(Path(where).name, into)
    except BaseException:
        remove_empty(made)
        raise
    return fitted, text
