"""The candidate tiles of one GEMM at every level, and the steps of a path over levels (6.1, 6.2)."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.tiling.boost import boost_of
from fastflow.physics.timing.tiling.search_space import (
    COMPUTE,
    FILLED,
    IDLE,
    INVERSE,
    PART,
    PARTS,
    PER_M,
    VISITS,
    K,
    Layout,
    M,
    N,
    Path,
    Problem,
)
from fastflow.physics.timing.tiling.tile_sets import TileSets


@lean_kernel
def _time_waves(problem: Problem, tiles: float, volume: float) -> tuple[float, float]:
    """Return the compute time [s] of tiles in waves over their level's instances, and the idle factor."""
    at_work = np.ceil(tiles / problem.instances) * problem.instances
    idle, pace = at_work / tiles, 1.0
    if problem.headroom > 1.0:
        pace, _ = boost_of(idle, problem.threshold, problem.headroom)
    return max(problem.floor, 2.0 * at_work * volume * pace / problem.flops), idle


@lean_kernel
def distribute(problem: Problem, sides: Floats, m: int, n: int, part: int) -> tuple[float, float]:
    """Distribute tiles over the instances of their level, each over a part of the inner dimension.

    m, n, part: exponents. Returns the compute time [s] and the idle factor.
    """
    tiles = sides[VISITS, M, m] * sides[VISITS, N, n] * sides[VISITS, K, part] * problem.batch
    volume = sides[FILLED, M, m] * sides[FILLED, K, part] * sides[FILLED, N, n]
    return _time_waves(problem, tiles, volume)


@lean_kernel
def may_split(problem: Problem, sides: Floats, m: int, n: int, part: int) -> bool:
    """Return whether a split of the inner dimension into parts of this exponent is allowed.

    It is if parts twice as long leave instances idle.
    """
    if part >= problem.top_k:
        return True
    tiles = sides[VISITS, M, m] * sides[VISITS, N, n] * sides[VISITS, K, part + 1] * problem.batch
    return bool(tiles < problem.instances)


@lean_kernel
def _list_largest(
    problem: Problem, sets: TileSets, tile_set: int, level: int, longest: Ints, exponent: Ints
) -> int:
    """List the tiles of a set that no other contains after clipping; returns their number."""
    top_m, top_k, top_n, count = problem.top_m, problem.top_k, problem.top_n, 0
    # by the reduction of the exponents of m (from row 1 on) and n: largest exponent of k, finally cumulative
    for shorter_m in range(top_m + 2):
        for shorter_n in range(top_n + 1):
            longest[shorter_m, shorter_n] = -1
    for i in range(sets.offset[tile_set], sets.offset[tile_set + 1]):
        shorter_m, shorter_n = max(top_m - sets.m[i], 0), max(top_n - sets.n[i], 0)
        longest[shorter_m + 1, shorter_n] = max(longest[shorter_m + 1, shorter_n], min(sets.k[i], top_k))
    for shorter_m in range(top_m + 1):
        contained = -1
        for shorter_n in range(top_n + 1):
            contained = max(contained, longest[shorter_m, shorter_n])
            k = longest[shorter_m + 1, shorter_n]
            if k > contained:
                exponent[level, M, count], exponent[level, K, count] = top_m - shorter_m, k
                exponent[level, N, count] = top_n - shorter_n
                count += 1
            contained = max(contained, k)
            longest[shorter_m + 1, shorter_n] = contained
    return count


@lean_kernel
def _list_each(
    problem: Problem, sets: TileSets, tile_set: int, mark: int, to: int, seen: Ints, exponent: Ints
) -> int:
    """List the tiles of a set in row `to` of `exponent`; returns their number."""
    count = 0
    is_whole = mark > 0 and problem.closed  # in a closed set the clipped tile is listed itself
    for i in range(sets.offset[tile_set], sets.offset[tile_set + 1]):
        m, k, n = min(sets.m[i], problem.top_m), min(sets.k[i], problem.top_k), min(sets.n[i], problem.top_n)
        if is_whole and (m < sets.m[i] or n < sets.n[i]):
            continue
        if mark > 0 and not is_whole:
            if seen[m, k, n] == mark:
                continue
            seen[m, k, n] = mark
        exponent[to, M, count], exponent[to, K, count], exponent[to, N, count] = m, k, n
        count += 1
    return count


