"""Tables of passes read between their sizes: linear along every axis, as iterations are timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.tables import Floats, Ints


@np.errstate(invalid="ignore")  # a chip without links takes forever, and has its reason
def between(table: Floats, axes: Sequence[Ints], server: Ints, values: Sequence[Floats]) -> Floats:
    """Return what a table has at sizes of each point, shape (points, ...).

    table: (servers, *sizes, ...), sizes as the axes list them; server, and each of values: (points,). Beyond
    the last size it goes on as between the last two.
    """
    found = np.zeros((server.size, *table.shape[1 + len(axes) :]))
    lows = [
        np.clip(np.searchsorted(axis, value, side="right") - 1, 0, axis.size - 2)
        for axis, value in zip(axes, values, strict=True)
    ]
    shares = [
        (value - axis[low]) / (axis[low + 1] - axis[low])
        for axis, value, low in zip(axes, values, lows, strict=True)
    ]
    for corner in np.ndindex(*(2,) * len(axes)):
        weight = np.ones(server.size)
        for share, upper in zip(shares, corner, strict=True):
            weight = weight * (share if upper else 1.0 - share)
        place = tuple(low + upper for low, upper in zip(lows, corner, strict=True))
        found += weight.reshape(-1, *(1,) * (found.ndim - 1)) * table[(server, *place)]
    return found
