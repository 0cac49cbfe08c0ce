"""`python -m fastflow.sweep`: one point, or a grid with progress and a short table at the end.

Like every file of `run/` but `report`, it has two functions. `run(composer, overrides, sweeper, folder)` runs
what Hydra composed; sweeper: the section `hydra.sweeper`, None without -m. `plan(composer, arguments)` plans
a command line that Hydra need not read, and returns a function that runs it, or None. Both raise InputError.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.cli.run.grid import PlannedGrid, plan_arguments, plan_composed
from fastflow.cli.run.point import run_point
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.grid.run import Run, naming_errors, refuse_others


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Predict what Hydra composed; raises InputError."""
    _predict(plan_composed(composer, overrides, sweeper, folder))


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    planned = plan_arguments(composer, arguments)
    return None if planned is None else partial(_predict, planned)


def _predict(planned: PlannedGrid) -> None:
    """Predict a point or a grid, and print the results; raises InputError."""
    run = planned.run
    with naming_errors(planned.composer, run):
        if planned.sweeper is not None:
            run_grid(run, planned.output)
            return
        if run.grid.report:
            raise InputError("report", run.grid.report, "null for one point; only a grid (-m) is a study")
        run_point(run, planned.output)


def run_grid(run: Run, output: str) -> None:
    """Evaluate a grid into a dataset, with progress on standard error and a short table at the end."""
    from fastflow.engine.dataset.schema import column_order
    from fastflow.engine.dataset.selected_columns import select_columns
    from fastflow.engine.run import execute
    from fastflow.reporting.terminal import grid as shown
    from fastflow.reporting.terminal.progress import Progress

    refuse_others(run, shows=True)
    columns = select_columns(run.columns, column_order(run.grid))
    if run.grid.report:
        from fastflow.cli.run.report import check_study, judge
        from fastflow.engine.dataset.reader import find

        check_study(run)
    with Progress(run.grid.describe(), run.grid.points) as progress:
        store = execute.store(run, output, progress.begin, progress.advance)
    try:
        shown.show(run.grid, store, progress, columns)
        try:
            if run.grid.report:
                judge(find(store.folder.shown), run.grid.report)
        finally:
            print(f"Dataset: {store.folder.shown}")
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the dataset is complete in {store.folder.shown}") from None
