"""Columns of a grid's tables: the results that its points have, their bands and limits, and the strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.performance.serving.slo import COMPARED
from fastflow.physics.parallelism.sharding.layout import LAYERS
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload.graph import LAYER_KINDS
from fastflow.schema import ALL, band_of

STRATEGY_KEY = "parallel.strategy"
_LAYER_STRATEGY_KEYS = {*(f"parallel.{kind}" for kind in LAYER_KINDS), LAYERS}
_BANDED = ("time_s", "tokens_per_s_per_device", "tpot_s")
"""Columns whose bands are shown."""
_COMPARED = {f"{name}_s": column for name, column in COMPARED.items()}
"""Mean latencies, and the columns that limits compare with; shown instead if all rows have a limit."""
LATENCIES = tuple(name for pair in _COMPARED.items() for name in pair)
RATES = ("tokens_per_s_per_device", "tokens_per_s_per_user", "prefill_tokens_per_s")


def shown_results(served: str, is_transformer: bool) -> list[str]:
    """Return the result columns that a grid shows; served: as of `grid.grid.Grid`."""
    if served == ALL:
        return [*LATENCIES, *RATES, "feasible"]
    if served:
        return ["time_s", *LATENCIES, *(RATES[:1] if is_transformer else []), "feasible"]
    metrics = ["tokens_per_s_per_device", "mfu", "footprint_B"] if is_transformer else ["bound_by"]
    return ["time_s", *metrics, "feasible"]


def present_results(results: Sequence[str], rows: Sequence[Mapping[str, Any]], serves: bool) -> list[str]:
    """Return the result columns of some rows: latencies by their limits, and of servers no empty column."""
    names = _with_limits(results, rows)
    return _with_values(names, rows) if serves else names


def _with_values(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with a value in some row; rates of prompts only if a row has no other rate.

    Without any value, the columns of the default loads.
    """
    prefill_rows = [row for row in rows if row[RATES[0]] is None]
    present = [
        name
        for name in results
        if any(row[name] is not None for row in (prefill_rows if name == RATES[2] else rows))
    ]
    return present if present != ["feasible"] else [name for name in results if name != RATES[2]]


def _with_limits(results: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns; a limited latency follows its mean, or replaces it if all rows have a limit."""
    left_out = set()
    for mean, compared in _COMPARED.items():
        limited = [row.get(compared) is not None for row in rows if row.get(mean) is not None]
        left_out |= {*([] if any(limited) else [compared]), *([mean] if limited and all(limited) else [])}
    return [name for name in results if name not in left_out]


def with_bands(results: Sequence[str]) -> list[str]:
    """Return the columns with the ends of their bands; medians are left out."""
    ends = ((name, *(band_of(name)[::2] if name in _BANDED else ())) for name in results)
    return [name for names in ends for name in names]


def with_winners(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with the strategy and layer strategies, unless the axes already hold them."""
    cuts = (
        ["layer_strategies"]
        if any(row.get("layer_strategies") for row in rows) and not _LAYER_STRATEGY_KEYS & {*columns}
        else []
    )
    if "strategy" in columns:
        return [*columns, *cuts]
    if STRATEGY_KEY not in columns:
        return [*columns, "strategy", *cuts]
    index = columns.index(STRATEGY_KEY) + 1
    strategy = ["strategy"] if any(row[STRATEGY_KEY] == AUTO for row in rows) else []
    return [*columns[:index], *strategy, *cuts, *columns[index:]]
