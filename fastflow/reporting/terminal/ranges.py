"""Ranges of the shares of a best design within a tolerance of the best objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.optimizers.design_space import BUDGET_LABELS, BUDGETS
from fastflow.analysis.search.ranges import WithinTolerance, ranking_of_search, read_ranges
from fastflow.core.units import percent
from fastflow.reporting.terminal.tables import Part, new_sheet, records

if TYPE_CHECKING:
    from rich.table import Table as Sheet

    from fastflow.engine.dataset.reader import Dataset

METHOD_NOTE = "One share varied at a time, the others of its budget in proportion"


def title(within: WithinTolerance) -> str:
    """Return the title of the ranges."""
    return f"Shares within {100.0 * within.tolerance:g}% of the best"


def rows_of(row: Mapping[str, Any], within: WithinTolerance) -> list[list[str]]:
    """Return the ranges of a best design as texts: a component and its share of every budget, or ""."""
    ranges = within.of.get(int(row["candidate"]), {})
    parts = dict.fromkeys(key.split(".")[2] for key in ranges)
    cells_of_parts = []
    for part in parts:
        cells = []
        for budget in BUDGETS:
            key = f"chip.{budget}.{part}"
            ends = " to ".join(f"{end:.1%}" for end in ranges.get(key, ()))
            cells.append(f"{float(row[key]):.1%}  ({ends})" if ends else "")
        cells_of_parts.append([part, *cells])
    return cells_of_parts


def range_sheet(row: Mapping[str, Any], within: WithinTolerance) -> Sheet:
    """Return the ranges of a best design as a table; row: of it, from a ranking."""
    names = [("component", False), *((BUDGET_LABELS[budget], True) for budget in BUDGETS)]
    sheet = new_sheet(f"{title(within)}, one varied at a time", names)
    for cells in rows_of(row, within):
        sheet.add_row(*cells)
    return sheet


def is_converged(row: Mapping[str, Any], within: WithinTolerance) -> bool:
    """Return whether no neighbour of the best design is better by more than the tolerance."""
    least = within.least.get(int(row["candidate"]), float(row["objective"]))
    return least * (1.0 + within.tolerance) >= float(row["objective"])


def range_parts(row: Mapping[str, Any], within: WithinTolerance) -> Iterator[Part]:
    """Yield the table of a best design's ranges, and a note if the search has not converged."""
    if int(row["candidate"]) in within.of:
        yield range_sheet(row, within)
        if not is_converged(row, within):
            yield not_converged(row, within)


def not_converged(row: Mapping[str, Any], within: WithinTolerance) -> str:
    """Return a note that a neighbour of the best design is better, with advice."""
    gain = 1.0 - within.least[int(row["candidate"])] / float(row["objective"])
    better = f"One share moved alone gives {percent(gain)} less"
    return f"{better}: the search has not converged; a larger steps= continues it"


def ranges_of(dataset: Dataset, labels: Sequence[str]) -> tuple[list[dict[str, Any]], WithinTolerance]:
    """Return the best design of each problem of a search, and their ranges; empty without ranges.

    dataset: its history, front or ranking; labels: further columns to read.
    """
    ranking = ranking_of_search(dataset)
    if ranking is None:
        return [], read_ranges("")
    with ranking.whole("its ranges"):
        within = read_ranges(ranking.about("ranges"))
    if not within.of:
        return [], within
    shares = {key for ranges in within.of.values() for key in ranges}
    frame = ranking.read(["rank", "candidate", "objective", *shares, *labels])
    return records(frame[frame["candidate"].isin(within.of)]), within
