"""Which candidates are as good as the best one: those whose objective is within a tolerance of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastflow.analysis.search.optimizers.ranges import TOLERANCE
from fastflow.config.messages import counted

if TYPE_CHECKING:
    import pyarrow as pa

_RATES = ("tokens_per_s_per_device", "prefill_tokens_per_s")
"""What layouts of servers are ranked by: the first one that they have."""
_NAMED = 6
"""Candidates that are named."""


def as_good(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], tolerance: float, what: str
) -> Iterator[str]:
    """Say which candidates are within the tolerance of the best one, where there are several.

    rows: their `gap` to it, None or NaN where one does not count, and labels, the best one first; what: one
    of them is.
    """
    near = [row for row in rows if row["gap"] is not None and row["gap"] <= tolerance]
    if len(rows) < 2 or not near or not tolerance:
        return
    names = [name for name in labels if len({row[name] for row in rows}) > 1] or ["strategy"]
    named = [" ".join(_label(name, row[name]) for name in names) for row in near[:_NAMED]]
    more = f" and {len(near) - _NAMED:,} others" if len(near) > _NAMED else ""
    of_all = counted(len(rows), what)
    yield f"{len(near):,} of {of_all} within {100.0 * tolerance:g}% of the best: {', '.join(named)}{more}"


def _label(name: str, value: Any) -> str:
    """Write what tells a candidate apart: a text by itself, a number after its name."""
    is_text = isinstance(value, str) and "." not in name
    return value if is_text else f"{name.rpartition('.')[2]}={value}"


def layouts_as_good(ranking: pa.Table, labels: Sequence[str]) -> Iterator[str]:
    """Say which layouts of a point's ranking are as good as its first one; those alike count as one."""
    names = (*_RATES, "time_s") if "tpot_s" in ranking.column_names else ("time_s",)
    rows = ranking.select([*labels, "footprint_B", "feasible", *names]).to_pylist()
    by = next(name for name in names if rows[0][name] is not None)
    first = rows[0][by]
    different: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in rows:
        different.setdefault((row[by], row["footprint_B"]), row)
        is_comparable = row["feasible"] == rows[0]["feasible"] and row[by] is not None
        row["gap"] = _gap(first, row[by], by in _RATES) if is_comparable else None
    yield from as_good(list(different.values()), labels, TOLERANCE, "layout")


def _gap(first: float, other: float, is_rate: bool) -> float:
    """Return by how much a time is above the first, or a rate below it, relative."""
    return (first / other if is_rate else other / first) - 1.0
