"""The candidate tiles of one GEMM at every level, and how a path goes on from one to the next (6.1, 6.2)."""

from __future__ import annotations

import numpy as np

from fastflow._jit import lean_kernel
from fastflow.tables import Floats, Ints
from fastflow.timing.search_space import (
    COMPUTE,
    FILLED,
    IDLE,
    INVERSE,
    PART,
    PARTS,
    PER_K,
    PER_M,
    PER_N,
    VISITS,
    K,
    M,
    N,
    Problem,
)


@lean_kernel
def _waves(problem: Problem, tiles: float, volume: float) -> tuple[float, float]:
    """Return the compute time [s] of so many tiles over their level's instances and the idle factor."""
    at_work = np.ceil(tiles / problem.instances) * problem.instances
    return max(problem.floor, 2.0 * at_work * volume / problem.flops), at_work / tiles


@lean_kernel
def deal(problem: Problem, sides: Floats, m: int, n: int, part: int) -> tuple[float, float]:
    """Distribute tiles over the instances of their level, each over a part of the inner dimension.

    m, n, part: exponents. Returns the compute time [s] and the idle factor.
    """
    tiles = sides[VISITS, M, m] * sides[VISITS, N, n] * sides[VISITS, K, part] * problem.batch
    volume = sides[FILLED, M, m] * sides[FILLED, K, part] * sides[FILLED, N, n]
    return _waves(problem, tiles, volume)


@lean_kernel
def may_split(problem: Problem, sides: Floats, m: int, n: int, part: int) -> bool:
    """Return whether parts of the inner dimension with this exponent may be tried.

    They may while parts twice as long leave instances idle.
    """
    if part >= problem.top_k:
        return True
    tiles = sides[VISITS, M, m] * sides[VISITS, N, n] * sides[VISITS, K, part + 1] * problem.batch
    return bool(tiles < problem.instances)


@lean_kernel
def _list_largest(
    problem: Problem, set_m: Ints, set_k: Ints, set_n: Ints, first: int, last: int, level: int,
    longest: Ints, exponent: Ints,
) -> int:  # fmt: skip
    """List the tiles of a set that no other contains once all are clipped; returns how many they are."""
    top_m, top_k, top_n, count = problem.top_m, problem.top_k, problem.top_n, 0
    # by how much shorter tiles are along m (from row 1 on) and n: k's exponent, at last of all as long
    longest[: top_m + 2, : top_n + 1] = -1
    for i in range(first, last):
        shorter_m, shorter_n = max(top_m - set_m[i], 0), max(top_n - set_n[i], 0)
        longest[shorter_m + 1, shorter_n] = max(longest[shorter_m + 1, shorter_n], min(set_k[i], top_k))
    for shorter_m in range(top_m + 1):
        contained = -1
        for shorter_n in range(top_n + 1):
            contained = max(contained, longest[shorter_m, shorter_n])
            k = longest[shorter_m + 1, shorter_n]
            if k > contained:
                exponent[level, M, count], exponent[level, K, count] = top_m - shorter_m, k
                exponent[level, N, count], exponent[level, PART, count] = top_n - shorter_n, top_k
                count += 1
            contained = max(contained, k)
            longest[shorter_m + 1, shorter_n] = contained
    return count


@lean_kernel
def _list_each(
    problem: Problem, set_m: Ints, set_k: Ints, set_n: Ints, first: int, last: int, mark: int, level: int,
    sides: Floats, seen: Ints, exponent: Ints,
) -> int:  # fmt: skip
    """List the tiles of a set, with every length of parts where they are distributed; returns how many."""
    count, is_dealt = 0, level == problem.dealt
    is_whole = mark > 0 and problem.closed  # what another one is once clipped need not be clipped itself
    for i in range(first, last):
        m, k, n = min(set_m[i], problem.top_m), min(set_k[i], problem.top_k), min(set_n[i], problem.top_n)
        if is_whole and (m < set_m[i] or n < set_n[i]):
            continue
        if mark > 0 and not is_whole:
            if seen[m, k, n] == mark:
                continue
            seen[m, k, n] = mark
        part = problem.top_k
        while True:
            exponent[level, M, count], exponent[level, K, count] = m, min(k, part)
            exponent[level, N, count], exponent[level, PART, count] = n, part
            count += 1
            part -= 1
            if not is_dealt or part < 0 or not may_split(problem, sides, m, n, part):
                break
    return count


