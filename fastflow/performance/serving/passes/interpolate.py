"""Linear interpolation in tables of passes, along every axis.

`interpolate_at` reads all points at once, with further axes of a table (limiters, parts of the model): the
sum of the corners around a size, each with its weight. The kernels read a single time, within a simulation.
They go from an interval's start along its slope, which the simulation needs too. Both are the same line, and
round differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints


@np.errstate(invalid="ignore")  # a chip without links takes forever, and has its reason
def interpolate_at(table: Floats, axes: Sequence[Ints], server: Ints, values: Sequence[Floats]) -> Floats:
    """Interpolate a table at sizes of each point; shape (points, ...).

    table: (servers, *sizes, ...), in the order of the axes; server, and each of values: (points,). Beyond the
    last size the table is extrapolated from the last two.
    """
    result = np.zeros((server.size, *table.shape[1 + len(axes) :]))
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
        index = tuple(low + upper for low, upper in zip(lows, corner, strict=True))
        result += weight.reshape(-1, *(1,) * (result.ndim - 1)) * table[(server, *index)]
    return result


@lean_kernel
def interval_of(axis: Ints | Floats, value: float) -> int:
    """Return the index of the entry of an axis at which the interval around a value starts."""
    low, high = 0, axis.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@lean_kernel
def share_of(axis: Ints | Floats, interval: int, value: float) -> float:
    """Return the position of a value in an interval: 0 at its start, 1 at its end, above 1 beyond it."""
    if axis.size == 1:
        return 0.0
    return float((value - axis[interval]) / (axis[interval + 1] - axis[interval]))


@lean_kernel
def interpolate_1d(table: Floats, interval: int, share: float) -> float:
    """Interpolate in a row of a table."""
    if table.size == 1:
        return float(table[0])
    start, end = table[interval], table[interval + 1]
    return float(start + share * (end - start))


@lean_kernel
def interpolate_2d(table: Floats, row: int, row_share: float, interval: int, share: float) -> float:
    """Interpolate in a table of two axes; row_share, share: positions in the intervals of both."""
    value = interpolate_1d(table[row], interval, share)
    if table.shape[0] == 1:
        return value
    return value + row_share * (interpolate_1d(table[row + 1], interval, share) - value)
