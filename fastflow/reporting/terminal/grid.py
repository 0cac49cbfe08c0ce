"""Output of a grid at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fastflow.config.messages import pluralize
from fastflow.core.uncertainty.percentiles import DISTINGUISHABLE, chance
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.unset import max_trials, num_sampled
from fastflow.physics.cost.rent import RENT
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.reporting.terminal.cost import cost_title
from fastflow.reporting.terminal.digest import SITE_POWER, Digest, best_title, infeasible_lines
from fastflow.reporting.terminal.grid_columns import (
    RATES,
    STRATEGY_KEY,
    present_results,
    shown_results,
    with_bands,
    with_winners,
)
from fastflow.reporting.terminal.percentiles import indistinguishable_points
from fastflow.reporting.terminal.tables import (
    VALIDATION_CLASS,
    Part,
    assumption_lines,
    ineffective_keys,
    listing,
    print_parts,
    validation_lines,
)
from fastflow.schema import ALL
from fastflow.schema.results import ASSUMPTIONS, NO_EFFECT
from fastflow.schema.uncertainty import CHANCE

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.engine.dataset.store import Store
    from fastflow.reporting.terminal.progress import Progress

_MAX_ROWS = 20  # of a grid on screen; the dataset holds all
_FIRST = 10  # of a longer grid
_MAX_CACHED_PARTS = 8  # of a larger dataset, most parts have no row to show, and texts are slow to read


class _Rows:
    """Rows of a grid's dataset; few parts are read once and kept."""

    def __init__(self, store: Store, columns: Sequence[str]) -> None:
        """columns: those of a row."""
        self.part: Callable[[int], pa.Table] = cache(lambda number: store.read(number, columns))
        """Returns a part of the dataset by its number."""
        self._store = store

    def row(self, point: int) -> dict[str, Any]:
        """Return the row of a point."""
        number, row_of_part = divmod(point, self._store.parts.size)
        record: dict[str, Any] = self.part(number).slice(row_of_part, 1).to_pylist()[0]
        return record

    def summarize(self, digest: Digest) -> None:
        """Add all parts to a digest."""
        is_short = self._store.parts.total <= _MAX_CACHED_PARTS
        for number in range(self._store.parts.total):
            digest.add(self.part(number) if is_short else self._store.read(number, digest.needs))


def show(grid: Grid, store: Store, progress: Progress, selected: Sequence[str] = ()) -> None:
    """Print a digest of a grid, and its speed; selected: columns instead of the default results."""
    digest = Digest(grid.served == ALL)
    results = list(selected) or _default_results(grid)
    rows = _Rows(store, _read_columns(grid, results, digest))
    rows.summarize(digest)
    head = [rows.row(point) for point in range(_FIRST if _is_long(grid) else grid.points)]
    best = [rows.row(point) for point in digest.best]
    shown = [*head, *best]
    if not selected:
        results = present_results(results, shown, digest.serves)
    columns = list(dict.fromkeys([*with_winners(grid.keys, shown), *results]))
    print_parts(_tables(grid, digest, columns, head, best))
    if any("usd" in name for name in columns):
        print_parts([cost_note(grid)])
    print_parts(
        [
            *_unused_arrival_lines(grid),
            *infeasible_lines(digest, grid.points, rows.row),
            *grid_assumptions(grid),
            *validation_lines(shown),
            *_no_effect_lines(grid, store.parts.total, rows.part),
            *_advice_lines(grid, digest),
            "",
        ]
    )
    _print_speed(grid, progress)


def _is_long(grid: Grid) -> bool:
    """Return whether a grid is shown by its first and its best points, for it has more than a table."""
    return grid.points > _MAX_ROWS


def _default_results(grid: Grid) -> list[str]:
    """Return the result columns of a grid, with their bands under uncertainty."""
    results = shown_results(grid.served, grid.has_layer_runs)
    if grid.chooses_devices and DEVICES not in grid.keys:
        results = ["devices", *results]
    return with_bands(results) if grid.uncertainty is not None else results


def _read_columns(grid: Grid, results: Sequence[str], digest: Digest) -> list[str]:
    """Return the columns to read of a grid's dataset."""
    strategy = ["strategy"] if digest.serves else ["strategy", "layer_strategies"]
    notes = ["reason", NO_EFFECT.name, VALIDATION_CLASS]
    return list(dict.fromkeys(["point", *grid.keys, *strategy, *results, *digest.needs, *notes]))


def _tables(
    grid: Grid, digest: Digest, columns: list[str], head: list[dict[str, Any]], best: list[dict[str, Any]]
) -> Iterator[Part]:
    """Yield the tables of a grid's points, and a line on those that may be as good as the best.

    head, best: rows of the first points, and of the best; they get the chance that the best is better.
    """
    is_long = _is_long(grid)
    verdict = _add_chances_of_best(grid, best[0], best if is_long else head)
    with_chances = list(columns)
    if verdict:
        index = columns.index("feasible") if "feasible" in columns else len(columns)
        with_chances.insert(index, CHANCE.name)
    if is_long:
        is_feasible = sum(digest.infeasible.values()) < grid.points
        yield listing(f"First {_FIRST} of {grid.points:,} points", columns, head)
        yield listing(best_title(digest.serves, is_feasible), with_chances, best)
    else:
        yield listing(pluralize(grid.points, "point"), with_chances, head)
    if verdict:
        yield verdict


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
    if digest.infeasible["memory"] == grid.points and grid.first_inputs()[STRATEGY_KEY][0] != AUTO:
        best = "the fastest strategy that fits the memory"
        if SITE_POWER in digest.codes["memory"]:
            best += " within limits of power"
        if grid.served == ALL:
            best = "the best layout that is feasible"
        yield f"{STRATEGY_KEY}={AUTO} takes {best}, if there is one"


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


def _add_chances_of_best(grid: Grid, best: Mapping[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Add to rows the chance that the best point is better; returns a line on indistinguishable points."""
    timed = [row for row in others if row["time_s"] is not None and row["point"] != best["point"]]
    if grid.uncertainty is None or best["time_s"] is None or not timed:
        return ""
    from fastflow.engine.run.monte_carlo import samples_of

    serves = grid.served == ALL
    name = RATES[0] if serves else "time_s"
    first, *rest = samples_of(grid, [row["point"] for row in (best, *timed)], [name])
    chances = [float(chance(first[name], other[name], serves)) for other in rest]
    for row, likely in zip(timed, chances, strict=True):
        row[CHANCE.name] = likely
    return indistinguishable_points([row["point"] for row in timed], chances, DISTINGUISHABLE)


def _print_speed(grid: Grid, progress: Progress) -> None:
    """Print the number of points, the time and the rate."""
    points = grid.points - progress.num_stored
    if not points:
        print(f"{pluralize(grid.points, 'point')}, all there already")
        return
    rate = f"{progress.rate:,.0f}" if progress.rate >= 10 else f"{progress.rate:.2g}"
    already = (
        f" ({progress.num_stored:,} {'was' if progress.num_stored == 1 else 'were'} there already)"
        if progress.num_stored
        else ""
    )
    speed = f"{pluralize(points, 'point')}{already} in {progress.seconds:.2f} s: {rate} points/s"
    print(speed)
