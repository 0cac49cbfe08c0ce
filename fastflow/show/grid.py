"""Output of a grid at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fastflow.configuration.wording import counted
from fastflow.grid.grid import Grid
from fastflow.parallelism.layout import LAYERS
from fastflow.parallelism.strategy import AUTO
from fastflow.show.tables import console, listing
from fastflow.workload.graph import LAYER_KINDS

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.dataset.store import Store
    from fastflow.optimize.layouts import Search
    from fastflow.show.progress import Progress

_MOST_ROWS = 20  # of a grid on screen; the dataset holds all
_FIRST, _BEST = 10, 5
_FEW_PARTS = 8  # of more, most have no row to show, and texts take long to read
_ASKED = "parallel.strategy"
_OWN = {*(f"parallel.{kind}" for kind in LAYER_KINDS), LAYERS}
_KINDS = {
    "no time": ("has no time", "have no time"),
    "memory": ("does not fit its memory", "do not fit their memory"),
}
"""Kinds of infeasible points, in words for one and for several."""


class Digest:
    """What is shown of a grid: which points are best, and how many are infeasible."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.best: list[int] = []
        self.infeasible = dict.fromkeys(_KINDS, 0)
        self.first: dict[str, int] = {}
        """The first point of each kind."""
        self._seen = 0
        self._ranks: list[tuple[bool, float, int]] = []

    def add(self, part: pa.Table) -> None:
        """Take `time_s` and `feasible` of the next part of the dataset, in point order."""
        # lists: what else Arrow makes of a column is made by way of pandas, which it would import for it
        time = np.array(part["time_s"].to_pylist(), dtype=np.float64)
        feasible = np.array(part["feasible"].to_pylist(), dtype=np.bool_)
        timed = ~np.isnan(time)
        for kind, rows in zip(self.infeasible, (~timed, timed & ~feasible), strict=True):
            if rows.any():
                self.first.setdefault(kind, self._seen + int(np.argmax(rows)))
                self.infeasible[kind] += int(rows.sum())
        # feasible ones first, fastest first, those without a time last
        for place in np.lexsort((time, ~feasible))[:_BEST].tolist():
            took = float(time[place]) if timed[place] else float("inf")
            self._ranks.append((not feasible[place], took, self._seen + place))
        self._ranks = sorted(self._ranks)[:_BEST]
        self.best = [point for _, _, point in self._ranks]
        self._seen += time.size


def show(grid: Grid, store: Store, progress: Progress) -> None:
    """Print a grid in short, and how fast it came."""
    out = console()
    columns = grid.keys
    told = ["tokens_per_s_per_device", "mfu", "footprint_B"] if grid.stacked else ["bound_by"]
    results = ["time_s", *told, "feasible"]
    asked = list(dict.fromkeys(["point", *columns, "strategy", "cuts", *results, "reason"]))

    @cache
    def part(number: int) -> pa.Table:
        return store.read(number, asked)

    def row(point: int) -> dict[str, Any]:
        number, place = divmod(point, store.parts.size)
        found: dict[str, Any] = part(number).slice(place, 1).to_pylist()[0]
        return found

    digest = Digest()
    is_short = store.parts.total <= _FEW_PARTS
    for number in range(store.parts.total):
        digest.add(part(number) if is_short else store.read(number, ["time_s", "feasible"]))
    head = [row(point) for point in range(min(grid.points, _MOST_ROWS))]
    best = [row(point) for point in digest.best]
    columns = [*_with_winners(columns, [*head, *best]), *results]
    if grid.points > _MOST_ROWS:
        out.print(listing(f"First {_FIRST} of {grid.points:,} points", columns, head[:_FIRST]))
        infeasible = sum(digest.infeasible.values())
        title = "Fastest feasible points" if infeasible < grid.points else "Fastest points, none feasible"
        out.print(listing(title, columns, best))
    else:
        out.print(listing(counted(grid.points, "point"), columns, head))
    for kind, count in digest.infeasible.items():
        if count:
            of_all = f"{count:,} of {counted(grid.points, 'point')} {_KINDS[kind][grid.points > 1]}"
            first, reason = digest.first[kind], row(digest.first[kind])["reason"]
            out.print(f"{of_all} (column `reason`); point {first:,}: {reason}")
    if digest.infeasible["memory"] == grid.points and grid.first_inputs()[_ASKED][0] != AUTO:
        out.print(f"{_ASKED}={AUTO} takes the fastest strategy that fits the memory, if there is one")
    out.print()
    _speed(grid, progress)


def _with_winners(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with those of the strategy and of own cuts, unless what was asked for says it."""
    cuts = ["cuts"] if any(row["cuts"] for row in rows) and not _OWN & {*columns} else []
    if "strategy" in columns:
        return [*columns, *cuts]
    if _ASKED not in columns:
        return [*columns, "strategy", *cuts]
    place = columns.index(_ASKED) + 1
    won = ["strategy"] if any(row[_ASKED] == AUTO for row in rows) else []
    return [*columns[:place], *won, *cuts, *columns[place:]]


def show_ranking(rows: pa.Table, shown: str, search: Search | None) -> None:
    """Print the best strategies of a ranking, and where all of them lie; rows: of its dataset.

    search: through the layouts of a transformer, of which these are the best.
    """
    out = console()
    chosen = ["microbatch", "recompute", "zero"] if search else ["placement"]
    told = ["mfu", "bubble_s", "footprint_B"] if search else ["footprint_B", "bound_by"]
    columns = ["strategy", *chosen, "time_s", *told, "feasible"]
    different: dict[Any, dict[str, Any]] = {}
    for row in rows.select(["point", *columns]).to_pylist():
        different.setdefault((row["time_s"], row["footprint_B"]), row)
    if search:
        of_all = counted(search.layouts, "layout")
    else:
        of_all = f"{rows.num_rows:,} {'strategy' if rows.num_rows == 1 else 'strategies'}"
    title = f"Best of {of_all}, identical results shown once"
    out.print(listing(title, columns, list(different.values())[:_FIRST]))
    if search:
        print(_searched(search, rows.num_rows))
    print(f"Ranking: {shown}")


def _searched(search: Search, ranked: int) -> str:
    """Say what was predicted of all layouts, and why the others are not in the ranking."""
    parts = [f"{search.predicted:,} of {counted(search.layouts, 'layout')} predicted"]
    if search.lacking:
        parts.append(f"{search.lacking:,} lack memory")
    if search.untimed:
        parts.append(f"{search.untimed:,} have no time")
    others = search.layouts - search.predicted - search.lacking - search.untimed
    if others > 0:
        parts.append(f"{others:,} compute too long to be among the {ranked:,} best")
    return "; ".join(parts)


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
