"""Tile sets: the tiles of a GEMM that the search tries at a level of on-chip memory (6.2).

Every tile's sides are powers of two, so that tiles divide each other. A tile (m, k, n) of a level
holds its parts of A, B and C and fits an instance of the level. A set is one of

*random*, the paper's: N tiles from a fixed, seeded sequence of directions. A tile grows along a
direction by doubling one dimension at a time until the next doubling would not fit.

*divisors*: every power-of-two tile that fits, N = 0.

The tiles of the private level, the outermost level that is not shared by the chip (such as L1 of an SM), are
distributed over its instances, which work in parallel. There a smaller tile can win, since it occupies more
instances: a random tile stops at a share of the capacity that is drawn with its direction, one of 1, 1/2, ...
1/32.

A *thinned* set leaves out tiles that cannot win, whatever the GEMM:
  - duplicates;
  - at the private level, a tile that another tile of the same m and n exceeds in k;
  - inside of that level, a tile that another tile contains: it moves no fewer bytes;
  - outside of it the same in a set of all power-of-two tiles, which has the smaller tiles of the private
    level too. A random set need not have them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints

PARTIAL_SUM_BYTES = 4.0
MAX_DOUBLINGS = 40  # 2^40 exceeds every side that the registry allows
_SIZES = 6
_PLASTIC = 1.2207440846057596  # the real root of x^4 = x + 1


class TileSets(NamedTuple):
    """Tiles of many sets in rows: set i has rows `offset[i]` to `offset[i + 1]`; the rest is (tiles,).

    m, k, n are exponents: a tile's side along m is 2^m. A set is closed, (sets,), if it contains
    every tile of it clipped along m or n.
    """

    offset: Ints
    closed: Bools
    m: Ints
    k: Ints
    n: Ints


@kernel
def tile_bytes(m: float, k: float, n: float, element_bytes: float) -> float:
    """Return the bytes of the parts of A, B and C in an m x k x n tile."""
    return element_bytes * (m * k + k * n) + PARTIAL_SUM_BYTES * m * n


@kernel
def set_direction(level: int, sample: int, seed: int, direction: Floats) -> float:
    """Write the growth direction of a level's n-th tile into `direction`, (3,): shares that sum to 1.

    Returns the draw in [0, 1) that determines its size. Both are of the R3 sequence, which has low
    discrepancy (Roberts, The Unreasonable Effectiveness of Quasirandom Sequences, 2018), another
    section of it for every seed and level. The first N tiles of a longer search are those of a search
    of N, so more samples never give a worse time.
    """
    index = 1.0 + sample + 1000.0 * level + 7919.0 * seed
    first, second = (0.5 + index / _PLASTIC) % 1.0, (0.5 + index / _PLASTIC**2) % 1.0
    direction[0] = min(first, second)
    direction[1] = max(first, second) - direction[0]
    direction[2] = 1.0 - max(first, second)
    return (0.5 + index / _PLASTIC**3) % 1.0


@kernel
def grow_tile(direction: Floats, room: float, element_bytes: float, tile: Ints) -> None:
    """Write the exponents of the tile that grows along a direction until it fills the room [B], (3,)."""
    tile[:] = 0
    step = 0.0
    while True:
        step += 1.0
        longest_axis = 0
        for axis in range(1, 3):
            if direction[axis] * step - tile[axis] > direction[longest_axis] * step - tile[longest_axis]:
                longest_axis = axis
        tile[longest_axis] += 1
        if tile_bytes(2.0 ** tile[0], 2.0 ** tile[1], 2.0 ** tile[2], element_bytes) > room:
            tile[longest_axis] -= 1
            return


@kernel
def _draw(
    capacity: float, element_bytes: float, level: int, distributed: bool, samples: int, seed: int, tiles: Ints
) -> int:
    """Write a random set into `tiles`; returns the number of tiles."""
    direction = np.empty(3)
    for sample in range(samples):
        size = set_direction(level, sample, seed, direction)
        room = capacity / 2.0 ** np.floor(_SIZES * size) if distributed else capacity
        grow_tile(direction, room, element_bytes, tiles[sample])
    return samples


@kernel
def _longest(m: int, n: int, element_bytes: float, capacity: float) -> int:
    """Return the largest exponent of k with which a tile fits, -1 if none does."""
    if max(m, n) > MAX_DOUBLINGS:
        return -1
    rows, columns = float(1 << m), float(1 << n)
    most = (capacity - PARTIAL_SUM_BYTES * rows * columns) / (element_bytes * (rows + columns))
    return min(math.frexp(most)[1] - 1, MAX_DOUBLINGS) if most >= 1.0 else -1


@kernel
def _enumerate(capacity: float, element_bytes: float, distributed: bool, thinned: bool, tiles: Ints) -> int:
    """Write all power-of-two tiles into `tiles`; returns the number of tiles."""
    count = 0
    for m in range(MAX_DOUBLINGS + 1):
        for n in range(MAX_DOUBLINGS + 1):
            longest = _longest(m, n, element_bytes, capacity)
            if m + n == 0:
                longest = max(longest, 0)
            if longest < 0:
                break
            contained = longest <= max(
                _longest(m + 1, n, element_bytes, capacity), _longest(m, n + 1, element_bytes, capacity)
            )
            if thinned and contained and not distributed:
                continue
            for k in range(longest if thinned else 0, longest + 1):
                tiles[count, 0], tiles[count, 1], tiles[count, 2] = m, k, n
                count += 1
    return count


@kernel
def _thin(tiles: Ints, count: int, inside: bool, distributed: bool) -> int:
    """Drop tiles that cannot win from a random set, in order; returns the number of tiles left."""
    dropped = np.zeros(count, dtype=np.bool_)
    for i in range(count):
        for j in range(count):
            m, k, n = tiles[j, 0] - tiles[i, 0], tiles[j, 1] - tiles[i, 1], tiles[j, 2] - tiles[i, 2]
            is_duplicate = m == 0 and k == 0 and n == 0
            is_dominated = (inside and m >= 0 and k >= 0 and n >= 0) or (
                distributed and m == 0 and n == 0 and k >= 0
            )
            if (
                not dropped[j]
                and i != j
                and ((is_duplicate and j < i) or (is_dominated and not is_duplicate))
            ):
                dropped[i] = True
    remaining = 0
    for i in range(count):
        if not dropped[i]:
            _copy_tiles(tiles, i, 1, tiles, remaining)
            remaining += 1
    return remaining


@kernel
def _copy_tiles(tiles: Ints, start: int, count: int, to: Ints, at: int) -> None:
    """Copy tiles from one table to another; or forwards within one.

    With slices it would take half a second to compile, mostly for the text of an error.
    """
    for i in range(count):
        for axis in range(3):
            to[at + i, axis] = tiles[start + i, axis]


@kernel
def _list_tiles(
    capacity: Floats, element_bytes: Floats, level: Ints, private_level: Ints, samples: Ints, seed: Ints,
    thinned: bool,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Return the row offset of each set, (sets + 1,), and a table with the tiles of all sets, (rows, 3)."""
    sets = capacity.size
    offset = np.zeros(sets + 1, dtype=np.int64)
    most = 0
    all_tiles = (MAX_DOUBLINGS + 1) ** 2 * (1 if thinned else MAX_DOUBLINGS + 1)
    for i in range(sets):
        most = max(most, samples[i] if samples[i] else all_tiles)
    set_tiles = np.empty((most, 3), dtype=np.int64)
    tiles = np.empty((most, 3), dtype=np.int64)
    total = 0
    for i in range(sets):
        distributed = level[i] == private_level[i]
        inside = level[i] < private_level[i] or private_level[i] < 0
        if samples[i] == 0:
            count = _enumerate(capacity[i], element_bytes[i], distributed, thinned, set_tiles)
        else:
            count = _draw(
                capacity[i], element_bytes[i], level[i], distributed, samples[i], seed[i], set_tiles
            )
            if thinned:
                count = _thin(set_tiles, count, inside, distributed)
        if total + count > len(tiles):
            larger = np.empty((2 * (total + count), 3), dtype=np.int64)
            _copy_tiles(tiles, 0, total, larger, 0)
            tiles = larger
        _copy_tiles(set_tiles, 0, count, tiles, total)
        total += count
        offset[i + 1] = total
    return offset, tiles


def make_tile_sets(
    capacity: Floats, element_bytes: Floats, level: Ints, private_level: Ints, samples: Ints, seed: Ints,
    thinned: bool,
) -> TileSets:  # fmt: skip
    """Return tile sets; every argument but the last of shape (sets,).

    capacity: of one instance of the level [B]; private_level: the level whose tiles are distributed
    over its instances, -1 for none; samples: N, or 0 for all power-of-two tiles; thinned: leave out tiles
    that cannot win. Where nothing fits, a tile is one element of each operand.
    """
    offset, tiles = _list_tiles(capacity, element_bytes, level, private_level, samples, seed, thinned)
    m, k, n = np.ascontiguousarray(tiles[: offset[-1]].T)
    return TileSets(offset=offset, closed=samples == 0, m=m, k=k, n=n)
