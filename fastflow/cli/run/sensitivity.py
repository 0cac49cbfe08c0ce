"""`python -m fastflow.sensitivity`: says which parameters a result hangs on; prints, stores and draws it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.analysis.sensitivity.study import SensitivityOptions, analyse, read_options
from fastflow.config.composer import Composer
from fastflow.engine.dataset.folder import shown_output, url_or_folder
from fastflow.engine.dataset.kinds import SENSITIVITY
from fastflow.engine.dataset.store import check_table, write_table
from fastflow.engine.grid.run import naming_errors


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Answer what Hydra composed; raises InputError."""
    answer(composer, read_options(composer, overrides), folder)


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what answers it, or None. Raises InputError."""
    options = read_options(composer, arguments.overrides)
    return partial(answer, composer, options, shown_output(options.run.output))


def answer(composer: Composer, options: SensitivityOptions, folder: str) -> None:
    """Answer a question: print, store and draw it; raises InputError."""
    from fastflow.cli.run.report import print_sensitivity, save_figure
    from fastflow.reporting.terminal.progress import Progress

    output = url_or_folder(options.output, folder)
    check_table(output, SENSITIVITY)
    with naming_errors(composer, options.run), Progress() as progress:
        table, sensitivity = analyse(options, progress)
    print_sensitivity(
        sensitivity, lambda: write_table(output, table), partial(save_figure, output, "sensitivity")
    )
    sys.stdout.flush()
