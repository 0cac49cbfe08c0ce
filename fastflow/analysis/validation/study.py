"""`fastflow.validate`: predictions beside the rows of a file of measurements, for Python."""

from __future__ import annotations

import os
from typing import NamedTuple

import pandas as pd

from fastflow.analysis.measurements.plan import plan_file
from fastflow.analysis.validation.tables import check_validation_output, predicted_tables, write_tables
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.grid.run import explaining
from fastflow.engine.run.progress import SILENT, Listener


class Validation(NamedTuple):
    """Predictions beside measurements; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    rows: pd.DataFrame
    """Every measurement with what was predicted of it, in the order of the file."""
    errors: pd.DataFrame
    """Errors of all rows, by size, by limiter and by the file's own categories."""


def validate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    listener: Listener = SILENT,
) -> Validation:
    """Predict the rows of a file of measurements; see `fastflow.validate`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="validate")
        planned = plan_file(composer, overrides)
        given = any(text.lstrip("+").startswith("output=") for text in overrides)
        where = str(output) if output is not None else planned.run.output if given else None
        if where is not None:
            check_validation_output(where)
        listener.start(f"rows of {planned.measurements.file.path}", planned.measurements.rows, "rows")
        with explaining(composer, planned.run):
            tables = predicted_tables(planned, listener.advance)
        if where is not None:
            write_tables(where, tables)
    return Validation(to_frame([tables.rows]), to_frame([tables.errors]))
