"""Pareto fronts: the designs that no other beats in both objectives."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Ints


def nondominated(first: Floats, second: Floats) -> Ints:
    """Return the places of points that no other is at least as good as in both objectives, and better in one.

    first, second: lower is better, shape (points,). In the order of the first objective; of points that are
    alike, the first one.
    """
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    falls = np.ones(order.size, dtype=np.bool_)
    falls[1:] = second[order][1:] < least[:-1]
    return order[falls]
