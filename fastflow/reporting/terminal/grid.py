"""Output of a grid at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.messages import pluralize
from fastflow.core.uncertainty.percentiles import DISTINGUISHABLE, chance
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.unset import max_trials, num_sampled
from fastflow.performance.serving.slo import COMPARED
from fastflow.physics.cost.rent import RENT
from fastflow.physics.parallelism.sharding.layout import LAYERS
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload.graph import LAYER_KINDS
from fastflow.reporting.terminal.cost import cost_title
from fastflow.reporting.terminal.equivalents import equivalent_layouts
from fastflow.reporting.terminal.percentiles import indistinguishable_points
from fastflow.reporting.terminal.tables import (
    VALIDATION_CLASS,
    assumption_lines,
    console,
    ineffective_keys,
    listing,
    print_parts,
    validation_lines,
)
from fastflow.schema import ALL, band_of
from fastflow.schema.results import ASSUMPTIONS, NO_EFFECT
from fastflow.schema.uncertainty import CHANCE

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.engine.dataset.store import Store
    from fastflow.performance.auto.transformer import Search
    from fastflow.reporting.terminal.progress import Progress

_MAX_ROWS = 20  # of a grid on screen; the dataset holds all
_FIRST, _BEST = 10, 5
_MAX_CACHED_PARTS = 8  # of a larger dataset, most parts have no row to show, and texts are slow to read
_STRATEGY_KEY = "parallel.strategy"
_LAYER_STRATEGY_KEYS = {*(f"parallel.{kind}" for kind in LAYER_KINDS), LAYERS}
_INFEASIBLE_KINDS = {
    "no time": ("has no time", "have no time"),
    "memory": ("does not fit its memory", "do not fit their memory"),
}
"""Kinds of infeasible points, in words: singular and plural."""
_INFEASIBLE_SERVERS = {
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
"""Mean latencies, and the columns that limits compare with; shown instead if all rows have a limit."""
_LATENCIES = tuple(name for pair in _COMPARED.items() for name in pair)
_RATES = ("tokens_per_s_per_device", "tokens_per_s_per_user", "prefill_tokens_per_s")
_STATIONARY = "stationary"


class Digest:
    """Summary of a grid: the best points, and the number of infeasible points."""

    def __init__(self, serves: bool = False) -> None:
        """Start empty; serves: rank by tokens per second and device instead of by time."""
        serving_columns = ["devices", _RATES[0], _RATES[2], _STATIONARY] if serves else []
        self.needs = [*serving_columns, "time_s", "feasible"]
        """The columns that `add` reads."""
        self.serves = serves
        self.best: list[int] = []
        self.infeasible = dict.fromkeys(_INFEASIBLE_KINDS, 0)
        self.first: dict[str, int] = {}
        """The first point of each kind."""
        self.not_stationary = 0
        """Feasible points of open loops that are not, of servers."""
        self._seen = 0
        self._ranks: list[tuple[bool, float, int]] = []

    def add(self, part: pa.Table) -> None:
        """Take the next part of the dataset, in point order."""
        # lists: any other conversion of Arrow imports pandas
        time = np.array(part["time_s"].to_pylist(), dtype=np.float64)
        feasible = np.array(part["feasible"].to_pylist(), dtype=np.bool_)
        timed = ~np.isnan(time)
        for kind, rows in zip(self.infeasible, (~timed, timed & ~feasible), strict=True):
            if rows.any():
                self.first.setdefault(kind, self._seen + int(np.argmax(rows)))
                self.infeasible[kind] += int(rows.sum())
        if self.serves:
            state = part[_STATIONARY].to_pylist()
            self.not_stationary += sum(
                is_stationary is False for is_stationary in np.array(state, dtype=object)[feasible]
            )
        value = np.where(timed, -_rates_of(part) if self.serves else time, np.inf)
        # feasible points first, the best first, points without a time last
        for row in np.lexsort((value, ~feasible))[:_BEST].tolist():
            self._ranks.append((not feasible[row], float(value[row]), self._seen + row))
        self._ranks = sorted(self._ranks)[:_BEST]
        self.best = [point for _, _, point in self._ranks]
        self._seen += time.size


def _rates_of(part: pa.Table) -> NDArray[np.float64]:
    """Return tokens per second and device; prompt tokens for a pass of prefill alone."""
    output, prefill, devices = (
        np.array(part[name].to_pylist(), dtype=np.float64) for name in (_RATES[0], _RATES[2], "devices")
    )
    rates: NDArray[np.float64] = np.where(np.isnan(output), prefill / devices, output)
    return np.where(np.isnan(rates), -np.inf, rates)


def show(grid: Grid, store: Store, progress: Progress, selected: Sequence[str] = ()) -> None:
    """Print a digest of a grid, and its speed; selected: columns instead of the default results."""
    out = console()
    columns = grid.keys
    serves = grid.served == ALL
    digest = Digest(serves)
    results = list(selected) or shown_results(grid.served, grid.has_layer_runs)
    results = with_bands(results) if grid.uncertainty is not None and not selected else results
    cuts = [] if serves else ["cuts"]
    wanted = list(
        dict.fromkeys(
            [
                "point",
                *columns,
                "strategy",
                *cuts,
                *results,
                *digest.needs,
                "reason",
                NO_EFFECT.name,
                VALIDATION_CLASS,
            ]
        )
    )

    @cache
    def part(number: int) -> pa.Table:
        return store.read(number, wanted)

    def row(point: int) -> dict[str, Any]:
        number, row_of_part = divmod(point, store.parts.size)
        record: dict[str, Any] = part(number).slice(row_of_part, 1).to_pylist()[0]
        return record

    is_short = store.parts.total <= _MAX_CACHED_PARTS
    for number in range(store.parts.total):
        digest.add(part(number) if is_short else store.read(number, digest.needs))
    head = [row(point) for point in range(min(grid.points, _MAX_ROWS))]
    best = [row(point) for point in digest.best]
    shown = [*head[: _FIRST if grid.points > _MAX_ROWS else None], *best]
    if not selected:
        results = with_limits(results, shown)
    if serves and not selected:
        results = with_values(results, shown)
    columns = list(dict.fromkeys([*with_winners(columns, shown), *results]))
    compared = best if grid.points > _MAX_ROWS else head
    verdict = _add_chances_of_best(grid, best[0], compared)
    if verdict:
        columns.insert(columns.index("feasible") if "feasible" in columns else len(columns), CHANCE.name)
    if grid.points > _MAX_ROWS:
        plain = [name for name in columns if name != CHANCE.name]
        out.print(listing(f"First {_FIRST} of {grid.points:,} points", plain, head[:_FIRST]))
        infeasible = sum(digest.infeasible.values())
        out.print(listing(best_title(serves, infeasible < grid.points), columns, best))
    else:
        out.print(listing(pluralize(grid.points, "point"), columns, head))
    if verdict:
        out.print(verdict)
    if any("usd" in name for name in columns):
        out.print(cost_note(grid))
    about = (*infeasible_lines(digest, grid.points, row), *grid_assumptions(grid), *validation_lines(shown))
    for line in (
        *_unused_arrival_lines(grid),
        *about,
        *_no_effect_lines(grid, store.parts.total, part),
        *_advice_lines(grid, digest),
    ):
        out.print(line)
    out.print()
    _print_speed(grid, progress)


def cost_note(grid: Grid) -> str:
    """Return a line on the kind of the costs of a grid."""
    inputs = {key: column[0].item() for key, column in grid.first_inputs().items()}
    if any(key.partition(".")[0] == "cost" for key in grid.keys):
        return "USD: by each point's own prices"
    if RENT in inputs and len(np.unique(grid.labels["chip"])) > 1:
        del inputs["chip.name"]
    return f"USD: {cost_title(inputs)}"


def grid_assumptions(grid: Grid) -> list[str]:
    """Return lines on the assumptions of the points of a grid."""
    name = ASSUMPTIONS.name
    return assumption_lines({name: text} for text in grid.labels[name].tolist())


def _unused_arrival_lines(grid: Grid) -> Iterator[str]:
    """Yield a line on the arrival times of a file of requests that are not used."""
    if grid.served == ALL:
        from fastflow.reporting.terminal.serving import unused_arrival_lines

        yield from unused_arrival_lines({key: column[0] for key, column in grid.first_inputs().items()})


def _advice_lines(grid: Grid, digest: Digest) -> Iterator[str]:
    """Yield advice if no point fits its memory."""
    if digest.infeasible["memory"] == grid.points and grid.first_inputs()[_STRATEGY_KEY][0] != AUTO:
        best = "the fastest strategy that fits the memory"
        if grid.served == ALL:
            best = "the best layout that is feasible"
        yield f"{_STRATEGY_KEY}={AUTO} takes {best}, if there is one"


def infeasible_lines(digest: Digest, points: int, row: Callable[[int], Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line on each kind of infeasible points, and on open loops that are not stationary.

    row: returns `point` and `reason` of a row.
    """
    kinds = _INFEASIBLE_SERVERS if digest.serves else _INFEASIBLE_KINDS
    for kind, count in digest.infeasible.items():
        if count:
            share = f"{count:,} of {pluralize(points, 'point')} {kinds[kind][points > 1]}"
            first = row(digest.first[kind])
            yield f"{share} (column `reason`); point {first['point']:,}: {first['reason']}"
    if digest.not_stationary:
        share = f"{digest.not_stationary:,} of {pluralize(points, 'point')}"
        yield f"{share} not stationary (column `{_STATIONARY}`): their times may still grow"


