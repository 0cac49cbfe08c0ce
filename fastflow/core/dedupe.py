"""What repeats among the points of a chunk, so that it is computed once."""

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
def _alike(table: Ints, row: int, other: int) -> bool:
    """Return whether two rows are the same."""
    alike = True
    for column in range(table.shape[1]):
        alike = alike and table[row, column] == table[other, column]
    return alike


@kernel
def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return the first row of each kind, in order, and the place of every row's kind among them.

    table: (rows, columns). Both results count from 0; shapes (kinds,) and (rows,).
    """
    rows = table.shape[0]
    size = 16
    while size < 2 * rows:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    first, place = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    count = 0
    for row in range(rows):
        mixed = np.uint64(0)
        for column in range(table.shape[1]):
            mixed = (mixed ^ np.uint64(table[row, column])) * np.uint64(_MIX)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & np.uint64(size - 1))
        while slots[slot] >= 0 and not _alike(table, first[slots[slot]], row):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot], first[count] = count, row
            count += 1
        place[row] = slots[slot]
    return first[:count].copy(), place


@kernel
def _which_vary(words: NDArray[Any]) -> Bools:
    """Return which columns of a table are not the same in every row, shape (columns,)."""
    varies = np.zeros(words.shape[1], dtype=np.bool_)
    for column in range(words.shape[1]):
        for row in range(1, words.shape[0]):
            if words[row, column] != words[0, column]:
                varies[column] = True
                break
    return varies


def _varying_words(column: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of a column as whole numbers, without those that are the same everywhere.

    Shape (rows, words): one word for a number, some for a text, none where nothing varies.
    """
    if column.dtype.itemsize == 8 and column.ndim == 1:
        numbers = column.view(np.uint64)
        return numbers[:, None] if (numbers != numbers[0]).any() else numbers[:, None][:, :0]
    size = next(size for size in (8, 4, 1) if column.itemsize % size == 0)
    words = np.ascontiguousarray(column).view(f"u{size}").reshape(len(column), -1)
    if words.shape[1] == 1:
        return words if (words != words[0]).any() else words[:, :0]
    return words[:, _which_vary(words)]


def unique_rows(columns: Iterable[NDArray[Any]], rows: int) -> tuple[Ints, Ints]:
    """Return the first row of each kind in some columns, and the place of every row's kind.

    columns: of numbers or texts, each (rows,) or of more axes; numbers are alike if their bits are. Both
    results as `distinct_rows` returns them.
    """
    if rows <= 1:
        return np.arange(rows), np.zeros(rows, dtype=np.int64)
    varying = [_varying_words(column) for column in columns if not is_broadcast(column)]
    table = np.empty((rows, sum(words.shape[1] for words in varying)), dtype=np.int64)
    at = 0
    for words in varying:
        table[:, at : at + words.shape[1]] = words
        at += words.shape[1]
    return distinct_rows(table)


def hashes(columns: Sequence[NDArray[Any]]) -> Words:
    """Return two independent hashes of the rows of some columns of 8-byte numbers, (2, rows)."""
    return mixed(np.zeros((2, columns[0].size), dtype=np.uint64), columns)


def mixed(words: Words, columns: Sequence[NDArray[Any]]) -> Words:
    """Return two hashes of the rows of some columns after what is hashed already, (2, rows)."""
    for column in columns:
        words = (words ^ np.ascontiguousarray(column).view(np.uint64)) * _MULTIPLIERS
        words ^= words >> _HALF
    return words


def compute_unique(
    function: Callable[[Inputs], Result],
    inputs: Inputs,
    *prefixes: str,
    shown: bool = False,
    kept: bool = False,
) -> Result:
    """Return the function's (nested) table for all points, computed on one point of each kind.

    inputs: columns of shape (points,), of which the function reads those whose keys begin with one of
    the prefixes, and sees no others of several points; points that agree in these are of a kind. shown: no
    kernel takes the table, so that a single kind need not be written out (`tables.repeated`). kept: a single
    kind is kept for further calls, which repeat it where they are from Python; nobody writes to the table.
    """
    rows = next(iter(inputs.values())).size
    if rows == 1 and not kept:
        return function(inputs)
    seen = {key: column for key, column in inputs.items() if key.startswith(prefixes)}
    first, place = unique_rows(seen.values(), rows)
    found = _kept(function, values_of(seen)) if kept and first.size == 1 else function(take(seen, first))
    if rows == 1:
        return found
    return repeat(found, rows) if shown and first.size == 1 else take(found, place)


@lru_cache(maxsize=64)
def _kept(function: Callable[[Inputs], Any], values: Values) -> Any:
    """Return the function's table for one point."""
    return function(columns_of(values))


def compute_unique_rows(function: Callable[[Table], Result], table: Table) -> Result:
    """Return the function's table for all rows of another one, computed once for rows that are alike.

    table: columns of shape (rows,).
    """
    first, place = unique_rows(table, table[0].size)
    if 2 * first.size > place.size:  # few repeat: to copy them takes longer
        return function(table)
    return take(function(take(table, first)), place)


def factorize(texts: Texts) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and the place of each row's text among them."""
    first, place = unique_rows([texts], texts.size)
    return texts[first].tolist(), place


def map_values(values: Mapping[str, float], names: Texts) -> Floats:
    """Return the value that a mapping has for each name, shape (points,)."""
    known, place = factorize(names)
    return np.array([values[name] for name in known], dtype=np.float64)[place]
