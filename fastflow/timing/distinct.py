"""Which rows of a table are alike, so that what repeats is computed once."""

from __future__ import annotations

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Floats, Ints

_MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, section 6.4)


@kernel
def distinct_rows(table: Floats) -> tuple[Ints, Ints]:
    """Return the first row of each kind, in order, and the place of every row's kind among them.

    table: (rows, columns), not NaN. Both results count from 0; shapes (kinds,) and (rows,).
    """
    rows = table.shape[0]
    size = 16
    while size < 2 * rows:
        size *= 2
    slots = np.full(size, -1, dtype=np.int64)
    first, place = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    bits = table.view(np.uint64)
    kinds = 0
    for row in range(rows):
        mixed = np.uint64(0)
        for column in range(table.shape[1]):
            mixed = (mixed ^ bits[row, column]) * np.uint64(_MIX)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & np.uint64(size - 1))
        while slots[slot] >= 0 and not (table[first[slots[slot]]] == table[row]).all():
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot], first[kinds] = kinds, row
            kinds += 1
        place[row] = slots[slot]
    return first[:kinds].copy(), place
