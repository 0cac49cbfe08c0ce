"""A search from its overrides to its results: DataFrames for Python, files for the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from fastflow.analysis.search.options import SearchOptions, read_options
from fastflow.analysis.search.ranges import WithinTolerance
from fastflow.analysis.search.results import BestChip, check_beside, chips, front, ranking, write_chips
from fastflow.analysis.search.run import search_designs
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.messages import counted
from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import FRONT, RANKING
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.dataset.store import write_table
from fastflow.engine.grid import limits
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, explaining, refuse_others
from fastflow.engine.run.progress import SILENT, Listener


class Search(NamedTuple):
    """What a search has found; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    best: pd.Series[Any]
    """The best design of all: the first row of the ranking."""
    ranking: pd.DataFrame
    """The best design of every candidate, those that compete together, the best first."""
    history: pd.DataFrame
    """Every design that was scored, in order."""
    front: pd.DataFrame | None
    """With `pareto`: the designs that no other beats in both objectives."""
    chips: dict[str, str]
    """The best designs as texts of files that `chip=FILE` accepts, by what tells them apart, or ""."""
    ranges: pd.DataFrame
    """What each share of the best designs may be alone within `tolerance` of the best objective."""


def search(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    listener: Listener = SILENT,
) -> Search:
    """Search the best designs of the points that overrides span; see `fastflow.search`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="search")
        run = plan(composer, overrides)
        given = any(text.lstrip("+").startswith("output=") for text in overrides)
        where = str(output) if output is not None else run.output if given else None
        with explaining(composer, run):
            options = prepare_search(composer, run, where)

            def begin(candidates: int, steps: int, there: int) -> None:
                listener.start(f"{counted(candidates, 'candidate')} of a search", steps, "steps")

            answer = search_designs(run, options, where, begin, listener.advance)
            found = chips(answer, composer, overrides, None)
            table, edge = ranking(answer), front(answer) if options.pareto else None
            if where is not None:
                write_beside(where, table, edge, found)
    frame = to_frame([table])
    return Search(
        best=frame.iloc[0],
        ranking=frame,
        history=to_frame([answer.history.table()]),
        front=None if edge is None else to_frame([edge]),
        chips={chip.name: chip.text for chip in found},
        ranges=ranges_frame(answer.ranges, frame),
    )


def ranges_frame(within: WithinTolerance, ranking: pd.DataFrame) -> pd.DataFrame:
    """Return ranges with a row a share: the candidate, the share, its best, lowest and highest value."""
    best = ranking.set_index("candidate").to_dict("index")
    rows = [
        (candidate, key, best[candidate][key], low, high)
        for candidate, ranges in within.of.items()
        for key, (low, high) in ranges.items()
    ]
    found = pd.DataFrame(rows, columns=["candidate", "share", "best", "low", "high"])
    found.attrs = {"tolerance": within.tolerance}
    return found


def prepare_search(composer: Composer, run: Run, output: str | None) -> SearchOptions:
    """Check what only a search is told before anything is computed; raises InputError."""
    refuse_others(run, "search")
    points = run.grid.points
    limits.check("points", f"{points:,}", points, limits.MOST_SEARCHED, "points of one search")
    with composer.naming_origins(run.first):
        options = read_options(run.first.leaves)
        if run.grid.report and (options.objective, options.pareto) != ("time", None):
            key, value = ("pareto", options.pareto) if options.pareto else ("objective", options.objective)
            raise InputError(
                key, value, f"{'null' if options.pareto else 'time'}, as the study of the paper needs it"
            )
    if output is not None:
        check_beside(output)
    return options


def write_beside(output: str, table: pa.Table, edge: pa.Table | None, found: Sequence[BestChip]) -> list[str]:
    """Write what is beside a history; returns a line on each."""
    lines = []
    if found:
        where = write_chips(output, found)
        lines.append(f"Chip: {where}" if len(found) == 1 else f"Chips: {where}, {len(found):,} files")
    lines.append(f"Ranking: {write_table(output + RANKING, table)}")
    if edge is not None:
        lines.append(f"Front: {write_table(output + FRONT, edge)}")
    return lines
