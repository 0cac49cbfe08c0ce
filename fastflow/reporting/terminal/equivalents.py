"""Candidates that are equivalent to the best: their objective is within a tolerance of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.optimizers.ranges import TOLERANCE
from fastflow.config.messages import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

_RANKING_RATES = ("tokens_per_s_per_device", "prefill_tokens_per_s")
"""Rates that layouts of servers are ranked by; the first that they have counts."""
LAYOUT_ERROR = 0.08
"""How far the predicted ratio of the times of two layouts of a job is from the measured one, in the median of
the pairs of 87 published training runs of 14 jobs (docs/validation.md)."""
_MAX_NAMED = 6
"""Candidates that are listed by name."""


def equivalent_candidates(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], tolerance: float, noun: str
) -> Iterator[str]:
    """Yield a sentence on the candidates within the tolerance of the best, if there are several.

    rows: with their `gap` to the best, None or NaN for a candidate that does not count, and with the labels;
    the best first. noun: the word for a candidate.
    """
    equivalent = [row for row in rows if row["gap"] is not None and row["gap"] <= tolerance]
    if len(rows) < 2 or not equivalent or not tolerance:
        return
    names = [name for name in labels if len({row[name] for row in rows}) > 1] or ["strategy"]
    examples = [" ".join(_label(name, row[name]) for name in names) for row in equivalent[:_MAX_NAMED]]
    more = f" and {len(equivalent) - _MAX_NAMED:,} others" if len(equivalent) > _MAX_NAMED else ""
    share = f"{len(equivalent):,} of {pluralize(len(rows), noun)}"
    yield f"{share} within {100.0 * tolerance:g}% of the best: {', '.join(examples)}{more}"


def _label(name: str, value: Any) -> str:
    """Write a label of a candidate: a text by itself, a number after its name."""
    is_text = isinstance(value, str) and "." not in name
    return value if is_text else f"{name.rpartition('.')[2]}={value}"


def equivalent_layouts(
    ranking: pa.Table, labels: Sequence[str], tolerance: float = TOLERANCE
) -> Iterator[str]:
    """Yield a sentence on the layouts as good as the first of a ranking; equal results count once.

    tolerance: relative, within which a layout is as good.
    """
    names = (*_RANKING_RATES, "time_s") if "tpot_s" in ranking.column_names else ("time_s",)
    rows = ranking.select([*labels, "footprint_B", "feasible", *names]).to_pylist()
    metric = next(name for name in names if rows[0][name] is not None)
    first = rows[0][metric]
    unique: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in rows:
        unique.setdefault((row[metric], row["footprint_B"]), row)
        is_comparable = row["feasible"] == rows[0]["feasible"] and row[metric] is not None
        row["gap"] = _gap(first, row[metric], metric in _RANKING_RATES) if is_comparable else None
    yield from equivalent_candidates(list(unique.values()), labels, tolerance, "layout")


def _gap(first: float, other: float, is_rate: bool) -> float:
    """Return the relative distance of a time above the first, or of a rate below it."""
    return (first / other if is_rate else other / first) - 1.0
