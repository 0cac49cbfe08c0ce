"""Struct-of-arrays tables: columns with an entry for each point; taking, concatenating, repeating rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

_NARROW = 2**30 - 1
"""Most that a narrow number may be, with any sign."""

Table = TypeVar("Table", bound=tuple[Any, ...])


def table(cls: type[Table], inputs: Inputs, prefix: str, **overrides: NDArray[Any]) -> Table:
    """Build a struct-of-arrays table whose fields are the inputs under `prefix`, or `overrides`.

    cls: a NamedTuple of columns, each of its own memory, as kernels take them.
    """
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    columns = (overrides[field] if field in overrides else inputs[f"{prefix}.{field}"] for field in fields)
    return cls(*map(np.ascontiguousarray, columns))


def where_read(rows: Bools, inputs: Inputs, key: str, otherwise: float) -> NDArray[Any]:
    """Return an input in the rows that read it, and `otherwise` in the others.

    Raises KeyError where the input is missing and any row reads it.
    """
    return np.where(rows, inputs[key] if rows.any() else otherwise, otherwise)


def broadcast_column(value: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a column that has the same value in every row, as `np.broadcast_to`; value: (1,).

    `is_broadcast` recognises it by its strides. No kernel takes it: for Numba it is of another type.
    """
    if rows == 1:
        return value
    # as `np.broadcast_to`, which takes five times as long: a call has hundreds of these columns
    column: NDArray[Any] = np.ndarray((rows,), value.dtype, value, 0, (0,))
    column.flags.writeable = False
    return column


def is_broadcast(column: NDArray[Any]) -> bool:
    """Return whether a column is known to have the same value in all of its rows."""
    return column.size > 1 and not any(column.strides)


def is_constant(column: NDArray[Any]) -> bool:
    """Return whether all values of a column are equal; a NaN equals none."""
    return bool(column.size == 1 or (column[1:] == column[:-1]).all())


Values = tuple[tuple[str, Any], ...]
"""Columns of one row, as a hashable key."""


def values_of(columns: Inputs) -> Values:
    """Return the first row of columns as values."""
    return tuple((key, column[:1].tolist()[0]) for key, column in columns.items())


def columns_of(values: Values) -> Columns:
    """Return values as columns of one row, (1,) each."""
    return {key: np.array([value]) for key, value in values}


def single(column: NDArray[Any]) -> Any:
    """Return a column of one row as a number, which is faster in Python; other columns as they are."""
    return column.item() if column.size == 1 else column


Rows = TypeVar("Rows")


def map_columns(function: Callable[..., Any], *tables: Any) -> Any:
    """Return a (nested) table or mapping of a function's results, each of the same column of every table."""
    first = tables[0]
    if isinstance(first, dict):
        return {name: map_columns(function, *(table[name] for table in tables)) for name in first}
    if isinstance(first, tuple):
        parts = [map_columns(function, *columns) for columns in zip(*tables, strict=True)]
        return first._make(parts) if hasattr(first, "_make") else tuple(parts)
    return function(*tables)


def replace_rows(table: Rows, rows: Ints, others: Rows) -> Rows:
    """Return a (nested) table with some rows replaced by those of another; texts may become longer."""

    def replaced(column: NDArray[Any], replacement: NDArray[Any]) -> NDArray[Any]:
        result = column.astype(np.result_type(column, replacement))
        result[rows] = replacement
        return result

    merged: Rows = map_columns(replaced, table, others)
    return merged


def take(columns: Rows, rows: Ints) -> Rows:
    """Return some rows of a column, or of every column of a (nested) table or mapping."""
    if isinstance(columns, np.ndarray):
        return columns[rows]  # type: ignore[return-value]
    # most columns are arrays: no further call for them
    if isinstance(columns, dict):
        return {
            name: column[rows] if type(column) is np.ndarray else take(column, rows)
            for name, column in columns.items()
        }  # type: ignore[return-value]
    if isinstance(columns, tuple):
        parts = [column[rows] if type(column) is np.ndarray else take(column, rows) for column in columns]
        return columns._make(parts) if hasattr(columns, "_make") else tuple(parts)  # type: ignore[return-value]
    raise TypeError(f"cannot take rows of a {type(columns).__name__}")


def narrow(column: Ints) -> Ints:
    """Return whole numbers in half of the memory, where the sum of any two of them is within 32 bits."""
    fits = max(column.max(initial=0), -column.min(initial=0)) <= _NARROW
    return column.astype(np.int32) if fits else column


def compact(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column that takes no memory for its rows where all have the same value, or all NaN.

    No kernel takes it, as that of `broadcast_column`.
    """
    first = column[:1].copy()
    same = column == first if (first == first).all() else column != column
    return broadcast_column(first, column.size) if same.all() and column.size else column


def concat_tables(parts: Sequence[Rows]) -> Rows:
    """Return the concatenated rows of (nested) tables or mappings of the same columns, masked or not."""
    return parts[0] if len(parts) == 1 else map_columns(_concat, *parts)


def _concat(*columns: NDArray[Any]) -> NDArray[Any]:
    is_masked = any(isinstance(column, np.ma.MaskedArray) for column in columns)
    return (np.ma if is_masked else np).concatenate(columns)  # type: ignore[no-any-return]


def repeat(columns: Rows, rows: int) -> Rows:
    """Return the only row of a (nested) table broadcast to `rows` rows."""
    if isinstance(columns, np.ndarray):
        return broadcast_column(columns, rows)  # type: ignore[return-value]
    assert isinstance(columns, tuple)
    parts = [repeat(column, rows) for column in columns]
    return columns._make(parts) if hasattr(columns, "_make") else tuple(parts)  # type: ignore[return-value]
