"""The tiling search: the tiles of a GEMM that take the least time, then move the fewest bytes (6.1, 6.2).

A tiling takes one tile at each level from that level's set and lets one operand stay put in each. Its
time is the largest of compute and what every level takes to serve its bytes (`traffic`). Ties go to
the fewest main-memory bytes, then to the fewest of each level inwards, then to the larger tiles.

The search is exact and looks at few tilings. The operand that stays is settled level by level, since
a level's bytes depend on no other level's choice. Tiles are then fixed from the outside in. Once a
level's tile is, every level inside moves at least what it would with the least visits that any of its
tiles needs: this bounds the time from below. Tiles are followed in the order of that bound, those with
equal bounds in the order of their bytes, until the next one cannot win any more.
"""

from __future__ import annotations

import numpy as np

from fastflow._jit import inline_kernel, kernel
from fastflow.tables import Floats, Ints
from fastflow.timing.dataflow import register_accesses_per_flop
from fastflow.timing.search_space import (
    ACCESSED,
    COMPUTE,
    IDLE,
    MOVED,
    PART,
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
    deal,
    lay_gemm,
    lay_tiles,
    level_time,
    may_split,
    moves_more,
    new_layout,
    new_tilings,
    precedes,
    record,
    step,
)
from fastflow.timing.tiles import TileSets
from fastflow.timing.traffic import fewest_served

BOUND, BYTES, LEAST = 0, 1, 2
"""Of a candidate: the least time it can come to after the path outside [s], the bytes moved in to it then,
and the least time it can come to whatever is outside."""


@inline_kernel
def _least_times_alone(
    problem: Problem, bandwidth: Floats, level: int, count: Ints, tile: Floats, node: Floats, listed: Ints
) -> float:
    """List a level's candidates, each with its least time whatever is outside; returns the least [s]."""
    least = np.inf
    for i in range(count[level]):
        node[level, LEAST, i], listed[i] = tile[level, COMPUTE, i], i
        if problem.closed:
            m, k, n = tile[level, M, i], tile[level, K, i], tile[level, N, i]
            moved = fewest_served(problem.whole, 1.0, tile[level, PARTS, i], 1.0, m, k, n)
            serving = level_time(moved, bandwidth[problem.at + level + 1], 1.0)
            node[level, LEAST, i] = max(tile[level, COMPUTE, i], serving)
        least = min(least, node[level, LEAST, i])
    return least


@inline_kernel
def _least_accesses(problem: Problem, count: Ints, tile: Floats) -> float:
    """Return the fewest bytes of register accesses that any innermost tiles allow."""
    per_m, per_k, per_n = 1.0, 1.0, 1.0
    for i in range(count[0]):
        per_m = min(per_m, tile[0, PER_M, i])
        per_k = min(per_k, tile[0, PER_K, i])
        per_n = min(per_n, tile[0, PER_N, i])
    return problem.access * register_accesses_per_flop(problem.unit, per_m, per_k, per_n)


@inline_kernel
def _deal_clipped(
    problem: Problem, sides: Floats, level: int, i: int, exponent: Ints, path_exponent: Ints
) -> tuple[bool, float, float]:
    """Distribute a candidate that the tile outside clips.

    Returns whether its parts may be tried there, the compute time [s] and the idle factor.
    """
    m = min(exponent[level, M, i], path_exponent[level + 1, M])
    n = min(exponent[level, N, i], path_exponent[level + 1, N])
    part = exponent[level, PART, i]
    if not may_split(problem, sides, m, n, part):
        return False, np.inf, 1.0
    compute, idle = deal(problem, sides, m, n, part)
    return True, compute, idle


@inline_kernel
def _choose_innermost(
    problem: Problem, bandwidth: Floats, sides: Floats, count: Ints, exponent: Ints, tile: Floats,
    path: Floats, path_exponent: Ints,
) -> tuple[int, float]:  # fmt: skip
    """Choose the best innermost tile on the path outside: every one is timed exactly.

    Writes its TIME, MOVED and ACCESSED to the path. Returns the tile, -1 for none, and the least time
    that any of them takes to serve its own bytes.
    """
    out_m, out_k, out_n = path[1, M], path[1, K], path[1, N]
    per_m, per_k, per_n = path[1, PER_M], path[1, PER_K], path[1, PER_N]
    outside, idle_outside = path[1, TIME], path[1, IDLE]
    registers, serving = bandwidth[problem.at], bandwidth[problem.at + 1]
    chosen, least_within = -1, np.inf
    best_time, best_moved, best_accessed = np.inf, np.inf, np.inf
    best_m, best_k, best_n = np.inf, np.inf, np.inf
    for i in range(count[0]):
        m, k, n = max(tile[0, M, i], out_m), max(tile[0, K, i], out_k), max(tile[0, N, i], out_n)
        time, idle = outside, idle_outside
        if problem.dealt == 0:
            compute, idle = tile[0, COMPUTE, i], tile[0, IDLE, i]
            if m > tile[0, M, i] or n > tile[0, N, i]:
                is_allowed, compute, idle = _deal_clipped(problem, sides, 0, i, exponent, path_exponent)
                if not is_allowed:
                    continue
            time = max(outside, compute)
        moved = fewest_served(problem.whole, out_m, max(out_k, tile[0, PARTS, i]), out_n, m, k, n)
        accessed = problem.access * register_accesses_per_flop(
            problem.unit,
            max(tile[0, PER_M, i], per_m), max(tile[0, PER_K, i], per_k), max(tile[0, PER_N, i], per_n),
        )  # fmt: skip
        within = max(level_time(moved, serving, idle_outside), level_time(accessed, registers, idle))
        least_within, time = min(least_within, within), max(time, within)
        if time > best_time:
            continue
        if (
            time < best_time or moved < best_moved or (moved == best_moved and (
                accessed < best_accessed or (accessed == best_accessed and (
                    m < best_m or (m == best_m and (k < best_k or (k == best_k and n < best_n)))
                ))
            ))
        ):  # fmt: skip
            chosen, best_time, best_moved, best_accessed = i, time, moved, accessed
            best_m, best_k, best_n = m, k, n
    path[0, TIME], path[0, MOVED], path[0, ACCESSED] = best_time, best_moved, best_accessed
    return chosen, least_within


