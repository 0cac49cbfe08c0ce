"""Unique rows of columns, as `np.unique` finds them, and functions that are computed once for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import kernel
from fastflow.core.tables import (
    Bools,
    Floats,
    Inputs,
    Ints,
    Texts,
    Values,
    columns_of,
    is_broadcast,
    repeat,
    take,
    values_of,
)

Result = TypeVar("Result")
Table = TypeVar("Table", bound=tuple[NDArray[Any], ...])

Words = NDArray[np.uint64]

_MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, section 6.4)
_MULTIPLIERS = np.array([[_MIX], [0xC2B2AE3D27D4EB4F]], dtype=np.uint64)  # odd, with bits all over
_HALF = np.uint64(32)


@kernel
def _rows_equal(table: Ints, row: int, other: int) -> bool:
    """Return whether two rows are equal."""
    is_equal = True
    for column in range(table.shape[1]):
        is_equal = is_equal and table[row, column] == table[other, column]
    return is_equal


@kernel
def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return the indices of the unique rows, in order of their first occurrence, and the inverse.

    table: (rows, columns). Shapes (unique,) and (rows,): row i equals the row `first[inverse[i]]`.
    """
    rows = table.shape[0]
    size = 16
    while size < 2 * rows:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    first, inverse = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    count = 0
    for row in range(rows):
        hashed = np.uint64(0)
        for column in range(table.shape[1]):
            hashed = (hashed ^ np.uint64(table[row, column])) * np.uint64(_MIX)
            hashed ^= hashed >> np.uint64(32)
        slot = np.int64(hashed & np.uint64(size - 1))
        while slots[slot] >= 0 and not _rows_equal(table, first[slots[slot]], row):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot], first[count] = count, row
            count += 1
        inverse[row] = slots[slot]
    return first[:count].copy(), inverse


@kernel
def _which_vary(words: NDArray[Any]) -> Bools:
    """Return which columns of a table vary from row to row, shape (columns,)."""
    varies = np.zeros(words.shape[1], dtype=np.bool_)
    for column in range(words.shape[1]):
        for row in range(1, words.shape[0]):
            if words[row, column] != words[0, column]:
                varies[column] = True
                break
    return varies


def _varying_words(column: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of a column as integers, without words that are the same in every row.

    Shape (rows, words): one word for a number, some for a text, none where nothing varies.
    """
    if column.dtype.itemsize == 8 and column.ndim == 1:
        numbers = column.view(np.uint64)
        # faster than `any`: a call has hundreds of columns
        return numbers[:, None] if np.count_nonzero(numbers != numbers[0]) else numbers[:, None][:, :0]
    size = next(size for size in (8, 4, 1) if column.itemsize % size == 0)
    words = np.ascontiguousarray(column).view(f"u{size}").reshape(len(column), -1)
    if words.shape[1] == 1:
        return words if np.count_nonzero(words != words[0]) else words[:, :0]
    return words[:, _which_vary(words)]


def unique_rows(columns: Iterable[NDArray[Any]], rows: int) -> tuple[Ints, Ints]:
    """Return the indices of the unique rows of some columns, and the inverse.

    columns: of numbers or texts, each (rows,) or of more axes; numbers are equal if their bits are. Both
    results as `distinct_rows` returns them.
    """
    if rows <= 1:
        return np.arange(rows), np.zeros(rows, dtype=np.int64)
    varying = [_varying_words(column) for column in columns if not is_broadcast(column)]
    table = np.empty((rows, sum(words.shape[1] for words in varying)), dtype=np.int64)
    start = 0
    for words in varying:
        table[:, start : start + words.shape[1]] = words
        start += words.shape[1]
    return distinct_rows(table) if start else (np.zeros(1, dtype=np.int64), np.zeros(rows, dtype=np.int64))


def hashes(columns: Sequence[NDArray[Any]]) -> Words:
    """Return two independent hashes of the rows of some columns of 8-byte numbers, (2, rows)."""
    return update_hashes(np.zeros((2, columns[0].size), dtype=np.uint64), columns)


def update_hashes(words: Words, columns: Sequence[NDArray[Any]]) -> Words:
    """Return two hashes of the rows of some columns, continued from the hashes `words`, (2, rows)."""
    for column in columns:
        words = (words ^ np.ascontiguousarray(column).view(np.uint64)) * _MULTIPLIERS
        words ^= words >> _HALF
    return words


def compute_unique(
    function: Callable[[Inputs], Result],
    inputs: Inputs,
    *prefixes: str,
    broadcast: bool = False,
    cached: bool = False,
) -> Result:
    """Return the function's (nested) table for all points, computed on the unique points only.

    inputs: columns of shape (points,). The function reads the columns whose keys begin with one of the
    prefixes, and gets no others; points that are equal in these are computed once. broadcast: no kernel takes
    the table, so that a single row can be repeated as `tables.repeat` does. cached: the result of a single
    unique point is kept for further calls; nobody writes to the table.
    """
    rows = next(iter(inputs.values())).size
    if rows == 1 and not cached:
        return function(inputs)
    read = {key: column for key, column in inputs.items() if key.startswith(prefixes)}
    first, inverse = unique_rows(read.values(), rows)
    result: Result
    if cached and first.size == 1:
        result = _cached_result(function, values_of(read))
    else:
        result = function(take(read, first))
    if rows == 1:
        return result
    return repeat(result, rows) if broadcast and first.size == 1 else take(result, inverse)


@lru_cache(maxsize=64)
def _cached_result(function: Callable[[Inputs], Any], values: Values) -> Any:
    """Return the function's table for one point."""
    return function(columns_of(values))


def compute_unique_rows(function: Callable[[Table], Result], table: Table) -> Result:
    """Return the function's table for all rows of another table, computed on the unique rows only.

    table: columns of shape (rows,).
    """
    first, inverse = unique_rows(table, table[0].size)
    if 2 * first.size > inverse.size:  # few rows repeat: to copy them takes longer
        return function(table)
    return take(function(take(table, first)), inverse)


def factorize(texts: Texts) -> tuple[list[str], Ints]:
    """Return the unique texts of a column, and the index of each row's text, as `pandas.factorize`."""
    first, inverse = unique_rows([texts], texts.size)
    return texts[first].tolist(), inverse


def map_values(values: Mapping[str, float], names: Texts) -> Floats:
    """Return the mapped value of each name, shape (points,), as `pandas.Series.map`."""
    return map_each((values,), names)[0]


def map_each(mappings: Iterable[Mapping[str, float]], names: Texts) -> list[Floats]:
    """Return, for each of some mappings, the mapped value of each name, shape (points,)."""
    keys, inverse = factorize(names)
    return [np.array([values[name] for name in keys], dtype=np.float64)[inverse] for values in mappings]
