"""Output of a grid at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastflow.configuration.wording import counted
from fastflow.grid.grid import Grid
from fastflow.parallelism.strategy import AUTO
from fastflow.show.tables import console, listing

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.dataset.store import Store
    from fastflow.show.progress import Progress

_MOST_ROWS = 20  # of a grid on screen; the dataset holds all
_FIRST, _BEST = 10, 5
_ASKED = "parallel.strategy"
_KINDS = {
    "no time": ("has no time", "have no time"),
    "memory": ("does not fit its memory", "do not fit their memory"),
}
"""Kinds of infeasible points, in words for one and for several."""


class Digest:
    """What is shown of a grid: its first rows, its best ones, and how many are infeasible."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.head: list[dict[str, Any]] = []
        self.best: list[dict[str, Any]] = []
        self.infeasible = dict.fromkeys(_KINDS, 0)
        self.reason: dict[str, str] = {}
        """The first point of each kind, and why it is so."""

    def add(self, part: pa.Table) -> None:
        """Take the next part of the dataset, in point order."""
        self.head += part.slice(0, _MOST_ROWS + 1 - len(self.head)).to_pylist()
        # lists: what else Arrow makes of a column is made by way of pandas, which it would import for it
        time = np.array(part["time_s"].to_pylist(), dtype=np.float64)
        feasible = np.array(part["feasible"].to_pylist(), dtype=np.bool_)
        timed = ~np.isnan(time)
        for kind, rows in zip(self.infeasible, (~timed, timed & ~feasible), strict=True):
            if rows.any() and not self.infeasible[kind]:
                first = _row(part, int(np.argmax(rows)))
                self.reason[kind] = f"point {first['point']:,}: {first['reason']}"
            self.infeasible[kind] += int(rows.sum())
        order = np.lexsort((time, ~feasible))[:_BEST]  # NaN sorts last
        self.best += [_row(part, int(place)) for place in order]
        self.best = sorted(self.best, key=_rank)[:_BEST]


def _row(part: pa.Table, place: int) -> dict[str, Any]:
    """Return one row of a part."""
    row: dict[str, Any] = part.slice(place, 1).to_pylist()[0]
    return row


def _rank(row: Mapping[str, Any]) -> tuple[bool, float, int]:
    """Order rows: feasible ones first, fastest first, those without a time last."""
    time = row["time_s"]
    return not row["feasible"], float("inf") if time is None else time, int(row["point"])


def show(grid: Grid, store: Store, progress: Progress) -> None:
    """Print a grid in short, and how fast it came."""
    out = console()
    columns = grid.keys
    results = ["time_s", "bound_by", "feasible"]
    digest = Digest()
    for number in range(store.parts.total):
        digest.add(
            store.read(number, list(dict.fromkeys(["point", *columns, "strategy", *results, "reason"])))
        )
    columns = [*_with_winners(columns, [*digest.head, *digest.best]), *results]
    if grid.points > _MOST_ROWS:
        out.print(listing(f"First {_FIRST} of {grid.points:,} points", columns, digest.head[:_FIRST]))
        infeasible = sum(digest.infeasible.values())
        title = "Fastest feasible points" if infeasible < grid.points else "Fastest points, none feasible"
        out.print(listing(title, columns, digest.best))
    else:
        out.print(listing(counted(grid.points, "point"), columns, digest.head))
    for kind, count in digest.infeasible.items():
        if count:
            of_all = f"{count:,} of {counted(grid.points, 'point')}"
            out.print(f"{of_all} {_KINDS[kind][grid.points > 1]} (column `reason`); {digest.reason[kind]}")
    if digest.infeasible["memory"] == grid.points and grid.first_inputs()[_ASKED][0] != AUTO:
        out.print(f"{_ASKED}={AUTO} takes the fastest strategy that fits the memory, if there is one")
    out.print()
    _speed(grid, progress)


def _with_winners(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with that of the strategy, unless what was asked for says it."""
    if "strategy" in columns:
        return columns
    if _ASKED not in columns:
        return [*columns, "strategy"]
    place = columns.index(_ASKED) + 1
    won = ["strategy"] if any(row[_ASKED] == AUTO for row in rows) else []
    return [*columns[:place], *won, *columns[place:]]


def show_ranking(rows: pa.Table, shown: str) -> None:
    """Print the best strategies of a ranking, and where all of them lie; rows: of its dataset."""
    out = console()
    columns = ["strategy", "placement", "time_s", "footprint_B", "bound_by", "feasible"]
    different: dict[Any, dict[str, Any]] = {}
    for row in rows.select(["point", *columns]).to_pylist():
        different.setdefault((row["time_s"], row["footprint_B"]), row)
    many = rows.num_rows
    title = f"Best of {many:,} {'strategy' if many == 1 else 'strategies'}, identical results shown once"
    out.print(listing(title, columns, list(different.values())[:_FIRST]))
    print(f"Ranking: {shown}")


def _speed(grid: Grid, progress: Progress) -> None:
    """Print how many points came in which time."""
    points = grid.points - progress.there
    if not points:
        print(f"{counted(grid.points, 'point')}, all there already")
        return
    rate = f"{progress.rate:,.0f}" if progress.rate >= 10 else f"{progress.rate:.2g}"
    already = (
        f" ({progress.there:,} {'was' if progress.there == 1 else 'were'} there already)"
        if progress.there
        else ""
    )
    speed = f"{counted(points, 'point')}{already} in {progress.seconds:.2f} s: {rate} points/s"
    print(f"{speed}; {counted(grid.compositions, 'composition')}")