def _no_effect_lines(grid: Grid, parts: int, part: Callable[[int], pa.Table]) -> Iterator[str]:
    """Yield a line on each key of the user that does not change some points; part: returns a part."""
    if not grid.unset:
        return
    name = NO_EFFECT.name
    numbers = range(parts if grid.points <= max_trials(grid) else 1)
    texts = [text for number in numbers for text in part(number)[name].to_pylist()]
    for (key, equality), num_points in Counter(
        pair for text in texts for pair in ineffective_keys(text)
    ).items():
        where = (
            "at all points"
            if num_points == len(texts)
            else f"at {num_points:,} of {pluralize(len(texts), 'point')}"
        )
        sampled_note = f" ({num_sampled(grid)} of them were tried)" if grid.points > max_trials(grid) else ""
        yield f"No effect: {key} {where}{sampled_note}: every result is {equality} (column `{name}`)"


def with_bands(results: Sequence[str]) -> list[str]:
    """Return the columns with the ends of their bands; medians are left out."""
    ends = ((name, *(band_of(name)[::2] if name in _BANDED else ())) for name in results)
    return [name for names in ends for name in names]


def _add_chances_of_best(grid: Grid, best: Mapping[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Add to rows the chance that the best point is better; returns a line on indistinguishable points."""
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
    return indistinguishable_points([row["point"] for row in timed], chances, DISTINGUISHABLE)


def shown_results(served: str, is_transformer: bool) -> list[str]:
    """Return the result columns that a grid shows; served: as of `grid.grid.Grid`."""
    if served == ALL:
        return [*_LATENCIES, *_RATES, "feasible"]
    if served:
        return ["time_s", *_LATENCIES, *(_RATES[:1] if is_transformer else []), "feasible"]
    metrics = ["tokens_per_s_per_device", "mfu", "footprint_B"] if is_transformer else ["bound_by"]
    return ["time_s", *metrics, "feasible"]


def with_values(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with a value in some row; rates of prompts only if a row has no other rate.

    Without any value, the columns of the default loads.
    """
    prefill_rows = [row for row in rows if row[_RATES[0]] is None]
    present = [
        name
        for name in results
        if any(row[name] is not None for row in (prefill_rows if name == _RATES[2] else rows))
    ]
    return present if present != ["feasible"] else [name for name in results if name != _RATES[2]]


def with_limits(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns; a latency with a limit stands beside its mean, or replaces it in all rows."""
    left_out = set()
    for mean, compared in _COMPARED.items():
        limited = [row.get(compared) is not None for row in rows if row.get(mean) is not None]
        left_out |= {*([] if any(limited) else [compared]), *([mean] if limited and all(limited) else [])}
    return [name for name in results if name not in left_out]


def best_title(serves: bool, is_feasible: bool) -> str:
    """Return the title of the best points of a grid."""
    if serves:
        return "Most tokens per second and device" + ("" if is_feasible else ", no point feasible")
    return "Fastest feasible points" if is_feasible else "Fastest points, none feasible"


def with_winners(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with the strategy and layer strategies, unless the axes already hold them."""
    cuts = ["cuts"] if any(row.get("cuts") for row in rows) and not _LAYER_STRATEGY_KEYS & {*columns} else []
    if "strategy" in columns:
        return [*columns, *cuts]
    if _STRATEGY_KEY not in columns:
        return [*columns, "strategy", *cuts]
    index = columns.index(_STRATEGY_KEY) + 1
    strategy = ["strategy"] if any(row[_STRATEGY_KEY] == AUTO for row in rows) else []
    return [*columns[:index], *strategy, *cuts, *columns[index:]]


def show_ranking(
    rows: pa.Table,
    shown: str,
    search: Search | None,
    chances: Callable[[Sequence[int]], Sequence[float]] | None = None,
) -> None:
    """Print the best strategies of a ranking, and the path of all; rows: of its dataset.

    search: over the layouts of a transformer, None for other models. chances: returns the chances that the
    best is better than some rows; None without uncertainty.
    """
    out = console()
    chance_columns = [CHANCE.name] if chances else []
    if "tpot_s" in rows.column_names:
        best = rows.slice(0, _FIRST).to_pylist()
        _add_chances(best, chances)
        results = with_limits([*_LATENCIES, *_RATES, "kv_room_B", *chance_columns, "feasible"], best)
        columns = ["strategy", *with_values(results, best)]
        out.print(listing(f"Best of {pluralize(rows.num_rows, 'layout')}", columns, best))
        print_parts(equivalent_layouts(rows, ["strategy"]))
        print(f"Ranking: {shown}")
        return
    options = ["microbatch", "recompute", "zero"] if search else ["placement"]
    metrics = ["mfu", "bubble_s", "footprint_B"] if search else ["footprint_B", "bound_by"]
    columns = ["strategy", *options, "time_s", *metrics, "feasible"]
    unique: dict[Any, dict[str, Any]] = {}
    for row in rows.select(["point", *columns]).to_pylist():
        unique.setdefault((row["time_s"], row["footprint_B"]), row)
    best = list(unique.values())[:_FIRST]
    _add_chances(best, chances)
    columns[-1:-1] = chance_columns
    if search:
        total = pluralize(search.layouts, "layout")
    else:
        total = f"{rows.num_rows:,} {'strategy' if rows.num_rows == 1 else 'strategies'}"
    title = f"Best of {total}, identical results shown once"
    out.print(listing(title, columns, best))
    print_parts(equivalent_layouts(rows, ["strategy", *options]))
    if search:
        print(_search_note(search, rows.num_rows))
    print(f"Ranking: {shown}")


def _add_chances(
    rows: Sequence[dict[str, Any]], chances: Callable[[Sequence[int]], Sequence[float]] | None
) -> None:
    """Add to the rows of a ranking the chance that the first is better."""
    if chances:
        of_others = chances([row["point"] for row in rows[1:]])
        for row, likely in zip(rows, [None, *of_others], strict=True):
            row[CHANCE.name] = likely


def _search_note(search: Search, ranked: int) -> str:
    """Return a line on the predicted layouts, and why the others are not in the ranking."""
    parts = [f"{search.predicted:,} of {pluralize(search.layouts, 'layout')} predicted"]
    if search.num_without_memory:
        parts.append(f"{search.num_without_memory:,} lack memory")
    if search.num_invalid:
        parts.append(f"{search.num_invalid:,} have no time")
    others = search.layouts - search.predicted - search.num_without_memory - search.num_invalid
    if others > 0:
        parts.append(f"{others:,} compute too long to be among the {ranked:,} best")
    return "; ".join(parts)


def _print_speed(grid: Grid, progress: Progress) -> None:
    """Print the number of points, the time and the rate."""
    points = grid.points - progress.there
    if not points:
        print(f"{pluralize(grid.points, 'point')}, all there already")
        return
    rate = f"{progress.rate:,.0f}" if progress.rate >= 10 else f"{progress.rate:.2g}"
    already = (
        f" ({progress.there:,} {'was' if progress.there == 1 else 'were'} there already)"
        if progress.there
        else ""
    )
    speed = f"{pluralize(points, 'point')}{already} in {progress.seconds:.2f} s: {rate} points/s"
    print(f"{speed}; {pluralize(grid.compositions, 'composition')}")