@lean_kernel
def _look_up(problem: Problem, level: int, count: int, sides: Floats, exponent: Ints, tile: Floats) -> None:
    """Fill a level's columns from the exponents of its candidates."""
    for i in range(count):
        m, k, n = exponent[level, M, i], exponent[level, K, i], exponent[level, N, i]
        tile[level, M, i], tile[level, K, i] = sides[VISITS, M, m], sides[VISITS, K, k]
        tile[level, N, i] = sides[VISITS, N, n]
        tile[level, PARTS, i] = sides[VISITS, K, exponent[level, PART, i]]
    if level == 0:  # no other level's tiles feed the registers
        for i in range(count):
            tile[0, PER_M, i] = sides[INVERSE, M, exponent[0, M, i]]
            tile[0, PER_K, i] = sides[INVERSE, K, exponent[0, K, i]]
            tile[0, PER_N, i] = sides[INVERSE, N, exponent[0, N, i]]
    if level == problem.dealt:
        for i in range(count):
            m, n, part = exponent[level, M, i], exponent[level, N, i], exponent[level, PART, i]
            tile[level, COMPUTE, i] = sides[FILLED, M, m] * sides[FILLED, K, part] * sides[FILLED, N, n]
        for i in range(count):
            tiles = tile[level, M, i] * tile[level, N, i] * tile[level, PARTS, i] * problem.batch
            tile[level, COMPUTE, i], tile[level, IDLE, i] = _waves(problem, tiles, tile[level, COMPUTE, i])


@lean_kernel
def lay_tiles(
    problem: Problem, set_m: Ints, set_k: Ints, set_n: Ints, first: int, last: int, mark: int, level: int,
    sides: Floats, seen: Ints, longest: Ints, exponent: Ints, tile: Floats, least: Floats,
) -> int:  # fmt: skip
    """List tiles `first` to `last` of a set as a level's candidates; returns how many they are.

    Tiles are clipped to the GEMM. Where they are distributed, each is there once for every length of the
    inner dimension's parts that may be tried. mark: 0 keeps all of them; any other number, a new one at
    every call, drops all but the first of those alike once clipped, and in a closed set those that cannot
    win since another contains them.
    """
    if mark > 0 and problem.closed and level != problem.dealt:
        count = _list_largest(problem, set_m, set_k, set_n, first, last, level, longest, exponent)
    else:
        count = _list_each(problem, set_m, set_k, set_n, first, last, mark, level, sides, seen, exponent)
    _look_up(problem, level, count, sides, exponent, tile)
    for axis in (M, K, N):
        most = 0
        for i in range(count):
            most = max(most, exponent[level, axis, i])
        least[level, axis] = sides[VISITS, axis, most]
    return count


@lean_kernel
def step(
    problem: Problem, sides: Floats, level: int, i: int, exponent: Ints, path: Floats, path_exponent: Ints
) -> bool:
    """Go on from the tile outside to a level's candidate; False where its parts may not be tried there."""
    m = min(exponent[level, M, i], path_exponent[level + 1, M])
    k = min(exponent[level, K, i], path_exponent[level + 1, K])
    n = min(exponent[level, N, i], path_exponent[level + 1, N])
    path_exponent[level, M], path_exponent[level, K], path_exponent[level, N] = m, k, n
    path[level, M] = sides[VISITS, M, m]
    path[level, K] = sides[VISITS, K, k]
    path[level, N] = sides[VISITS, N, n]
    path[level, PER_M] = sides[INVERSE, M, m]
    path[level, PER_K] = sides[INVERSE, K, k]
    path[level, PER_N] = sides[INVERSE, N, n]
    if level == problem.dealt:
        part = exponent[level, PART, i]
        path[level, COMPUTE], path[level, IDLE] = deal(problem, sides, m, n, part)
        path[level, PARTS] = sides[VISITS, K, part]
        return may_split(problem, sides, m, n, part)
    path[level, COMPUTE] = path[level + 1, COMPUTE]
    path[level, IDLE] = path[level + 1, IDLE]
    path[level, PARTS] = path[level + 1, PARTS]
    return True
