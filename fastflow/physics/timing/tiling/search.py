"""The tiling search: the tiles of a GEMM that take the least time, then move the fewest bytes (6.1, 6.2).

A tiling takes one tile at each level from that level's set and lets one operand stay put in each. Its
time is the largest of compute and what every level takes to serve its bytes (`traffic`). Ties go to
the fewest main-memory bytes, then to the fewest of each level inwards, then to the larger tiles.

The search is exact and looks at few tilings. The operand that stays is settled level by level, since
a level's bytes depend on no other level's choice. Tiles are then fixed from the outside in. Once a
level's tile is, every level inside moves at least what it would with the least visits that any of its
tiles needs: this bounds the time from below. Tiles are followed in the order of that bound, those with
equal bounds in the order of their bytes, until the next one cannot win any more.

The first tiling is the one that the quickest tile of the distributed level leads to. Nearly all other tiles
of that level take longer and are dropped at once. GEMMs on one hierarchy whose sides have the same exponents
follow each other, so that tiles are listed once for them.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.tiling.boost import level_time
from fastflow.physics.timing.tiling.bounds import (
    ACCESSES,
    BOUND,
    BYTES,
    LEAST,
    NODE_COLUMNS,
    SHARE,
    WITHIN,
    bound_level,
    least_accesses,
    least_times,
    start_dealt,
    start_other,
)
from fastflow.physics.timing.tiling.candidates import lay_tiles, step
from fastflow.physics.timing.tiling.dataflow import register_accesses_per_flop
from fastflow.physics.timing.tiling.search_space import (
    ACCESSED,
    COMPUTE,
    IDLE,
    MOVED,
    PARTS,
    PER_K,
    PER_M,
    PER_N,
    TIME,
    Gemms,
    Hierarchies,
    K,
    Layout,
    M,
    N,
    Problem,
    Tilings,
    adopt,
    lay_gemm,
    moves_more,
    new_layout,
    new_tilings,
    precedes,
    record,
)
from fastflow.physics.timing.tiling.tile_sets import TileSets
from fastflow.physics.timing.tiling.traffic import fewest_served


@lean_kernel
def _quickest(level: int, count: int, node: Floats) -> tuple[int, float]:
    """Return a level's candidate with the least time whatever is outside, -1 for none, and that time [s]."""
    chosen, least = -1, np.inf
    for i in range(count):
        if node[level, LEAST, i] < least:
            chosen, least = i, node[level, LEAST, i]
    return chosen, least


@lean_kernel
def _list_quickest(
    problem: Problem, i: int, tile: Floats, node: Floats, path: Floats, listed: Ints, left: Ints
) -> None:
    """List one of the tiles that are distributed, unless the tile outside clips it.

    The tiling that it leads to is good enough for most of the others to be dropped before they are bound.
    """
    level = problem.dealt
    m, k, n, parts = tile[level, M, i], tile[level, K, i], tile[level, N, i], tile[level, PARTS, i]
    out_m, out_k, out_n = path[level + 1, M], path[level + 1, K], path[level + 1, N]
    is_whole = m >= out_m and n >= out_n
    node[level, BOUND, i] = max(path[level + 1, TIME], node[level, LEAST, i]) if is_whole else np.nan
    node[level, BYTES, i] = fewest_served(
        problem.whole, out_m, max(out_k, parts), out_n, max(m, out_m), max(k, out_k), max(n, out_n)
    )
    listed[level, 0], left[level] = i, 1


@lean_kernel
def _time_innermost(
    problem: Problem, bandwidth: Floats, driven: Floats, count: int, tile: Floats, node: Floats, path: Floats
) -> None:
    """Time every innermost tile on the path outside: its BOUND is exact."""
    out_m, out_k, out_n, idle_outside = path[1, M], path[1, K], path[1, N], path[1, IDLE]
    per_m, per_k, per_n = path[1, PER_M], path[1, PER_K], path[1, PER_N]
    registers, serving = bandwidth[problem.at], bandwidth[problem.at + 1]
    of_registers, of_serving = driven[problem.at], driven[problem.at + 1]
    for i in range(count):
        m, k, n = max(tile[0, M, i], out_m), max(tile[0, K, i], out_k), max(tile[0, N, i], out_n)
        moved = fewest_served(problem.whole, out_m, max(out_k, tile[0, PARTS, i]), out_n, m, k, n)
        accessed = problem.access * register_accesses_per_flop(
            problem.unit,
            max(tile[0, PER_M, i], per_m), max(tile[0, PER_K, i], per_k), max(tile[0, PER_N, i], per_n),
        )  # fmt: skip
        within = max(
            level_time(moved, serving, of_serving, idle_outside),
            level_time(accessed, registers, of_registers, node[0, SHARE, i]),
        )
        node[0, WITHIN, i] = within
        node[0, BOUND, i] = max(node[0, BOUND, i], within)
        node[0, BYTES, i] = moved
        node[0, ACCESSES, i] = accessed


