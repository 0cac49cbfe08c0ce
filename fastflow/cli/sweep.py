"""`python -m fastflow.sweep`: one point, or a grid with progress and a short table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastflow.configuration.composer import Composer
from fastflow.configuration.wording import COMMAND_LINE
from fastflow.errors import CompositionError
from fastflow.grid.overrides import first_of_groups, read_terms
from fastflow.grid.run import Run, refuse_others

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
    from fastflow.dataset.chosen import chosen_columns
    from fastflow.dataset.schema import column_order
    from fastflow.evaluation import execute
    from fastflow.show import grid
    from fastflow.show.progress import Progress

    refuse_others(run, shows=True)
    columns = chosen_columns(run.columns, column_order(run.grid))
    if run.grid.report:
        from fastflow.cli.report import check_study, judge
        from fastflow.dataset.reader import find

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
