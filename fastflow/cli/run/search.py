"""`python -m fastflow.search`: a search with progress; its results go to the screen and to files."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.results import chips, chips_at, front, ranking
from fastflow.analysis.search.run import SearchResult, search_designs
from fastflow.analysis.search.study import prepare_search, write_results
from fastflow.cli.run import grid
from fastflow.cli.run.report import check_study
from fastflow.config.composer import Composer
from fastflow.config.messages import pluralize
from fastflow.engine.dataset.folder import RANKING
from fastflow.engine.grid.run import Run

if TYPE_CHECKING:
    from fastflow.reporting.terminal.progress import Progress


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Search what Hydra composed; raises InputError."""
    grid.run(composer, overrides, sweeper, folder, _search)


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    return grid.plan(composer, arguments, _search)


def _search(
    composer: Composer,
    overrides: Sequence[str],
    run: Run,
    sweeper: Mapping[str, Any] | None,
    output: str,
) -> None:
    """Search on the command line, with progress on standard error and files beside the history."""
    from fastflow.reporting.terminal.progress import Progress

    check_study(run)
    options = prepare_search(composer, run, output)
    with Progress() as progress:

        def begin(candidates: int, steps: int, num_scored: int) -> None:
            what = f"{pluralize(candidates, 'candidate')}, up to {pluralize(steps, 'step')}"
            progress.start(f"{what} of {options.rules.method}", steps, "steps")
            if num_scored:
                print(
                    f"{pluralize(num_scored, 'design')} scored by an earlier run", file=sys.stderr, flush=True
                )

        result = search_designs(run, options, output, begin, progress.advance)
    try:
        _print_results(result, composer, overrides, sweeper, output, progress)
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the history is complete in {output}; the same command prints the rest"
        ) from None


def _print_results(
    result: SearchResult,
    composer: Composer,
    overrides: Sequence[str],
    sweeper: Mapping[str, Any] | None,
    output: str,
    progress: Progress,
) -> None:
    """Print the results, and write them beside the history."""
    from fastflow.cli.run import report
    from fastflow.engine.dataset.reader import find
    from fastflow.reporting.terminal import search as shown

    best_chips = chips(result, composer, overrides, sweeper)
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