@lean_kernel
def _choose_innermost(
    shortest: float, count: Ints, tile: Floats, node: Floats, path: Floats
) -> tuple[int, float]:
    """Choose the best innermost tile and write its TIME, MOVED and ACCESSED to the path.

    Returns the tile, -1 for none within the shortest time, and the least time that any of them takes to
    serve its own bytes.
    """
    out_m, out_k, out_n = path[1, M], path[1, K], path[1, N]
    chosen, least_within = -1, np.inf
    best_time, best_moved, best_accessed = shortest, np.inf, np.inf
    best_m, best_k, best_n = np.inf, np.inf, np.inf
    for i in range(count[0]):
        least_within = min(least_within, node[0, WITHIN, i])
        time, moved, accessed = node[0, BOUND, i], node[0, BYTES, i], node[0, ACCESSES, i]
        if not time <= best_time:
            continue
        m, k, n = max(tile[0, M, i], out_m), max(tile[0, K, i], out_k), max(tile[0, N, i], out_n)
        if (
            time < best_time or chosen < 0 or moved < best_moved or (moved == best_moved and (
                accessed < best_accessed or (accessed == best_accessed and (
                    m < best_m or (m == best_m and (k < best_k or (k == best_k and n < best_n)))
                ))
            ))
        ):  # fmt: skip
            chosen, best_time, best_moved, best_accessed = i, time, moved, accessed
            best_m, best_k, best_n = m, k, n
    path[0, TIME], path[0, MOVED], path[0, ACCESSED] = best_time, best_moved, best_accessed
    return chosen, least_within


@lean_kernel
def _drop_slower(
    level: int, time: float, count: Ints, exponent: Ints, tile: Floats, node: Floats, followed: int
) -> int:
    """Drop a level's candidates that need more than `time` whatever is outside of them.

    Returns where the one that was followed is now.
    """
    left, place = 0, followed
    for i in range(count[level]):
        if node[level, LEAST, i] <= time:
            if left < i:
                for column in range(exponent.shape[1]):
                    exponent[level, column, left] = exponent[level, column, i]
                for column in range(tile.shape[1]):
                    tile[level, column, left] = tile[level, column, i]
                node[level, LEAST, left] = node[level, LEAST, i]
            if i == followed:
                place = left
            left += 1
    count[level] = left
    return place


@lean_kernel
def _next_tile(
    level: int, shortest: float, is_new: bool, count: Ints, node: Floats, listed: Ints, left: Ints
) -> tuple[int, float]:
    """Return a level's listed candidate with the least bound, then the fewest bytes, and its bound.

    -1 for none. Keeps those on the list that can still win. is_new: all of the level's candidates are on it.
    """
    kept, chosen, bound, moved = 0, -1, np.inf, np.inf
    for row in range(count[level] if is_new else left[level]):
        i = row if is_new else listed[level, row]
        here = node[level, BOUND, i]
        if not here <= shortest:
            continue
        if chosen < 0 or here < bound or (here == bound and node[level, BYTES, i] < moved):
            chosen, bound, moved = i, here, node[level, BYTES, i]
        listed[level, kept] = i
        kept += 1
    left[level] = kept
    return chosen, bound


