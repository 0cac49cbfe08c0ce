"""What is as good as the best: ranges of shares within a tolerance of the best objective, and candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.charts.search import telling
from fastflow.configuration.wording import counted
from fastflow.explore.ranges import WithinTolerance, ranking_beside, read_ranges
from fastflow.optimize.space import BUDGETS
from fastflow.show.tables import Part, new_sheet, records
from fastflow.units import percent

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.dataset.reader import Dataset

_NAMED = 6
"""Candidates that are named."""
HOW = "one share varied, the others of its budget in proportion"


def shown(share: float) -> str:
    """Write a share as people do: two digits or so, and none that says nothing."""
    return percent(share) if share >= 0.0005 else "0%"


def title(within: WithinTolerance) -> str:
    """Return what ranges are called."""
    return f"Shares within {100.0 * within.tolerance:g}% of the best"


def rows_of(row: Mapping[str, Any], within: WithinTolerance) -> list[list[str]]:
    """Return the ranges of a best design as texts: a component and its share of every budget, or ""."""
    ranges = within.of.get(int(row["candidate"]), {})
    parts = dict.fromkeys(key.split(".")[2] for key in ranges)
    found = []
    for part in parts:
        cells = []
        for budget in BUDGETS:
            key = f"chip.{budget}.{part}"
            low_high = [shown(end) for end in ranges.get(key, ())]
            cells.append(f"{shown(float(row[key]))}  ({' to '.join(low_high)})" if low_high else "")
        found.append([part, *cells])
    return found


def range_sheet(row: Mapping[str, Any], within: WithinTolerance) -> Sheet:
    """Return the ranges of a best design as a table; row: of it, from a ranking."""
    sheet = new_sheet(
        f"{title(within)}: {HOW}", [("component", False), *((budget, True) for budget in BUDGETS)]
    )
    for cells in rows_of(row, within):
        sheet.add_row(*cells)
    return sheet


def is_settled(row: Mapping[str, Any], within: WithinTolerance) -> bool:
    """Say whether no design beside the search is better than its best one by more than the tolerance."""
    least = within.least.get(int(row["candidate"]), float(row["objective"]))
    return least * (1.0 + within.tolerance) >= float(row["objective"])


def range_parts(row: Mapping[str, Any], within: WithinTolerance) -> Iterator[Part]:
    """Yield what is to be said of a best design's ranges; nothing where it has none."""
    if int(row["candidate"]) in within.of:
        yield range_sheet(row, within)
        if not is_settled(row, within):
            yield unsettled(row, within)


def unsettled(row: Mapping[str, Any], within: WithinTolerance) -> str:
    """Say that a design beside the search is better than its best one, and what to do."""
    gain = 1.0 - within.least[int(row["candidate"])] / float(row["objective"])
    return f"One share moved alone gives {percent(gain)} less: the search is not at its end; more steps= go on"


def as_good(frame: pd.DataFrame, labels: Sequence[str], tolerance: float, what: str) -> str:
    """Say which candidates of a problem are within the tolerance of the best one; "" where there is but one.

    frame: their ranking, with `gap`; what: one of them is.
    """
    near = frame[frame["gap"] <= tolerance]
    if len(frame) < 2 or near.empty or not tolerance:
        return ""
    names = telling(frame, labels)
    named = [
        " ".join(_label(name, row[name]) for name in names) for row in records(near.head(_NAMED)[list(names)])
    ]
    more = f" and {len(near) - _NAMED:,} others" if len(near) > _NAMED else ""
    of_all = counted(len(frame), what)
    return f"{len(near):,} of {of_all} within {100.0 * tolerance:g}% of the best: {', '.join(named)}{more}"


def _label(name: str, value: Any) -> str:
    """Write what tells a candidate apart: a text by itself, a number after its name."""
    is_text = isinstance(value, str) and "." not in name
    return str(value) if is_text else f"{name.rpartition('.')[2]}={value}"


def ranges_of(dataset: Dataset, labels: Sequence[str]) -> tuple[list[dict[str, Any]], WithinTolerance] | None:
    """Return the best designs of a search, one a problem, and their ranges; None where it has none.

    dataset: its history, front or ranking; labels: columns beside that are read.
    """
    beside = ranking_beside(dataset)
    if beside is None:
        return None
    with beside.whole("its ranges"):
        within = read_ranges(beside.about("ranges"))
    if not within.of:
        return None
    shares = {key for ranges in within.of.values() for key in ranges}
    frame = beside.read(["rank", "candidate", "objective", *shares, *labels])
    return records(frame[frame["candidate"].isin(within.of)]), within
