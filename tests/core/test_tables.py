"""Columns that repeat one value."""

import numpy as np
import pytest

from fastflow.core.tables import broadcast_column, is_broadcast


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
@pytest.mark.parametrize("value", [1.5, 7, True, "n7"])
def test_a_repeated_value_is_as_numpy_broadcasts_it(rows, value):
    column = broadcast_column(np.array([value]), rows)
    expected = np.broadcast_to(np.array([value]), (rows,))
    assert (column.dtype, column.tolist()) == (expected.dtype, expected.tolist())
    assert is_broadcast(column) == (rows > 1)
