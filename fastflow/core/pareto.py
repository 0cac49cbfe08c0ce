"""Pareto fronts: the designs that no other design dominates in two objectives."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Ints


def nondominated(first: Floats, second: Floats) -> Ints:
    """Return the indices of nondominated points: no other is as good in both objectives and better in one.

    first, second: lower is better, shape (points,). In the order of the first objective; of equal
    points, the first.
    """
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    is_lower = np.ones(order.size, dtype=np.bool_)
    is_lower[1:] = second[order][1:] < least[:-1]
    return order[is_lower]
