"""Output of a ranking of strategies, as `auto` makes it: the best ones, and the path of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.optimizers.ranges import TOLERANCE
from fastflow.config.messages import pluralize
from fastflow.reporting.terminal.equivalents import LAYOUT_ERROR, equivalent_layouts
from fastflow.reporting.terminal.grid_columns import LATENCIES, RATES, present_results
from fastflow.reporting.terminal.tables import Part, listing, print_parts
from fastflow.schema.uncertainty import CHANCE

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.performance.auto.transformer import Search

_MAX_ROWS = 10


def show(
    rows: pa.Table,
    path: str,
    search: Search | None,
    chances: Callable[[Sequence[int]], Sequence[float]] | None = None,
) -> None:
    """Print the best strategies of a ranking, and the path of all; rows: of its dataset.

    search: over the layouts of a transformer, None for other models. chances: returns the chances that the
    best is better than some rows; None without uncertainty.
    """
    serves = "tpot_s" in rows.column_names
    print_parts(_server_parts(rows, chances) if serves else _iteration_parts(rows, search, chances))
    if search and not serves:
        print(_search_note(search, rows.num_rows))
    print(f"Ranking: {path}")


def _server_parts(
    rows: pa.Table, chances: Callable[[Sequence[int]], Sequence[float]] | None
) -> Iterator[Part]:
    """Yield the best layouts of a server as a table, and a line on their equivalents."""
    best = rows.slice(0, _MAX_ROWS).to_pylist()
    _add_chances(best, chances)
    results = [*LATENCIES, *RATES, "kv_cache_capacity_B", *([CHANCE.name] if chances else []), "feasible"]
    columns = ["strategy", *present_results(results, best, serves=True)]
    yield listing(f"Best of {pluralize(rows.num_rows, 'layout')}", columns, best)
    yield from equivalent_layouts(rows, ["strategy"])


def _iteration_parts(
    rows: pa.Table, search: Search | None, chances: Callable[[Sequence[int]], Sequence[float]] | None
) -> Iterator[Part]:
    """Yield the best strategies of a training iteration as a table, and a line on their equivalents."""
    options = ["microbatch", "recompute", "zero"] if search else ["placement"]
    metrics = ["mfu", "bubble_s", "footprint_B"] if search else ["footprint_B", "bound_by"]
    columns = ["strategy", *options, "time_s", *metrics, "feasible"]
    unique: dict[Any, dict[str, Any]] = {}
    for row in rows.select(["point", *columns]).to_pylist():
        unique.setdefault((row["time_s"], row["footprint_B"]), row)
    best = list(unique.values())[:_MAX_ROWS]
    _add_chances(best, chances)
    columns[-1:-1] = [CHANCE.name] if chances else []
    if search:
        total = pluralize(search.layouts, "layout")
    else:
        total = f"{rows.num_rows:,} {'strategy' if rows.num_rows == 1 else 'strategies'}"
    yield listing(f"Best of {total}, identical results shown once", columns, best)
    equivalents = [*equivalent_layouts(rows, ["strategy", *options], LAYOUT_ERROR if search else TOLERANCE)]
    yield from equivalents
    if search and equivalents:
        yield "These are equal as far as fastflow can tell: ratios of measured layouts are as far off"


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