@lean_kernel
def _search_one(
    problem: Problem, bandwidth: Floats, driven: Floats, sides: Floats, count: Ints, exponent: Ints,
    longest: Ints, tile: Floats, least: Floats, node: Floats, listed: Ints, left: Ints,
    path: Floats, path_exponent: Ints, best: Floats, best_exponent: Ints,
) -> int:  # fmt: skip
    """Find the best tiling of a GEMM; returns how many tiles were looked at.

    node: room for the columns of every candidate, (levels, NODE_COLUMNS, candidates); listed: for those
    that are still to follow, (levels, candidates), and left: how many these are, (levels,).
    """
    levels, dealt, looked = problem.levels, problem.dealt, 0
    least_accessed = least_accesses(problem, sides, longest)
    guess, least_dealt = -1, 0.0  # time of any tile that is distributed, whatever is outside
    if dealt >= 0:
        looked = count[dealt] if problem.closed else 0
        least_times(problem, bandwidth, driven, count, tile, least, node, path, least_accessed)
        guess, least_dealt = _quickest(dealt, count[dealt], node)
    if not problem.closed or dealt == 0:
        guess = -1
    level, followed, is_new = levels - 1, -1, True
    while level < levels:
        shortest = best[0, TIME]
        if is_new and level == dealt and guess >= 0 and followed < 0:
            _list_quickest(problem, guess, tile, node, path, listed, left)
            is_new = False
        if is_new:
            if level == dealt:
                if problem.closed:
                    followed = _drop_slower(level, shortest, count, exponent, tile, node, followed)
                start_dealt(problem, sides, count, exponent, tile, node, path, path_exponent)
                if guess >= 0:
                    node[level, BOUND, followed], guess = np.nan, -1
            else:
                start_other(problem, level, count, tile, least, node, path, least_dealt)
            looked += count[level]
            if level > 0:
                bound_level(
                    problem, bandwidth, driven, level, level + 1, count[level], tile, least, node, path,
                    least_accessed,
                )  # fmt: skip
        if level == 0:
            _time_innermost(problem, bandwidth, driven, count[0], tile, node, path)
            chosen, within = _choose_innermost(shortest, count, tile, node, path)
            if problem.closed and dealt == 1 and path[1, K] == tile[1, K, followed]:
                node[1, LEAST, followed] = max(node[1, LEAST, followed], within)
            if chosen >= 0:
                step(problem, sides, 0, chosen, exponent, path, path_exponent)
                if precedes(levels, path, best):
                    adopt(levels, path, path_exponent, best, best_exponent)
            level, is_new = 1, False
            continue
        chosen, bound = _next_tile(level, shortest, is_new, count, node, listed, left)
        is_new = False
        if chosen >= 0:
            path[level, MOVED] = node[level, BYTES, chosen]
            node[level, BOUND, chosen] = np.nan  # followed: never again
        if chosen < 0 or (bound == shortest and moves_more(levels, level, path, best)):
            if level == dealt and guess >= 0:
                is_new = True  # now all of them
                if followed < 0:
                    guess = -1
                continue
            if level == dealt:
                _, least_dealt = _quickest(dealt, count[dealt], node)
            level += 1
            continue
        if level == dealt:
            followed = chosen
        elif problem.closed and level > dealt:  # more is known by now of what is inside
            if least_dealt > shortest:
                level += 1
                continue
            if least_dealt == shortest and moves_more(levels, level, path, best):
                continue
        step(problem, sides, level, chosen, exponent, path, path_exponent)
        outer = problem.at + level + 1
        serving = level_time(path[level, MOVED], bandwidth[outer], driven[outer], path[level + 1, IDLE])
        path[level, TIME] = max(max(path[level + 1, TIME], path[level, COMPUTE]), serving)
        level, is_new = level - 1, True
    return looked


@lean_kernel
def _search_in_turn(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, kind: Ints, order: Ints,
    layout: Layout, node: Floats, listed: Ints, left: Ints, out: Tilings,
) -> None:  # fmt: skip
    """Find the best tiling of every GEMM, one after the other in the same room, and write it to `out`."""
    before = -1
    for g in order:
        is_listed, before = kind[g] == before, kind[g]
        problem = lay_gemm(gemms, hierarchies, sets, levels, g, layout)
        for level in range(levels):
            tiles = hierarchies.tiles[gemms.hierarchy[g] * levels + level]
            lay_tiles(problem, sets, tiles, 1 + g * levels + level, level, is_listed, layout)
        looked = _search_one(
            problem, hierarchies.bandwidth, hierarchies.driven, layout.sides, layout.counts, layout.exponent,
            layout.longest_side, layout.tile, layout.least, node, listed, left,
            layout.path, layout.path_exponent, layout.best, layout.best_exponent,
        )  # fmt: skip
        record(problem, layout, looked, g, out)


@kernel
def _search_each(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, kind: Ints, order: Ints,
    layout: Layout, node: Floats, listed: Ints, left: Ints, out: Tilings,
) -> None:  # fmt: skip
    """Find the best tilings; what Python calls counts references, which took long in the loop itself."""
    _search_in_turn(gemms, hierarchies, sets, levels, kind, order, layout, node, listed, left, out)


def _kinds(gemms: Gemms) -> Ints:
    """Return a number for each GEMM, the same for those on one hierarchy whose tiles are listed alike."""
    kind = gemms.hierarchy
    for side in (gemms.m, gemms.k, gemms.n):
        kind = kind << 6 | np.frexp(side - 0.5)[1]  # the exponent of the smallest power of two that holds it
    return kind


def search_tilings(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, each on `levels` on-chip levels."""
    out = new_tilings(gemms.m.size, levels)
    layout = new_layout(gemms, hierarchies, sets, levels)
    node = np.empty((levels, NODE_COLUMNS, layout.tile.shape[2]))
    listed = np.empty((levels, layout.tile.shape[2]), dtype=np.int64)
    left = np.empty(levels, dtype=np.int64)
    kind = _kinds(gemms)
    _search_each(gemms, hierarchies, sets, levels, kind, np.argsort(kind), layout, node, listed, left, out)
    return out
