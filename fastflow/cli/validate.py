"""`python -m fastflow.validate`: predictions beside measurements, stored, printed and drawn."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.configuration.composer import Composer
from fastflow.configuration.wording import counted
from fastflow.dataset.folder import is_url
from fastflow.errors import CompositionError
from fastflow.grid.run import explaining
from fastflow.measured.validate import check_validation_output, predicted_tables, prepare, write_tables

if TYPE_CHECKING:
    pass


def run_validation(
    composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None, folder: str
) -> None:
    """Validate on the command line: what is predicted is stored, and its errors printed and drawn."""
    from fastflow.cli import report
    from fastflow.dataset.reader import find
    from fastflow.show.progress import Progress

    if spans is not None:
        raise CompositionError("measurements are held against one configuration, without -m")
    planned = prepare(composer, overrides)
    output = planned.run.output if is_url(planned.run.output) else folder
    check_validation_output(output)
    rows = planned.measurements.measured.size
    what = f"{counted(rows, 'row')} of {planned.measurements.path} ({planned.measurements.kind.name})"
    with explaining(composer, planned.run), Progress(what, rows, "rows") as progress:
        progress.begin(0)
        tables = predicted_tables(planned, progress.advance)
    write_tables(output, tables)
    report.show_validation(find(output))
    sys.stdout.flush()
