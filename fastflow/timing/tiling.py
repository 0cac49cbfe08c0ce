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

from fastflow._jit import kernel
from fastflow.tables import Floats, Ints
from fastflow.timing.candidates import (
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
from fastflow.timing.dataflow import register_accesses_per_flop
from fastflow.timing.tiles import TileSets
from fastflow.timing.traffic import fewest_served

BOUND, BYTES, LEAST = 0, 1, 2
"""Of a candidate: the least time it can come to after the path outside [s], the bytes moved in to it then,
and the least time it can come to whatever is outside."""


@kernel
def _search_one(
    problem: Problem, bandwidth: Floats, sides: Floats, count: Ints, exponent: Ints, tile: Floats,
    least: Floats, node: Floats, listed: Ints,
    path: Floats, path_exponent: Ints, best: Floats, best_exponent: Ints,
) -> int:  # fmt: skip
    """Find the best tiling of a GEMM; returns how many tiles were looked at.

    One loop for all levels, since every call that takes arrays costs as much as several tiles.

    node: room for BOUND, BYTES and LEAST of every candidate, (levels, 3, candidates); listed: room for
    the candidates that can still win at the level that is dealt out, (candidates,).
    """
    levels, dealt, at, whole = problem.levels, problem.dealt, problem.at, problem.whole
    least_dealt, per_m, per_k, per_n = np.inf, 1.0, 1.0, 1.0
    looked = 0
    for i in range(count[dealt] if dealt >= 0 else 0):
        node[dealt, LEAST, i], listed[i] = tile[dealt, COMPUTE, i], i
        if problem.closed:
            moved = fewest_served(
                whole,
                1.0,
                tile[dealt, PARTS, i],
                1.0,
                tile[dealt, M, i],
                tile[dealt, K, i],
                tile[dealt, N, i],
            )
            node[dealt, LEAST, i] = max(
                tile[dealt, COMPUTE, i], level_time(moved, bandwidth[at + dealt + 1], 1.0)
            )
            looked += 1
        least_dealt = min(least_dealt, node[dealt, LEAST, i])
    for i in range(count[0]):
        per_m, per_k, per_n = (
            min(per_m, tile[0, PER_M, i]),
            min(per_k, tile[0, PER_K, i]),
            min(per_n, tile[0, PER_N, i]),
        )
    registers = bandwidth[at]
    least_accessed = problem.access * register_accesses_per_flop(problem.unit, per_m, per_k, per_n)
    level, followed, is_new = levels - 1, 0, True
    while level < levels:
        out_m, out_k, out_n = path[level + 1, M], path[level + 1, K], path[level + 1, N]
        outside, idle_outside = path[level + 1, TIME], path[level + 1, IDLE]
        serving = bandwidth[at + level + 1]
        if level == 0:
            looked += count[0]
            # what is left to choose is exact
            per_m, per_k, per_n = path[1, PER_M], path[1, PER_K], path[1, PER_N]
            chosen, within = -1, np.inf
            time, moved, accessed, m, k, n = np.inf, np.inf, np.inf, np.inf, np.inf, np.inf
            for i in range(count[0]):
                this_m, this_k, this_n = (
                    max(tile[0, M, i], out_m),
                    max(tile[0, K, i], out_k),
                    max(tile[0, N, i], out_n),
                )
                idle = idle_outside
                this_time = outside
                if dealt == 0:
                    compute, idle = tile[0, COMPUTE, i], tile[0, IDLE, i]
                    if this_m > tile[0, M, i] or this_n > tile[0, N, i]:
                        e_m = min(exponent[0, M, i], path_exponent[1, M])
                        e_n = min(exponent[0, N, i], path_exponent[1, N])
                        if not may_split(problem, sides, e_m, e_n, exponent[0, PART, i]):
                            continue
                        compute, idle = deal(problem, sides, e_m, e_n, exponent[0, PART, i])
                    this_time = max(outside, compute)
                this_moved = fewest_served(
                    whole, out_m, max(out_k, tile[0, PARTS, i]), out_n, this_m, this_k, this_n
                )
                this_accessed = problem.access * register_accesses_per_flop(
                    problem.unit,
                    max(tile[0, PER_M, i], per_m),
                    max(tile[0, PER_K, i], per_k),
                    max(tile[0, PER_N, i], per_n),
                )  # fmt: skip
                this_within = max(
                    level_time(this_moved, serving, idle_outside), level_time(this_accessed, registers, idle)
                )
                within, this_time = min(within, this_within), max(this_time, this_within)
                if this_time > time:
                    continue
                if (
                    this_time < time or this_moved < moved or (this_moved == moved and (
                        this_accessed < accessed or (this_accessed == accessed and (
                            this_m < m or (this_m == m and (this_k < k or (this_k == k and this_n < n)))
                        ))
                    ))
                ):  # fmt: skip
                    chosen, time, moved, accessed = i, this_time, this_moved, this_accessed
                    m, k, n = this_m, this_k, this_n
            level, is_new = 1, False
            if problem.closed and dealt == 1 and out_k == tile[1, K, followed]:
                # the same inside of this tile wherever it is
                node[1, LEAST, followed] = max(node[1, LEAST, followed], within)
                least_dealt = np.inf
                for row in range(count[1]):
                    least_dealt = min(least_dealt, node[1, LEAST, listed[row]])
            if time <= best[0, TIME] and chosen >= 0:
                step(problem, sides, 0, chosen, exponent, path, path_exponent)
                path[0, TIME], path[0, MOVED], path[0, ACCESSED] = time, moved, accessed
                if precedes(levels, path, best):
                    adopt(levels, path, path_exponent, best, best_exponent)
            continue
        if is_new:
            if level == dealt and problem.closed:
                # any other tile clips to one that is here, or takes longer than the best in any place
                left = 0
                for i in listed[: count[level]]:
                    if node[level, LEAST, i] <= best[0, TIME]:
                        listed[left] = i
                        left += 1
                count[level] = left
            looked += count[level]
            for row in range(count[level]):
                i = listed[row] if level == dealt else row
                m = max(tile[level, M, i], out_m)
                k = max(tile[level, K, i], out_k)
                n = max(tile[level, N, i], out_n)
                idle = idle_outside
                bound = outside
                if level == dealt:
                    compute, idle = tile[level, COMPUTE, i], tile[level, IDLE, i]
                    if m > tile[level, M, i] or n > tile[level, N, i]:
                        e_m = min(exponent[level, M, i], path_exponent[level + 1, M])
                        e_n = min(exponent[level, N, i], path_exponent[level + 1, N])
                        part = exponent[level, PART, i]
                        if problem.closed or not may_split(problem, sides, e_m, e_n, part):
                            node[level, BOUND, i] = np.inf
                            continue
                        compute, idle = deal(problem, sides, e_m, e_n, part)
                    bound = max(bound, compute)
                elif problem.closed or (level == dealt + 1 and m <= least[dealt, M] and n <= least[dealt, N]):
                    bound = max(bound, least_dealt)
                moved = fewest_served(whole, out_m, max(out_k, tile[level, PARTS, i]), out_n, m, k, n)
                bound = max(bound, level_time(moved, serving, idle_outside))
                bound = max(bound, level_time(least_accessed, registers, idle))
                for inner in range(level):
                    fewest = fewest_served(
                        whole,
                        m,
                        k,
                        n,
                        max(m, least[inner, M]),
                        max(k, least[inner, K]),
                        max(n, least[inner, N]),
                    )
                    idle_there = idle if inner < dealt else 1.0
                    bound = max(bound, level_time(fewest, bandwidth[at + inner + 1], idle_there))
                node[level, BOUND, i], node[level, BYTES, i] = bound, moved
        chosen, bound, moved = -1, np.inf, np.inf
        for row in range(count[level]):
            i = listed[row] if level == dealt else row
            if node[level, BOUND, i] < bound or (
                node[level, BOUND, i] == bound and node[level, BYTES, i] < moved
            ):
                chosen, bound, moved = i, node[level, BOUND, i], node[level, BYTES, i]
        path[level, MOVED] = moved
        if (
            chosen < 0
            or bound > best[0, TIME]
            or (bound == best[0, TIME] and moves_more(levels, level, path, best))
        ):
            level, is_new = level + 1, False
            continue
        node[level, BOUND, chosen] = np.inf
        if level == dealt:
            followed = chosen
        elif (
            problem.closed and level > dealt
            and least_dealt >= best[0, TIME]  # more is known by now of what is inside
            and (least_dealt > best[0, TIME] or moves_more(levels, level, path, best))
        ):  # fmt: skip
            continue
        step(problem, sides, level, chosen, exponent, path, path_exponent)
        path[level, TIME] = max(max(outside, path[level, COMPUTE]), level_time(moved, serving, idle_outside))
        level, is_new = level - 1, True
    return looked


@kernel
def search(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, each on `levels` on-chip levels."""
    out = new_tilings(gemms.m.size, levels)
    layout = new_layout(gemms, hierarchies, sets, levels)
    node = np.empty((levels, 3, layout.tile.shape[2]))
    listed = np.empty(layout.tile.shape[2], dtype=np.int64)
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
    return out