@inline_kernel
def _learn_inside(level: int, i: int, within: float, count: Ints, node: Floats, listed: Ints) -> float:
    """Raise the least time of a candidate by what its inside takes, which is the same wherever the tile is.

    Returns the least time of its level [s].
    """
    node[level, LEAST, i] = max(node[level, LEAST, i], within)
    least = np.inf
    for row in range(count[level]):
        least = min(least, node[level, LEAST, listed[row]])
    return least


@inline_kernel
def _drop_slower(level: int, time: float, count: Ints, node: Floats, listed: Ints) -> None:
    """Take a level's candidates off its list that need more than `time` whatever is outside of them.

    A tile that is clipped need not be tried: in a closed set the clipped tile is a candidate too.
    """
    left = 0
    for i in listed[: count[level]]:
        if node[level, LEAST, i] <= time:
            listed[left] = i
            left += 1
    count[level] = left


@inline_kernel
def _bound_inside(
    problem: Problem, bandwidth: Floats, least: Floats, level: int, m: float, k: float, n: float,
    idle: float, bound: float,
) -> float:  # fmt: skip
    """Raise a bound [s] to what every level inside takes with the least visits of any of its tiles."""
    for inner in range(level):
        fewest = fewest_served(
            problem.whole, m, k, n,
            max(m, least[inner, M]), max(k, least[inner, K]), max(n, least[inner, N]),
        )  # fmt: skip
        idle_there = idle if inner < problem.dealt else 1.0
        bound = max(bound, level_time(fewest, bandwidth[problem.at + inner + 1], idle_there))
    return bound


@inline_kernel
def _bound_level(
    problem: Problem, bandwidth: Floats, sides: Floats, level: int, count: Ints, exponent: Ints, tile: Floats,
    least: Floats, node: Floats, listed: Ints, path: Floats, path_exponent: Ints,
    least_accessed: float, least_dealt: float,
) -> None:  # fmt: skip
    """Bound the time of every candidate of a level after the path outside; NaN where it may not be."""
    dealt, registers, serving = problem.dealt, bandwidth[problem.at], bandwidth[problem.at + level + 1]
    out_m, out_k, out_n = path[level + 1, M], path[level + 1, K], path[level + 1, N]
    outside, idle_outside = path[level + 1, TIME], path[level + 1, IDLE]
    for row in range(count[level]):
        i = listed[row] if level == dealt else row
        m = max(tile[level, M, i], out_m)
        k = max(tile[level, K, i], out_k)
        n = max(tile[level, N, i], out_n)
        bound, idle = outside, idle_outside
        if level == dealt:
            compute, idle = tile[level, COMPUTE, i], tile[level, IDLE, i]
            if m > tile[level, M, i] or n > tile[level, N, i]:
                is_allowed = False
                if not problem.closed:
                    is_allowed, compute, idle = _deal_clipped(
                        problem, sides, level, i, exponent, path_exponent
                    )
                if not is_allowed:
                    node[level, BOUND, i] = np.nan
                    continue
            bound = max(bound, compute)
        elif problem.closed or (level == dealt + 1 and m <= least[dealt, M] and n <= least[dealt, N]):
            bound = max(bound, least_dealt)
        moved = fewest_served(problem.whole, out_m, max(out_k, tile[level, PARTS, i]), out_n, m, k, n)
        bound = max(bound, level_time(moved, serving, idle_outside))
        bound = max(bound, level_time(least_accessed, registers, idle))
        bound = _bound_inside(problem, bandwidth, least, level, m, k, n, idle, bound)
        node[level, BOUND, i], node[level, BYTES, i] = bound, moved


