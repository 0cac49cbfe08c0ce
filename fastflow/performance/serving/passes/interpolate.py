"""Tables of passes read between their sizes: linear along every axis, as iterations are timed.

`between` reads columns of points, the kernels one point. Their lines are the same, their rounding is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.jit import lean_kernel
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


@lean_kernel
def piece_of(axis: Ints, value: float) -> int:
    """Return the entry of an axis at which the straight piece around a value starts."""
    low, high = 0, axis.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def share_of(axis: Ints, piece: int, value: float) -> float:
    """Return how far a value is along a piece: 0 at its start, 1 at its end, more beyond the last one."""
    if axis.size == 1:
        return 0.0
    return float((value - axis[piece]) / (axis[piece + 1] - axis[piece]))


@lean_kernel
def along(table: Floats, piece: int, share: float) -> float:
    """Interpolate in a row of a table."""
    if table.size == 1:
        return float(table[0])
    start, end = table[piece], table[piece + 1]
    return float(start + share * (end - start))


@lean_kernel
def across(table: Floats, row: int, of_rows: float, piece: int, share: float) -> float:
    """Interpolate in a table of two axes; of_rows, share: how far along the pieces of both."""
    before = along(table[row], piece, share)
    if table.shape[0] == 1:
        return before
    return before + of_rows * (along(table[row + 1], piece, share) - before)
