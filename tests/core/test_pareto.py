"""Fronts of two objectives against the definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.pareto import nondominated
from tests.support.checks import cases


def dominated(a, b):
    """Whether b is at least as good in both, and better in one."""
    return b[0] <= a[0] and b[1] <= a[1] and b != a


@cases(60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_is_what_nobody_dominates(points):
    first, second = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    rows = nondominated(first, second)
    found = [points[row] for row in rows]
    assert sorted(set(found)) == found  # in order, alike ones once
    assert set(found) == {one for one in points if not any(dominated(one, other) for other in points)}