@inline_kernel
def _next_tile(level: int, dealt: int, count: Ints, node: Floats, listed: Ints) -> tuple[int, float, float]:
    """Return a level's candidate with the least bound, then the fewest bytes, -1 for none; and both."""
    chosen, bound, moved = -1, np.inf, np.inf
    for row in range(count[level]):
        i = listed[row] if level == dealt else row
        if node[level, BOUND, i] < bound or (
            node[level, BOUND, i] == bound and node[level, BYTES, i] < moved
        ):
            chosen, bound, moved = i, node[level, BOUND, i], node[level, BYTES, i]
    return chosen, bound, moved


@kernel
def _search_one(
    problem: Problem, bandwidth: Floats, sides: Floats, count: Ints, exponent: Ints, tile: Floats,
    least: Floats, node: Floats, listed: Ints,
    path: Floats, path_exponent: Ints, best: Floats, best_exponent: Ints,
) -> int:  # fmt: skip
    """Find the best tiling of a GEMM; returns how many tiles were looked at.

    node: room for BOUND, BYTES and LEAST of every candidate, (levels, 3, candidates); listed: room for
    the candidates that can still win at the level whose tiles are distributed, (candidates,).
    """
    levels, dealt, looked = problem.levels, problem.dealt, 0
    least_dealt = np.inf  # time of any tile that is distributed, whatever is outside
    if dealt >= 0:
        looked = count[dealt] if problem.closed else 0
        least_dealt = _least_times_alone(problem, bandwidth, dealt, count, tile, node, listed)
    least_accessed = _least_accesses(problem, count, tile)
    level, followed, is_new = levels - 1, 0, True
    while level < levels:
        if level == 0:
            looked += count[0]
            chosen, within = _choose_innermost(
                problem, bandwidth, sides, count, exponent, tile, path, path_exponent
            )
            if problem.closed and dealt == 1 and path[1, K] == tile[1, K, followed]:
                least_dealt = _learn_inside(1, followed, within, count, node, listed)
            if path[0, TIME] <= best[0, TIME] and chosen >= 0:
                step(problem, sides, 0, chosen, exponent, path, path_exponent)
                if precedes(levels, path, best):
                    adopt(levels, path, path_exponent, best, best_exponent)
            level, is_new = 1, False
            continue
        if is_new:
            if level == dealt and problem.closed:
                _drop_slower(level, best[0, TIME], count, node, listed)
            looked += count[level]
            _bound_level(
                problem, bandwidth, sides, level, count, exponent, tile, least, node, listed,
                path, path_exponent, least_accessed, least_dealt,
            )  # fmt: skip
        chosen, bound, moved = _next_tile(level, dealt, count, node, listed)
        path[level, MOVED] = moved
        shortest = best[0, TIME]
        if chosen < 0 or bound > shortest or (bound == shortest and moves_more(levels, level, path, best)):
            level, is_new = level + 1, False
            continue
        node[level, BOUND, chosen] = np.nan  # followed: never chosen again, even where all are infinite
        if level == dealt:
            followed = chosen
        elif (
            problem.closed and level > dealt
            and least_dealt >= shortest  # more is known by now of what is inside
            and (least_dealt > shortest or moves_more(levels, level, path, best))
        ):  # fmt: skip
            continue
        step(problem, sides, level, chosen, exponent, path, path_exponent)
        serving = level_time(moved, bandwidth[problem.at + level + 1], path[level + 1, IDLE])
        path[level, TIME] = max(max(path[level + 1, TIME], path[level, COMPUTE]), serving)
        level, is_new = level - 1, True
    return looked


@kernel
def _search_each(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, layout: Layout,
    node: Floats, listed: Ints, out: Tilings,
) -> None:  # fmt: skip
    """Find the best tiling of every GEMM, one after the other in the same room, and write it to `out`."""
    for g in range(gemms.m.size):
        problem = lay_gemm(gemms, hierarchies, sets, levels, g, layout)
        for level in range(levels):
            tiles = hierarchies.tiles[gemms.hierarchy[g] * levels + level]
            layout.counts[level] = lay_tiles(
                problem, sets.m, sets.k, sets.n, sets.offset[tiles], sets.offset[tiles + 1],
                1 + g * levels + level, level,
                layout.sides, layout.seen, layout.exponent, layout.tile, layout.least,
            )  # fmt: skip
        looked = _search_one(
            problem, hierarchies.bandwidth, layout.sides, layout.counts, layout.exponent, layout.tile,
            layout.least, node, listed, layout.path, layout.path_exponent, layout.best, layout.best_exponent,
        )  # fmt: skip
        record(problem, layout, looked, g, out)


def search_tilings(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, each on `levels` on-chip levels."""
    out = new_tilings(gemms.m.size, levels)
    layout = new_layout(gemms, hierarchies, sets, levels)
    node = np.empty((levels, 3, layout.tile.shape[2]))
    listed = np.empty(layout.tile.shape[2], dtype=np.int64)
    _search_each(gemms, hierarchies, sets, levels, layout, node, listed, out)
    return out
