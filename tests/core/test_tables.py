"""Columns that repeat one value."""

import numpy as np
import pytest

from fastflow.core.tables import broadcast_column, compact, is_broadcast, narrow


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
@pytest.mark.parametrize("value", [1.5, 7, True, "n7"])
def test_a_repeated_value_is_as_numpy_broadcasts_it(rows, value):
    column = broadcast_column(np.array([value]), rows)
    expected = np.broadcast_to(np.array([value]), (rows,))
    assert (column.dtype, column.tolist()) == (expected.dtype, expected.tolist())
    assert is_broadcast(column) == (rows > 1)


@pytest.mark.parametrize(
    ("values", "bits"), [([], 32), ([1 - 2**30, 2**30 - 1], 32), ([2**30], 64), ([0, -(2**30)], 64)]
)
def test_whole_numbers_are_narrow_where_sums_of_two_are(values, bits):
    column = np.array(values, dtype=np.int64)
    got = narrow(column)
    assert got.tolist() == values
    assert got.dtype.itemsize * 8 == bits


@pytest.mark.parametrize(
    ("values", "is_alike"),
    [
        ([], False), ([3], False), ([3, 3], True), ([3, 3, 4], False), ([False] * 4, True),
        ([np.nan] * 3, True), ([np.nan, 1.0], False), ([1.0, np.nan], False),
    ],
)  # fmt: skip
def test_a_column_of_one_value_takes_no_memory(values, is_alike):
    column = np.array(values)
    got = compact(column)
    assert np.array_equal(got, column, equal_nan=column.dtype.kind == "f")
    assert (got.dtype, is_broadcast(got)) == (column.dtype, is_alike)
