"""`python -m fastflow.search`: a search with progress; its results go to the screen and to files."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.fleets.options import is_of_fleets
from fastflow.analysis.search.results import chips, chips_at, front, ranking
from fastflow.analysis.search.run import SearchResult, search_designs
from fastflow.analysis.search.study import prepare_search, write_results
from fastflow.cli.run import fleets
from fastflow.cli.run.grid import PlannedGrid, plan_arguments, plan_composed
from fastflow.cli.run.report import check_study
from fastflow.config.composer import Composer
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.folder import RANKING
from fastflow.engine.grid.run import naming_errors

if TYPE_CHECKING:
    from fastflow.reporting.terminal.progress import Progress


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Search what Hydra composed; raises InputError."""
    _start(plan_composed(composer, overrides, sweeper, folder))


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    planned = plan_arguments(composer, arguments)
    return None if planned is None else partial(_start, planned)


def _start(planned: PlannedGrid) -> None:
    """Search for designs, or over fleets; raises InputError."""
    with planned.composer.naming_origins(planned.run.first):
        of_fleets = is_of_fleets(planned.run)
    if of_fleets:
        fleets.search(planned)
    else:
        _search(planned)


def _search(planned: PlannedGrid) -> None:
    """Search for designs, with progress on standard error; writes files next to the history."""
    from fastflow.reporting.terminal.progress import Progress

    with naming_errors(planned.composer, planned.run):
        check_study(planned.run)
        options = prepare_search(planned.composer, planned.run, planned.output)
        with Progress() as progress:

            def begin(candidates: int, steps: int, num_scored: int) -> None:
                what = f"{pluralize(candidates, 'candidate')}, up to {pluralize(steps, 'step')}"
                progress.start(f"{what} of {options.rules.method}", steps, "steps")
                if num_scored:
                    scored = f"{pluralize(num_scored, 'design')} scored by an earlier run"
                    print(scored, file=sys.stderr, flush=True)

            result = search_designs(planned.run, options, planned.output, begin, progress.advance)
        try:
            _print_results(result, planned, progress)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"the history is complete in {planned.output}; the same command prints the rest"
            ) from None


def _print_results(result: SearchResult, planned: PlannedGrid, progress: Progress) -> None:
    """Print the results, and write them next to the history."""
    from fastflow.cli.run import report
    from fastflow.engine.dataset.reader import find
    from fastflow.reporting.terminal import search as shown

    composer, output = planned.composer, planned.output
    best_chips = chips(result, composer, planned.overrides, planned.sweeper)
    table, pareto = ranking(result), front(result) if result.options.pareto else None
    lines = write_results(output, table, pareto, best_chips)
    shown.show(result, table, pareto)
    for line in lines:
        print(line)
    if result.candidates.grid.report:
        report.judge(find(output + RANKING), result.candidates.grid.report)
    else:
        report.draw_search(find(output))
    shown.print_speed(result, progress)
    if len(best_chips) == 1:
        switches = ("--config-dir", composer.config_dir) if composer.config_dir else ()
        chip = f"chip={chips_at(output)}.yaml"
        print(f"python -m fastflow.sweep {shlex.join((*switches, *best_chips[0].overrides, chip))}")
    print(f"Dataset: {output}")
