"""`python -m fastflow.sweep`: one point, or a grid with progress and a short table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastflow.config.composer import Composer
from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import CompositionError
from fastflow.engine.grid.overrides import first_of_groups, read_terms
from fastflow.engine.grid.run import Run, refuse_others

if TYPE_CHECKING:
    pass


def check_single(composer: Composer, overrides: Sequence[str]) -> None:
    """Refuse a study without -m that does not ask for it itself."""
    spans, file = composer.sweeper(first_of_groups(read_terms(composer, overrides, COMMAND_LINE)))
    if any(spans.values()):
        raise CompositionError(
            f"{file}: a study is a grid and needs -m (or `hydra.mode: MULTIRUN` in the file)"
        )


def run_grid(run: Run, output: str) -> None:
    """Evaluate a grid into a dataset, with progress on standard error and a short table at the end."""
    from fastflow.engine.dataset.schema import column_order
    from fastflow.engine.dataset.selected_columns import chosen_columns
    from fastflow.engine.run import execute
    from fastflow.reporting.terminal import grid
    from fastflow.reporting.terminal.progress import Progress

    refuse_others(run, shows=True)
    columns = chosen_columns(run.columns, column_order(run.grid))
    if run.grid.report:
        from fastflow.cli.run.report import check_study, judge
        from fastflow.engine.dataset.reader import find

        check_study(run)
    with Progress(run.grid.describe(), run.grid.points) as progress:
        store = execute.store(run, output, progress.begin, progress.advance)
    try:
        grid.show(run.grid, store, progress, columns)
        try:
            if run.grid.report:
                judge(find(store.folder.shown), run.grid.report)
        finally:
            print(f"Dataset: {store.folder.shown}")
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the dataset is complete in {store.folder.shown}") from None
