"""Checks before a search, and the files that it writes next to its history."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from fastflow.analysis.search.options import SearchOptions, read_options
from fastflow.analysis.search.ranges import WithinTolerance
from fastflow.analysis.search.results import BestChip, check_result_paths, write_chips
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import FRONT, RANKING
from fastflow.engine.dataset.store import write_table
from fastflow.engine.grid import limits
from fastflow.engine.grid.run import Run, refuse_auto_devices, refuse_others


def ranges_frame(within: WithinTolerance, ranking: pd.DataFrame) -> pd.DataFrame:
    """Return ranges, a row a share: the candidate, the share, its best, lowest and highest value."""
    best = ranking.set_index("candidate").to_dict("index")
    rows = [
        (candidate, key, best[candidate][key], low, high)
        for candidate, ranges in within.of.items()
        for key, (low, high) in ranges.items()
    ]
    frame = pd.DataFrame(rows, columns=["candidate", "share", "best", "low", "high"])
    frame.attrs = {"tolerance": within.tolerance}
    return frame


def prepare_search(composer: Composer, run: Run, output: str | None) -> SearchOptions:
    """Check and return the options of a search, before anything is computed; raises InputError."""
    refuse_others(run, "search")
    refuse_auto_devices(run, "a search of designs")
    points = run.grid.points
    limits.check("points", f"{points:,}", points, limits.MAX_SEARCHED, "points of one search")
    with composer.naming_origins(run.first):
        options = read_options(run.first.leaves)
        if run.grid.report and (options.objective, options.pareto) != ("time", None):
            key, value = ("pareto", options.pareto) if options.pareto else ("objective", options.objective)
            raise InputError(
                key, value, f"{'null' if options.pareto else 'time'}, as the study of the paper needs it"
            )
    if output is not None:
        check_result_paths(output)
    return options


def write_results(
    output: str, table: pa.Table, front: pa.Table | None, best_chips: Sequence[BestChip]
) -> list[str]:
    """Write the chips and tables next to a history; returns a line on each."""
    lines = []
    if best_chips:
        where = write_chips(output, best_chips)
        lines.append(
            f"Chip: {where}" if len(best_chips) == 1 else f"Chips: {where}, {len(best_chips):,} files"
        )
    lines.append(f"Ranking: {write_table(output + RANKING, table)}")
    if front is not None:
        lines.append(f"Front: {write_table(output + FRONT, front)}")
    return lines
