"""A search from the overrides to what it leaves: for Python in frames, for the command line in files."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa

from fastflow.engine.answer import (
    Chip,
    check_beside,
    chips,
    chips_at,
    front,
    ranking,
    write_chips,
    write_table,
)
from fastflow.engine.api import explaining, refuse_others
from fastflow.engine.asked import Asked, asked_of
from fastflow.engine.config import Composer
from fastflow.engine.folder import FRONT, RANKING
from fastflow.engine.library import hydra_rules
from fastflow.engine.plan import Study, plan
from fastflow.engine.search import Answer, run
from fastflow.engine.store import to_frame
from fastflow.errors import InputError

if TYPE_CHECKING:
    from fastflow.engine.progress import Progress


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


def search(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Search:
    """Search the best designs of the points that overrides span; see `fastflow.search`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="search")
        study = plan(composer, overrides)
        given = any(text.lstrip("+").startswith("output=") for text in overrides)
        where = str(output) if output is not None else study.output if given else None
        with explaining(composer, study):
            asked = _prepare(composer, study, where)
            answer = run(study, asked, where)
            found = chips(answer, composer, overrides, None)
            table, edge = ranking(answer), front(answer) if asked.pareto else None
            if where is not None:
                _write(where, table, edge, found)
    frame = to_frame([table])
    return Search(
        frame.iloc[0],
        frame,
        to_frame([answer.history.table()]),
        None if edge is None else to_frame([edge]),
        {chip.name: chip.text for chip in found},
    )


def _prepare(composer: Composer, study: Study, output: str | None) -> Asked:
    """Check what only a search is told before anything is computed; raises InputError."""
    refuse_others(study, "search")
    with composer.naming_origins(study.first):
        asked = asked_of(study.first.leaves)
        if study.grid.report and (asked.objective, asked.pareto) != ("time", None):
            key, value = ("pareto", asked.pareto) if asked.pareto else ("objective", asked.objective)
            raise InputError(key, value, f"{'null' if asked.pareto else 'time'} for a study of the paper")
    if output is not None:
        check_beside(output)
    return asked


def _write(output: str, table: pa.Table, edge: pa.Table | None, found: Sequence[Chip]) -> list[str]:
    """Write what is beside a history; returns a line on each."""
    lines = []
    if found:
        where = write_chips(output, found)
        lines.append(f"Chip: {where}" if len(found) == 1 else f"Chips: {where}, {len(found):,} files")
    lines.append(f"Ranking: {write_table(output + RANKING, table)}")
    if edge is not None:
        lines.append(f"Front: {write_table(output + FRONT, edge)}")
    return lines


def run_search(
    composer: Composer,
    overrides: Sequence[str],
    study: Study,
    spans: Mapping[str, Any] | None,
    output: str,
) -> None:
    """Search on the command line, with progress on standard error and files beside the history."""
    from fastflow.engine.progress import Progress

    asked = _prepare(composer, study, output)
    with Progress("", 0, "steps") as progress:

        def begin(candidates: int, steps: int, there: int) -> None:
            progress.points = steps
            many = f"{candidates:,} candidates" if candidates > 1 else "1 candidate"
            progress.what = f"{many}, up to {steps:,} steps of {asked.rules.method}"
            progress.begin(0)
            if there:
                print(f"{there:,} designs are known from an earlier run", file=sys.stderr, flush=True)

        answer = run(study, asked, output, begin, progress.advance)
    try:
        _answer(answer, composer, overrides, spans, output, progress)
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the history is whole in {output}; the same command says the rest") from None


def _answer(
    answer: Answer,
    composer: Composer,
    overrides: Sequence[str],
    spans: Mapping[str, Any] | None,
    output: str,
    progress: Progress,
) -> None:
    """Print what was found, and write it beside the history."""
    from fastflow.engine import report, show_search

    found = chips(answer, composer, overrides, spans)
    table, edge = ranking(answer), front(answer) if answer.asked.pareto else None
    lines = _write(output, table, edge, found)
    show_search.found(answer, table, edge)
    for line in lines:
        print(line)
    if answer.candidates.grid.report:
        report.judge(report.find(output + RANKING), answer.candidates.grid.report)
    else:
        report.draw_search(report.find(output))
    show_search.speed(answer, progress)
    if len(found) == 1:
        chip = f"chip={chips_at(output)}.yaml"
        print(f"python -m fastflow.sweep {shlex.join((*found[0].overrides, chip))}")
    print(f"Dataset: {output}")
