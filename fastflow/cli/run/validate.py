"""`python -m fastflow.validate`: compares predictions with measurements; stores, prints and draws both."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.analysis.measurements.plan import PlannedFile, plan_file
from fastflow.analysis.validation.tables import check_validation_output, predicted_tables, write_tables
from fastflow.config.composer import Composer
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.folder import shown_output, url_or_folder
from fastflow.engine.grid.run import naming_errors


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Validate what Hydra composed; raises InputError."""
    planned = plan_file(composer, overrides)
    validate_file(composer, planned, url_or_folder(planned.run.output, folder))


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    planned = plan_file(composer, arguments.overrides)
    return partial(validate_file, composer, planned, shown_output(planned.run.output))


def validate_file(composer: Composer, planned: PlannedFile, output: str) -> None:
    """Validate as planned: store the predictions, print and draw their errors; raises InputError."""
    from fastflow.cli.run import report
    from fastflow.engine.dataset.reader import written
    from fastflow.reporting.terminal.progress import Progress

    check_validation_output(output)
    measurements = planned.measurements
    what = f"{pluralize(measurements.rows, 'row')} of {measurements.file.path} ({measurements.name})"
    with naming_errors(composer, planned.run), Progress(what, measurements.rows, "rows") as progress:
        progress.begin(0)
        tables = predicted_tables(planned, progress.advance)
    rows_dataset, errors_dataset = map(written, write_tables(output, tables), tables)
    rows, error_rows = (table.to_pandas(strings_to_categorical=True) for table in tables)
    report.print_validation(rows_dataset, errors_dataset, rows, error_rows)
    sys.stdout.flush()
