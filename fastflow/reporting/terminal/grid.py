"""Output of a grid at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.messages import counted
from fastflow.core.uncertainty.percentiles import TOLD_APART, chance
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.unset import max_trials, num_sampled
from fastflow.performance.serving.slo import COMPARED
from fastflow.physics.cost.rent import RENT
from fastflow.physics.parallelism.sharding.layout import LAYERS
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload.graph import LAYER_KINDS
from fastflow.reporting.terminal.cost import title_of_cost
from fastflow.reporting.terminal.equivalents import layouts_as_good
from fastflow.reporting.terminal.percentiles import alike
from fastflow.reporting.terminal.tables import (
    CLASS,
    assumption_lines,
    console,
    listing,
    tell,
    validation_lines,
    without_effect,
)
from fastflow.schema import ALL, band_of
from fastflow.schema.results import ASSUMPTIONS, NO_EFFECT
from fastflow.schema.uncertainty import CHANCE

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.engine.dataset.store import Store
    from fastflow.performance.auto.transformer import Search
    from fastflow.reporting.terminal.progress import Progress

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
_OF_SERVERS = {
    "no time": ("has no results", "have no results"),
    "memory": (
        "lacks memory, is overloaded or misses serve.slo",
        "lack memory, are overloaded or miss serve.slo",
    ),
}
"""The same of points that serve."""
_BANDED = ("time_s", "tokens_per_s_per_device", "tpot_s")
"""Columns whose bands are shown."""
_COMPARED = {f"{name}_s": column for name, column in COMPARED.items()}
"""A time's mean, and what its limit is compared with, which is shown in place of it where all have one."""
_LATENCIES = tuple(name for pair in _COMPARED.items() for name in pair)
_RATES = ("tokens_per_s_per_device", "tokens_per_s_per_user", "prefill_tokens_per_s")
_STATIONARY = "stationary"


class Digest:
    """What is shown of a grid: which points are best, and how many are infeasible."""

    def __init__(self, serves: bool = False) -> None:
        """Start with nothing seen; serves: most tokens a second and device are best, not the least time."""
        own = ["devices", _RATES[0], _RATES[2], _STATIONARY] if serves else []
        self.needs = [*own, "time_s", "feasible"]
        """The columns that it takes."""
        self.serves = serves
        self.best: list[int] = []
        self.infeasible = dict.fromkeys(_KINDS, 0)
        self.first: dict[str, int] = {}
        """The first point of each kind."""
        self.not_stationary = 0
        """Feasible points of open loops that are not, of servers."""
        self._seen = 0
        self._ranks: list[tuple[bool, float, int]] = []

    def add(self, part: pa.Table) -> None:
        """Take the next part of the dataset, in point order."""
        # lists: what else Arrow makes of a column is made by way of pandas, which it would import for it
        time = np.array(part["time_s"].to_pylist(), dtype=np.float64)
        feasible = np.array(part["feasible"].to_pylist(), dtype=np.bool_)
        timed = ~np.isnan(time)
        for kind, rows in zip(self.infeasible, (~timed, timed & ~feasible), strict=True):
            if rows.any():
                self.first.setdefault(kind, self._seen + int(np.argmax(rows)))
                self.infeasible[kind] += int(rows.sum())
        if self.serves:
            state = part[_STATIONARY].to_pylist()
            self.not_stationary += sum(one is False for one in np.array(state, dtype=object)[feasible])
        value = np.where(timed, -_rates_of(part) if self.serves else time, np.inf)
        # feasible ones first, the best first, those without a time last
        for place in np.lexsort((value, ~feasible))[:_BEST].tolist():
            self._ranks.append((not feasible[place], float(value[place]), self._seen + place))
        self._ranks = sorted(self._ranks)[:_BEST]
        self.best = [point for _, _, point in self._ranks]
        self._seen += time.size


def _rates_of(part: pa.Table) -> NDArray[np.float64]:
    """Return tokens a second and device; of passes over prompts alone, those of prompts."""
    own, prompts, devices = (
        np.array(part[name].to_pylist(), dtype=np.float64) for name in (_RATES[0], _RATES[2], "devices")
    )
    rates: NDArray[np.float64] = np.where(np.isnan(own), prompts / devices, own)
    return np.where(np.isnan(rates), -np.inf, rates)


