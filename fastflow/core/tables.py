"""Struct-of-arrays tables: columns with one entry a point, and how rows of them are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Texts = NDArray[np.str_]
Columns = dict[str, NDArray[Any]]
"""Columns by name, each of shape (points,)."""
Inputs = Mapping[str, NDArray[Any]]
"""Input columns: dotted key to an array of shape (points,), numbers in SI units."""

Table = TypeVar("Table", bound=tuple[Any, ...])


def table(cls: type[Table], inputs: Inputs, prefix: str, **given: NDArray[Any]) -> Table:
    """Build a struct-of-arrays table whose fields are the inputs under `prefix`, or `given`.

    cls: a NamedTuple of columns.
    """
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    return cls(*(given[field] if field in given else inputs[f"{prefix}.{field}"] for field in fields))


def where_read(rows: Bools, inputs: Inputs, key: str, otherwise: float) -> NDArray[Any]:
    """Return an input in the rows that read it, and `otherwise` in the others.

    Raises KeyError where the input is missing and any row reads it.
    """
    return np.where(rows, inputs[key] if rows.any() else otherwise, otherwise)


def broadcast_column(value: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a column that has one value in every row; value: (1,).

    `is_broadcast` sees that without a look at the rows. No kernel takes such a column: for Numba it is of a
    type of its own.
    """
    if rows == 1:
        return value
    # as `np.broadcast_to`, which takes five times as long: a call has hundreds of such columns
    column: NDArray[Any] = np.ndarray((rows,), value.dtype, value, 0, (0,))
    column.flags.writeable = False
    return column


def is_broadcast(column: NDArray[Any]) -> bool:
    """Return whether a column is known to have the same value in all of its rows."""
    return column.size > 1 and not any(column.strides)


Values = tuple[tuple[str, Any], ...]
"""Columns of one row, as values by which something can be kept."""


def values_of(columns: Inputs) -> Values:
    """Return the first row of columns as values."""
    return tuple((key, column[:1].tolist()[0]) for key, column in columns.items())


def columns_of(values: Values) -> Columns:
    """Return values as columns of one row, (1,) each."""
    return {key: np.array([value]) for key, value in values}


def single(column: NDArray[Any]) -> Any:
    """Return the value of a column of one row, which Python computes with faster; or the column."""
    return column.item() if column.size == 1 else column


Rows = TypeVar("Rows")


def take(columns: Rows, rows: Ints) -> Rows:
    """Return the given rows of a column, or of every column in a (nested) table or mapping."""
    if isinstance(columns, np.ndarray):
        return columns[rows]  # type: ignore[return-value]
    if isinstance(columns, dict):
        return {name: take(column, rows) for name, column in columns.items()}  # type: ignore[return-value]
    if isinstance(columns, tuple):
        taken = [take(column, rows) for column in columns]
        return columns._make(taken) if hasattr(columns, "_make") else tuple(taken)  # type: ignore[return-value]
    raise TypeError(f"cannot take rows of a {type(columns).__name__}")


def stacked(parts: Sequence[Rows]) -> Rows:
    """Return the rows of some (nested) tables or mappings of the same columns, one table after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)  # type: ignore[arg-type,return-value]
    if isinstance(first, dict):
        return {name: stacked([part[name] for part in parts]) for name in first}  # type: ignore[index,return-value]
    assert isinstance(first, tuple)
    every = [stacked(columns) for columns in zip(*parts, strict=True)]
    return first._make(every) if hasattr(first, "_make") else tuple(every)  # type: ignore[return-value]


def repeat(columns: Rows, rows: int) -> Rows:
    """Return the only row of a (nested) table so many times, as `broadcast_column` does."""
    if isinstance(columns, np.ndarray):
        return broadcast_column(columns, rows)  # type: ignore[return-value]
    assert isinstance(columns, tuple)
    parts = [repeat(column, rows) for column in columns]
    return columns._make(parts) if hasattr(columns, "_make") else tuple(parts)  # type: ignore[return-value]


class Reasons:
    """Why points have no result: the first reason of each that has one, which hardly any has."""

    def __init__(self, points: int) -> None:
        """Start with no reason for any of so many points."""
        self._points = points
        self._first: dict[int, str] = {}

    def add(self, point: int | np.integer[Any], reason: str) -> None:
        """Say why a point has no result, unless that is said already."""
        self._first.setdefault(int(point), reason)

    def without(self, wrong: Bools) -> list[int]:
        """Return the points where something is wrong that have no reason yet; wrong: (points,)."""
        return [i for i in np.flatnonzero(wrong).tolist() if i not in self._first]

    def texts(self) -> Texts:
        """Return every point's reason, or "", (points,)."""
        texts = np.full(self._points, "", dtype=f"U{max(map(len, self._first.values()), default=1)}")
        for point, reason in self._first.items():
            texts[point] = reason
        return texts


def first_of(*reasons: Texts) -> Texts:
    """Return for every point the first text that is not empty, or the empty one."""
    found = reasons[0]
    for reason in reasons[1:]:
        found = np.where(found != "", found, reason)
    return found
