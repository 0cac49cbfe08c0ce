"""Columns of reasons: numbers of codes, and the reasons of the few points that have one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.reasons.codes import Code, Reason
from fastflow.core.tables import Bools, Columns, Ints, Texts, broadcast_column, concat_tables, take

LABELS = np.array([code.label for code in Code])
"""Labels of codes, by their number."""


class ReasonColumn(NamedTuple):
    """Why points are not feasible; (points,). `core.tables.take` and `concat_tables` take it as any table."""

    code: NDArray[np.int8]  # numbers of codes, 0 where there is no reason
    reason: NDArray[np.object_]  # Reason, or None

    @property
    def exists(self) -> Bools:
        """Whether a point has a reason, (points,)."""
        exists: Bools = self.code != Code.NONE
        return exists

    @property
    def size(self) -> int:
        """The number of points."""
        return self.code.size

    def at(self, point: int | np.integer[Any]) -> Reason | None:
        """Return a point's reason, None where it has none."""
        reason: Reason | None = self.reason[point]
        return reason

    def first(self) -> Reason:
        """Return the first reason of any point; raises IndexError where there is none."""
        reason: Reason = self.reason[np.flatnonzero(self.code)[0]]
        return reason

    def where(self, kept: Bools) -> ReasonColumn:
        """Return the column without the reasons of points that are not in `kept`, (points,)."""
        if kept.all() or not self.code.any():
            return self
        return take(concat_tables([self, no_reasons(1)]), np.where(kept, np.arange(self.size), self.size))

    def replaced(self, rows: Ints, others: ReasonColumn) -> ReasonColumn:
        """Return the column with the reasons of some points replaced; others: (rows,)."""
        code, reason = self.code.copy(), self.reason.copy()
        code[rows], reason[rows] = others
        return ReasonColumn(code, reason)

    def texts(self, short: bool = False) -> Texts:
        """Return every point's text, or "", (points,); short: as of `Reason.short`."""
        rows = np.flatnonzero(self.code)
        if not rows.size:
            return broadcast_column(np.array([""]), self.size)
        reasons = self.reason[rows].tolist()
        distinct = {id(reason): reason for reason in reasons}  # many points share a reason
        number = dict(zip(distinct, range(len(distinct)), strict=True))
        written = np.array([reason.short if short else str(reason) for reason in distinct.values()])
        texts = np.full(self.size, "", dtype=written.dtype)
        texts[rows] = written[np.array([number[id(reason)] for reason in reasons])]
        return texts

    def columns(self) -> Columns:
        """Return the result columns `reason` and `reason_code`."""
        if not self.code.any():
            none = broadcast_column(np.array([""]), self.size)
            return {"reason": none, "reason_code": none}
        return {"reason": self.texts(), "reason_code": LABELS[self.code]}


def no_reasons(points: int) -> ReasonColumn:
    """Return a column without any reason."""
    return ReasonColumn(np.zeros(points, dtype=np.int8), np.full(points, None, dtype=object))


def column_of(reasons: Iterable[Reason | None]) -> ReasonColumn:
    """Return reasons of points as a column."""
    each = list(reasons)
    code = np.array([0 if reason is None else reason.code for reason in each], dtype=np.int8)
    column = np.empty(len(each), dtype=object)
    column[:] = each
    return ReasonColumn(code, column)


def same_reason(wrong: Bools, reason: Reason) -> ReasonColumn:
    """Return a column with the same reason for all points in `wrong`, (points,)."""
    return take(column_of([None, reason]), np.asarray(wrong, dtype=np.int64))


def first_reasons(*columns: ReasonColumn) -> ReasonColumn:
    """Return every point's first reason, if any."""
    first = columns[0]
    for column in columns[1:]:
        if column.code.any():
            has = first.exists
            code = np.where(has, first.code, column.code)
            first = ReasonColumn(code, np.where(has, first.reason, column.reason))
    return first


class Reasons:
    """Reasons of points as they are found: the first of each point counts; few points have one."""

    def __init__(self, points: int) -> None:
        """Take the number of points."""
        self._points = points
        self._first: dict[int, Reason] = {}

    def add(self, point: int | np.integer[Any], reason: Reason) -> None:
        """Add the reason why a point has no result, unless it has a reason already."""
        self._first.setdefault(int(point), reason)

    def without(self, wrong: Bools) -> list[int]:
        """Return the indices of the points in `wrong`, (points,), that have no reason yet."""
        if not wrong.any():
            return []
        return [i for i in np.flatnonzero(wrong).tolist() if i not in self._first]

    def column(self) -> ReasonColumn:
        """Return every point's reason, (points,)."""
        column = no_reasons(self._points)
        for point, reason in self._first.items():
            column.code[point], column.reason[point] = reason.code, reason
        return column
