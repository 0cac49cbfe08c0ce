"""Tables of a search: the ranking, the Pareto front, the best designs of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.optimizers.design_space import BUDGETS
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.engine.dataset.kinds import RANKING, SEARCH
from fastflow.engine.grid.plan import CHOICES
from fastflow.reporting.charts.search import distinguishing_labels
from fastflow.reporting.terminal.equivalents import equivalent_candidates
from fastflow.reporting.terminal.ranges import range_parts, ranges_of
from fastflow.reporting.terminal.tables import console, new_sheet, print_parts, quantity, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.engine.dataset.reader import Dataset

_MAX_CANDIDATES = 10  # candidates of one problem
_MAX_PROBLEMS = 20
_MAX_OF_FRONT = 16
_RESULTS = (
    "objective", "second_objective", "prob_first_better", "prob_on_front", "gain", "gap", "designs",
    "bound_by", "feasible",
)  # fmt: skip


def labels_of(names: Sequence[str]) -> list[str]:
    """Return the columns that may label candidates: choices, swept keys, the strategy."""
    shares = tuple(f"chip.{budget}." for budget in BUDGETS)
    swept = [name for name in names if "." in name and not name.startswith(shares)]
    chosen = ("strategy", "microbatch", "recompute", "zero")
    return [name for name in (*CHOICES, *swept, *chosen) if name in names]


def sheet_of(
    title: str, frame: pd.DataFrame, rows: pd.DataFrame, schema: pa.Schema, chosen: Sequence[str] = ()
) -> Sheet:
    """Return rows of a frame as a table: the labels that distinguish its rows, and their results.

    schema: the dataset's; chosen: columns instead of the default results.
    """
    labels = distinguishing_labels(frame, labels_of(list(map(str, frame))))
    results = chosen or [name for name in _RESULTS if name in frame]
    names = list(dict.fromkeys([*labels, *results]))
    objectives = {name: schema.field(name).metadata for name in names if name.endswith("objective")}
    heads = _short_labels(labels) | {
        name: metadata[b"meaning"].decode() for name, metadata in objectives.items()
    }
    numbers = [frame[name].dtype.kind in "fi" for name in names]
    heading = [heads.get(name, name) for name in names]
    sheet = new_sheet(title, [("", True), *zip(heading, numbers, strict=True)])
    for number, row in enumerate(rows[names].itertuples(index=False, name=None), start=1):
        cells = []
        for name, value in zip(names, row, strict=True):
            if name == "gap":
                cells.append(units.percent(value) if value == value else "-")
            elif name in objectives:
                cells.append(units.show(value, objectives[name][b"unit"].decode()))
            else:
                cells.append(f"{value:.2f}x" if name == "gain" and value == value else quantity(name, value))
        sheet.add_row(str(number), *cells)
    return sheet


def _short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Return the last part of every key, or the last two if several keys have the same last part."""
    ends = [name.rpartition(".")[2] for name in labels]
    return {
        name: end if ends.count(end) == 1 else ".".join(name.split(".")[-2:])
        for name, end in zip(labels, ends, strict=True)
    }


def ranking_sheet(frame: pd.DataFrame, schema: pa.Schema, chosen: Sequence[str] = ()) -> Sheet | str:
    """Return the best candidates of a ranking, or for several problems the best design of each.

    Candidates without a search and infeasible candidates are shown only if there are no others.
    chosen: as of `sheet_of`.
    """
    heads = frame[frame["rank"] == 1]
    if len(heads) > _MAX_PROBLEMS:
        return f"{len(heads):,} problems; the best design of each has rank 1 in the ranking"
    if len(heads) > 1:
        return sheet_of("Best design of each problem", frame, heads, schema, chosen)
    feasible = frame[frame["reason"] == ""]
    rows = (feasible if len(feasible) else frame).head(_MAX_CANDIDATES)
    return sheet_of(f"Best of {pluralize(len(frame), 'candidate')}", frame, rows, schema, chosen)


def front_sheet(frame: pd.DataFrame, schema: pa.Schema, chosen: Sequence[str] = ()) -> Sheet | str:
    """Return a front, thinned evenly if it is long; chosen: as of `sheet_of`."""
    if frame.empty:
        return "no front: no design has a time"
    rows = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), _MAX_OF_FRONT)).round().astype(int))
    thinned = f", {len(rows)} shown" if len(rows) < len(frame) else ""
    title = f"Front of {pluralize(len(frame), 'design')}{thinned}"
    return sheet_of(title, frame, frame.iloc[rows], schema, chosen)


def report(dataset: Dataset, chosen: Sequence[str] = ()) -> None:
    """Print the best designs of a search's history, ranking or front; chosen: as of `sheet_of`."""
    names = dataset.schema.names
    wanted = {*labels_of(names), *_RESULTS, *chosen, "rank", "candidate", "step", "reason"}
    frame = dataset.read([name for name in names if name in wanted])
    out = console()
    row = "candidate" if dataset.kind == RANKING else "design"
    out.print(f"{dataset.folder.shown}: {pluralize(len(frame), row)}")
    if dataset.kind == RANKING:
        out.print(ranking_sheet(frame, dataset.schema, chosen))
    elif dataset.kind == SEARCH:
        best = _best_of_each(frame).head(_MAX_CANDIDATES)
        title = "Best design of each candidate"
        out.print(
            sheet_of(title, frame, best, dataset.schema, chosen) if len(best) else "no design has a time"
        )
    else:
        out.print(front_sheet(frame, dataset.schema, chosen))
    _print_ranges(dataset, frame)


def _print_ranges(dataset: Dataset, frame: pd.DataFrame) -> None:
    """Print the equivalents of the best design of a search with one problem."""
    rows, within = ranges_of(dataset, [])
    if len(rows) == 1:
        if "gap" in frame:
            print_parts(
                equivalent_candidates(
                    records(frame), labels_of(list(map(str, frame))), within.tolerance, "candidate"
                )
            )
        print_parts(range_parts(rows[0], within))


def _best_of_each(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the best design of every searched candidate of a history, the best first."""
    searched = frame.loc[frame["step"] > 0, "candidate"].unique()
    rows = frame[frame["candidate"].isin(searched) & frame["objective"].notna()]
    order: Any = ["feasible", "objective"]
    ordered = rows.sort_values(order, ascending=[False, True], kind="stable")
    return ordered.drop_duplicates("candidate")