def show(grid: Grid, store: Store, progress: Progress, chosen: Sequence[str] = ()) -> None:
    """Print a grid in short, and how fast it came; chosen: columns in the place of the usual results."""
    out = console()
    columns = grid.keys
    serves = grid.served == ALL
    digest = Digest(serves)
    results = list(chosen) or results_of(grid.served, grid.has_layer_runs)
    results = with_bands(results) if grid.uncertainty is not None and not chosen else results
    cuts = [] if serves else ["cuts"]
    asked = list(
        dict.fromkeys(
            ["point", *columns, "strategy", *cuts, *results, *digest.needs, "reason", NO_EFFECT.name, CLASS]
        )
    )

    @cache
    def part(number: int) -> pa.Table:
        return store.read(number, asked)

    def row(point: int) -> dict[str, Any]:
        number, place = divmod(point, store.parts.size)
        found: dict[str, Any] = part(number).slice(place, 1).to_pylist()[0]
        return found

    is_short = store.parts.total <= _FEW_PARTS
    for number in range(store.parts.total):
        digest.add(part(number) if is_short else store.read(number, digest.needs))
    head = [row(point) for point in range(min(grid.points, _MOST_ROWS))]
    best = [row(point) for point in digest.best]
    shown = [*head[: _FIRST if grid.points > _MOST_ROWS else None], *best]
    if not chosen:
        results = with_limits(results, shown)
    if serves and not chosen:
        results = with_values(results, shown)
    columns = list(dict.fromkeys([*with_winners(columns, shown), *results]))
    judged = best if grid.points > _MOST_ROWS else head
    verdict = _judge(grid, best[0], judged)
    if verdict:
        columns.insert(columns.index("feasible") if "feasible" in columns else len(columns), CHANCE.name)
    if grid.points > _MOST_ROWS:
        plain = [name for name in columns if name != CHANCE.name]
        out.print(listing(f"First {_FIRST} of {grid.points:,} points", plain, head[:_FIRST]))
        infeasible = sum(digest.infeasible.values())
        out.print(listing(title_of(serves, infeasible < grid.points), columns, best))
    else:
        out.print(listing(counted(grid.points, "point"), columns, head))
    if verdict:
        out.print(verdict)
    if any("usd" in name for name in columns):
        out.print(kind_of_cost(grid))
    about = (*lacking(digest, grid.points, row), *assumed(grid), *validation_lines(shown))
    for line in (*_unused(grid), *about, *_no_effect(grid, store.parts.total, part), *_advice(grid, digest)):
        out.print(line)
    out.print()
    _speed(grid, progress)


def kind_of_cost(grid: Grid) -> str:
    """Say what the dollars of a grid are."""
    inputs = {key: column[0].item() for key, column in grid.first_inputs().items()}
    if any(key.partition(".")[0] == "cost" for key in grid.keys):
        return "USD: by each point's own prices"
    if RENT in inputs and len(np.unique(grid.labels["chip"])) > 1:
        del inputs["chip.name"]
    return f"USD: {title_of_cost(inputs)}"


def assumed(grid: Grid) -> list[str]:
    """Return lines on what the points of a grid take that was not asked for."""
    name = ASSUMPTIONS.name
    return assumption_lines({name: text} for text in grid.labels[name].tolist())


def _unused(grid: Grid) -> Iterator[str]:
    """Yield a line on times of arrival of a file of requests that are not used."""
    if grid.served == ALL:
        from fastflow.reporting.terminal.serving import unused_arrivals

        yield from unused_arrivals({key: column[0] for key, column in grid.first_inputs().items()})


def _advice(grid: Grid, digest: Digest) -> Iterator[str]:
    """Yield what to ask for where no point fits its memory."""
    if digest.infeasible["memory"] == grid.points and grid.first_inputs()[_ASKED][0] != AUTO:
        best_of = "the fastest strategy that fits the memory"
        if grid.served == ALL:
            best_of = "the best layout that is feasible"
        yield f"{_ASKED}={AUTO} takes {best_of}, if there is one"


