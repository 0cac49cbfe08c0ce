"""Which runs of a collector find DeepGEMM's kernel for their product compiled.

DeepGEMM compiles a kernel for each weight and layout of tiles when it is first needed, and keeps it on disk,
where other processes find it. The collector (ai-dynamo/aiconfigurator@095f58a, collect_gemm.py) deals the
products of a weight to eight devices, those of most rows first. A device that needs a layout while another
still compiles it compiles it, too.

Layouts are those that DeepGEMM chooses on Blackwell (deepseek-ai/DeepGEMM@0274ad7, heuristics/sm100.hpp):
tiles of 128 rows and some columns of C, or of some rows and 128 columns. A single wave is best; then pairs of
SMs that share their loads, fewer waves, a fuller last wave, and smaller tiles.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Ints

DEVICES = 8
SMS = 148  # of a B200, whose powers the collector read
WIDE = 128  # side of a tile beside the one that a layout chooses
FEW_ROWS = (32, 64)  # up to which a tile has so many rows, where it chooses its columns
COLUMNS = (16, *range(32, 257, 32))
TILE_ROWS = range(16, 257, 16)
CASES = (
    32768, 16384, 8192, *(256 * i + more for i in range(17, 0, -1) for more in (1, 0)), 225, 224, 193, 192,
    161, 160, 129, 128, 113, 112, 97, 96, 81, 80, 65, 64, 49, 48, 33, 32, *range(17, 0, -1),
)  # fmt: skip
"""Rows of the products of a weight, in their order (gemm.yaml of the same repository)."""


class Layout(NamedTuple):
    """Tiles of C."""

    rows: int
    columns: int
    swapped: bool  # whether C is made transposed
    pairs: bool  # whether pairs of SMs share loads


def layout(m: int, n: int) -> Layout:
    """Return the layout for C of m x n."""
    few = min((rows for rows in FEW_ROWS if m <= rows), default=WIDE)
    candidates = [Layout(few, columns, False, -(-m // few) % 2 == 0) for columns in COLUMNS]
    candidates += [Layout(rows, WIDE, True, -(-n // WIDE) % 2 == 0) for rows in TILE_ROWS]

    def preference(tiles: Layout) -> tuple[int, ...]:
        blocks = -(-m // tiles.rows) * -(-n // tiles.columns)
        waves = -(-blocks // SMS)
        last = blocks - (waves - 1) * SMS
        size = tiles.rows + tiles.columns, tiles.rows * tiles.columns
        return min(waves, 2), -int(tiles.pairs), waves, -last, *size

    return min(candidates, key=preference)


def finds_compiled(m: Ints, n: Ints) -> Bools:
    """Return which products of m rows and n columns find their kernel; all (rows,).

    Products of other rows than those of the collector are taken as the next ones of more rows.
    """
    columns, which = np.unique(n, return_inverse=True)
    first = np.array([_first_cases(each) for each in columns.tolist()]).reshape(-1, len(CASES))
    case = np.maximum(np.searchsorted(-np.array(CASES), -m, side="right") - 1, 0)
    is_compiled: Bools = case - first[which, case] >= DEVICES
    return is_compiled


@cache
def _first_cases(n: int) -> list[int]:
    """Return the first case that needs the layout of each case."""
    layouts = [layout(m, n) for m in CASES]
    return [layouts.index(each) for each in layouts]