@lean_kernel
def _fill_visits(level: int, count: int, sides: Floats, exponent: Ints, tile: Floats) -> None:
    """Fill a level's visits from the exponents of candidates without a split of the inner dimension."""
    for i in range(count):
        m, k, n = exponent[level, M, i], exponent[level, K, i], exponent[level, N, i]
        tile[level, M, i], tile[level, K, i] = sides[VISITS, M, m], sides[VISITS, K, k]
        tile[level, N, i], tile[level, PARTS, i] = sides[VISITS, N, n], 1.0


@lean_kernel
def _split_tiles(problem: Problem, unsplit: int, sides: Floats, exponent: Ints, tile: Floats) -> int:
    """List the private level's tiles, first `unsplit` tiles, then those with a split of k; fill columns.

    Returns their number.
    """
    level, count = problem.private, unsplit
    for i in range(unsplit):
        for axis in range(3):
            exponent[level, axis, i] = exponent[problem.levels, axis, i]
        exponent[level, PART, i] = problem.top_k
    for i in range(unsplit):
        m, k, n = exponent[level, M, i], exponent[level, K, i], exponent[level, N, i]
        part = problem.top_k
        while part > 0 and may_split(problem, sides, m, n, part - 1):
            part -= 1
            exponent[level, M, count], exponent[level, K, count] = m, min(k, part)
            exponent[level, N, count], exponent[level, PART, count] = n, part
            count += 1
    _fill_visits(level, count, sides, exponent, tile)
    for i in range(count):
        m, n, part = exponent[level, M, i], exponent[level, N, i], exponent[level, PART, i]
        tile[level, PARTS, i] = sides[VISITS, K, part]
        tile[level, COMPUTE, i] = sides[FILLED, M, m] * sides[FILLED, K, part] * sides[FILLED, N, n]
    for i in range(count):
        tiles = tile[level, M, i] * tile[level, N, i] * tile[level, PARTS, i] * problem.batch
        tile[level, COMPUTE, i], tile[level, IDLE, i] = _time_waves(problem, tiles, tile[level, COMPUTE, i])
    return count


@lean_kernel
def list_candidates(
    problem: Problem, sets: TileSets, tile_set: int, mark: int, level: int, is_listed: bool, layout: Layout
) -> None:
    """List a set's tiles as a level's candidates.

    Tiles are clipped to the GEMM. At the private level, each is listed once for every allowed split of the
    inner dimension. mark: 0 keeps all tiles; any other number, unique for each call, drops duplicates after
    clipping, and in a closed set tiles that cannot win since another contains them. is_listed: the last call
    for this level had the same set, for a GEMM whose sides have the same exponents.
    """
    candidates, sides = layout.candidates, layout.sides
    exponent, tile, count = candidates.exponent, candidates.column, candidates.counts
    if not is_listed:
        to = problem.levels if level == problem.private else level
        if mark > 0 and problem.closed and level != problem.private:
            count[to] = _list_largest(problem, sets, tile_set, level, layout.longest, exponent)
        else:
            count[to] = _list_each(problem, sets, tile_set, mark, to, layout.seen, exponent)
        for axis in range(3):
            most = 0
            for i in range(count[to]):
                most = max(most, exponent[to, axis, i])
            candidates.longest[level, axis] = most
    if level == problem.private:
        count[level] = _split_tiles(problem, count[problem.levels], sides, exponent, tile)
    else:
        _fill_visits(level, count[level], sides, exponent, tile)
    for axis in range(3):
        if level == 0:  # only tiles of level 0 feed the registers
            for i in range(count[0]):
                tile[0, PER_M + axis, i] = sides[INVERSE, axis, exponent[0, axis, i]]
        candidates.least[level, axis] = sides[VISITS, axis, candidates.longest[level, axis]]


@lean_kernel
def step(problem: Problem, sides: Floats, level: int, i: int, exponent: Ints, path: Path) -> bool:
    """Extend the path by a level's candidate; returns False where its split is not allowed there.

    exponent: of the candidates.
    """
    row = path.column
    for axis in range(3):
        e = min(exponent[level, axis, i], path.exponent[level + 1, axis])
        path.exponent[level, axis] = e
        row[level, axis], row[level, PER_M + axis] = sides[VISITS, axis, e], sides[INVERSE, axis, e]
    if level == problem.private:
        m, n, part = path.exponent[level, M], path.exponent[level, N], exponent[level, PART, i]
        row[level, COMPUTE], row[level, IDLE] = distribute(problem, sides, m, n, part)
        row[level, PARTS] = sides[VISITS, K, part]
        return may_split(problem, sides, m, n, part)
    row[level, COMPUTE] = row[level + 1, COMPUTE]
    row[level, IDLE] = row[level + 1, IDLE]
    row[level, PARTS] = row[level + 1, PARTS]
    return True