def lacking(digest: Digest, points: int, row: Callable[[int], Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line on each kind of infeasible points, and on those of open loops that are not stationary.

    row: returns `point` and `reason` at a place.
    """
    kinds = _OF_SERVERS if digest.serves else _KINDS
    for kind, count in digest.infeasible.items():
        if count:
            of_all = f"{count:,} of {counted(points, 'point')} {kinds[kind][points > 1]}"
            first = row(digest.first[kind])
            yield f"{of_all} (column `reason`); point {first['point']:,}: {first['reason']}"
    if digest.not_stationary:
        of_all = f"{digest.not_stationary:,} of {counted(points, 'point')}"
        yield f"{of_all} not stationary (column `{_STATIONARY}`): their times may still grow"


def _no_effect(grid: Grid, parts: int, part: Callable[[int], pa.Table]) -> Iterator[str]:
    """Yield a line on each of the user's keys that changes nothing of some points; part: returns a part."""
    if not grid.unset:
        return
    name = NO_EFFECT.name
    numbers = range(parts if grid.points <= max_trials(grid) else 1)
    read = [text for number in numbers for text in part(number)[name].to_pylist()]
    for (key, same), points in Counter(said for text in read for said in without_effect(text)).items():
        where = "at all points" if points == len(read) else f"at {points:,} of {counted(len(read), 'point')}"
        tried = f" ({num_sampled(grid)} of them were tried)" if grid.points > max_trials(grid) else ""
        yield f"No effect: {key} {where}{tried}: every result is {same} (column `{name}`)"


def with_bands(results: Sequence[str]) -> list[str]:
    """Return the columns with the ends of their bands; medians are left out."""
    ends = ((name, *(band_of(name)[::2] if name in _BANDED else ())) for name in results)
    return [name for names in ends for name in names]


def _judge(grid: Grid, best: Mapping[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Add to rows how likely the best one is better than each; returns which cannot be told from it."""
    timed = [row for row in others if row["time_s"] is not None and row["point"] != best["point"]]
    if grid.uncertainty is None or best["time_s"] is None or not timed:
        return ""
    from fastflow.engine.run.monte_carlo import samples_of

    serves = grid.served == ALL
    name = _RATES[0] if serves else "time_s"
    first, *rest = samples_of(grid, [row["point"] for row in (best, *timed)], [name])
    chances = [float(chance(first[name], other[name], serves)) for other in rest]
    for row, likely in zip(timed, chances, strict=True):
        row[CHANCE.name] = likely
    return alike([row["point"] for row in timed], chances, TOLD_APART)


def results_of(served: str, stacked: bool) -> list[str]:
    """Return the result columns that are shown of a grid; served, stacked: as of `grid.grid.Grid`."""
    if served == ALL:
        return [*_LATENCIES, *_RATES, "feasible"]
    if served:
        return ["time_s", *_LATENCIES, *(_RATES[:1] if stacked else []), "feasible"]
    told = ["tokens_per_s_per_device", "mfu", "footprint_B"] if stacked else ["bound_by"]
    return ["time_s", *told, "feasible"]


def with_values(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that some row has a value of; rates of prompts only where a row has no others.

    All of those of the usual loads where no row has any.
    """
    lacking = [row for row in rows if row[_RATES[0]] is None]
    found = [
        name
        for name in results
        if any(row[name] is not None for row in (lacking if name == _RATES[2] else rows))
    ]
    return found if found != ["feasible"] else [name for name in results if name != _RATES[2]]


def with_limits(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with what limits are compared with where some row has it, for means where all do."""
    left_out = set()
    for mean, compared in _COMPARED.items():
        limited = [row.get(compared) is not None for row in rows if row.get(mean) is not None]
        left_out |= {*([] if any(limited) else [compared]), *([mean] if limited and all(limited) else [])}
    return [name for name in results if name not in left_out]


def title_of(serves: bool, is_feasible: bool) -> str:
    """Return the title of the best points of a grid."""
    if serves:
        return "Most tokens per second and device" + ("" if is_feasible else ", no point feasible")
    return "Fastest feasible points" if is_feasible else "Fastest points, none feasible"


def with_winners(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with those of the strategy and of own cuts, unless what was asked for says it."""
    cuts = ["cuts"] if any(row.get("cuts") for row in rows) and not _OWN & {*columns} else []
    if "strategy" in columns:
        return [*columns, *cuts]
    if _ASKED not in columns:
        return [*columns, "strategy", *cuts]
    place = columns.index(_ASKED) + 1
    won = ["strategy"] if any(row[_ASKED] == AUTO for row in rows) else []
    return [*columns[:place], *won, *cuts, *columns[place:]]


def show_ranking(
    rows: pa.Table,
    shown: str,
    search: Search | None,
    chances: Callable[[Sequence[int]], Sequence[float]] | None = None,
) -> None:
    """Print the best strategies of a ranking, and where all of them lie; rows: of its dataset.

    search: through the layouts of a transformer, of which these are the best. chances: how likely the best is
    better than those of some rows, None where nothing is uncertain.
    """
    out = console()
    likely = [CHANCE.name] if chances else []
    if "tpot_s" in rows.column_names:
        best = rows.slice(0, _FIRST).to_pylist()
        _add_chances(best, chances)
        results = with_limits([*_LATENCIES, *_RATES, "kv_room_B", *likely, "feasible"], best)
        columns = ["strategy", *with_values(results, best)]
        out.print(listing(f"Best of {counted(rows.num_rows, 'layout')}", columns, best))
        tell(layouts_as_good(rows, ["strategy"]))
        print(f"Ranking: {shown}")
        return
    chosen = ["microbatch", "recompute", "zero"] if search else ["placement"]
    told = ["mfu", "bubble_s", "footprint_B"] if search else ["footprint_B", "bound_by"]
    columns = ["strategy", *chosen, "time_s", *told, "feasible"]
    different: dict[Any, dict[str, Any]] = {}
    for row in rows.select(["point", *columns]).to_pylist():
        different.setdefault((row["time_s"], row["footprint_B"]), row)
    best = list(different.values())[:_FIRST]
    _add_chances(best, chances)
    columns[-1:-1] = likely
    if search:
        of_all = counted(search.layouts, "layout")
    else:
        of_all = f"{rows.num_rows:,} {'strategy' if rows.num_rows == 1 else 'strategies'}"
    title = f"Best of {of_all}, identical results shown once"
    out.print(listing(title, columns, best))
    tell(layouts_as_good(rows, ["strategy", *chosen]))
    if search:
        print(_searched(search, rows.num_rows))
    print(f"Ranking: {shown}")


def _add_chances(
    rows: Sequence[dict[str, Any]], chances: Callable[[Sequence[int]], Sequence[float]] | None
) -> None:
    """Add to the rows of a ranking how likely the first of them is better."""
    if chances:
        found = chances([row["point"] for row in rows[1:]])
        for row, likely in zip(rows, [None, *found], strict=True):
            row[CHANCE.name] = likely


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
