"""Summary of a grid: its best points, and lines on its infeasible points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.messages import pluralize
from fastflow.core.reasons.codes import Code
from fastflow.reporting.terminal.grid_columns import RATES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_BEST = 5  # points
SITE_POWER = Code.SITE_POWER.label
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
_ABOVE_LIMIT = ("draws more power than its limit", "draw more power than their limits")
_NOT_FEASIBLE = ("is not feasible", "are not feasible")
_STATIONARY = "stationary"


class Digest:
    """The best points of a grid, and the number of its infeasible points."""

    def __init__(self, serves: bool = False) -> None:
        """Start empty; serves: rank by tokens per second and device instead of by time."""
        serving_columns = ["devices", RATES[0], RATES[2], _STATIONARY] if serves else []
        self.needs = [*serving_columns, "time_s", "feasible", "reason_code"]
        """The columns that `add` reads."""
        self.serves = serves
        self.best: list[int] = []
        self.infeasible = dict.fromkeys(_INFEASIBLE_KINDS, 0)
        self.codes: dict[str, Counter[str]] = {kind: Counter() for kind in _INFEASIBLE_KINDS}
        """The number of points of each code of reasons, of each kind."""
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
                codes = part["reason_code"].to_pylist()
                self.codes[kind].update(codes[row] for row in np.flatnonzero(rows).tolist())
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
        np.array(part[name].to_pylist(), dtype=np.float64) for name in (RATES[0], RATES[2], "devices")
    )
    rates: NDArray[np.float64] = np.where(np.isnan(output), prefill / devices, output)
    return np.where(np.isnan(rates), -np.inf, rates)


def infeasible_lines(digest: Digest, points: int, row: Callable[[int], Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line on each kind of infeasible points, and on open loops that are not stationary.

    row: returns `point` and `reason` of a row.
    """
    kinds = _INFEASIBLE_SERVERS if digest.serves else _INFEASIBLE_KINDS
    for kind, count in digest.infeasible.items():
        if count:
            words = words_of_kind(kinds[kind], digest.codes[kind])
            share = f"{count:,} of {pluralize(points, 'point')} {words[points > 1]}"
            first = row(digest.first[kind])
            codes = _list_codes(digest.codes[kind])
            columns = "columns `reason_code`, `reason`" if codes else "column `reason`"
            yield f"{share}{codes} ({columns}); point {first['point']:,}: {first['reason']}"
    if digest.not_stationary:
        share = f"{digest.not_stationary:,} of {pluralize(points, 'point')}"
        yield f"{share} not stationary (column `{_STATIONARY}`): their times may still grow"


def words_of_kind(words: tuple[str, str], codes: Iterable[str]) -> tuple[str, str]:
    """Return the words for points of a kind, singular and plural; codes: of their reasons."""
    distinct = {*codes}
    if SITE_POWER not in distinct:
        return words
    return _ABOVE_LIMIT if len(distinct) == 1 else _NOT_FEASIBLE


def counts_of_codes(frame: pd.DataFrame) -> str:
    """Return the number of points of each code of reasons, such as ": 60 memory, 24 strategy".

    "" where all have the same, or the dataset is of an older version.
    """
    return _list_codes(Counter(frame["reason_code"])) if "reason_code" in frame else ""


def _list_codes(codes: Counter[str]) -> str:
    return (
        ": " + ", ".join(f"{count:,} {code}" for code, count in codes.most_common()) if len(codes) > 1 else ""
    )


def best_title(serves: bool, is_feasible: bool) -> str:
    """Return the title of the best points of a grid."""
    if serves:
        return "Most tokens per second and device" + ("" if is_feasible else ", no point feasible")
    return "Fastest feasible points" if is_feasible else "Fastest points, none feasible"
