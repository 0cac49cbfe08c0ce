"""Brute force over tiles, parts and stationary operands (6.2), to check the search."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Ints
from fastflow.physics.timing.tiling.boost import level_time
from fastflow.physics.timing.tiling.candidates import list_candidates, step
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
    Rates,
    Tilings,
    copy_path,
    is_better,
    make_problem,
    new_layout,
    new_tilings,
    write_tiling,
)
from fastflow.physics.timing.tiling.tile_sets import TileSets
from fastflow.physics.timing.tiling.traffic import A_STATIONARY, OPERANDS, served


@lean_kernel
def _try_innermost(problem: Problem, rates: Rates, layout: Layout) -> int:
    """Try every innermost tile with each stationary operand on the path outside; returns their number."""
    sides, exponent, tile = layout.sides, layout.candidates.exponent, layout.candidates.column
    path, best = layout.path.column, layout.best.column
    levels, tried = problem.levels, 0
    out_m, out_k, out_n = path[1, M], path[1, K], path[1, N]
    serving, of_serving = rates.bandwidth[1], rates.driven[1]
    per_m, per_k, per_n = path[1, PER_M], path[1, PER_K], path[1, PER_N]
    outside, idle, passes = path[1, TIME], path[1, IDLE], out_k
    registers, of_registers, shortest = rates.bandwidth[0], rates.driven[0], best[0, TIME]
    behind = False  # whether the levels outside move more bytes than in the best tiling
    for outer in range(levels - 1, 0, -1):
        if path[outer, MOVED] != best[outer, MOVED]:
            behind = path[outer, MOVED] > best[outer, MOVED]
            break
    for i in range(layout.candidates.counts[0]):
        k = max(tile[0, K, i], out_k)
        if problem.private == 0:
            if not step(problem, sides, 0, i, exponent, layout.path):
                continue
            outside, idle = max(path[1, TIME], path[0, COMPUTE]), path[0, IDLE]
            passes = max(out_k, path[0, PARTS])
            k = max(k, passes)
        m, n = max(tile[0, M, i], out_m), max(tile[0, N, i], out_n)
        accessed = problem.access * register_accesses_per_flop(
            problem.unit,
            max(tile[0, PER_M, i], per_m), max(tile[0, PER_K, i], per_k), max(tile[0, PER_N, i], per_n),
        )  # fmt: skip
        inside = max(outside, level_time(accessed, registers, of_registers, idle))
        tried += len(OPERANDS)
        for stationary in range(len(OPERANDS)):
            moved = served(stationary, problem.whole, out_m, passes, out_n, m, k, n)
            time = max(inside, level_time(moved, serving, of_serving, idle))
            if time > shortest or (behind and time == shortest):
                continue
            step(problem, sides, 0, i, exponent, layout.path)
            path[0, TIME], path[0, MOVED], path[0, ACCESSED] = time, moved, accessed
            if is_better(levels, path, best):
                copy_path(levels, layout.path, layout.best)
                behind, shortest = False, time
    return tried


@kernel
def _try_all(problem: Problem, rates: Rates, layout: Layout, turn: Ints) -> int:
    """Try every tiling of a GEMM; returns their number.

    turn: workspace for the candidate and the stationary operand of each level except the innermost, (levels,
    2).
    """
    sides, exponent, count = layout.sides, layout.candidates.exponent, layout.candidates.counts
    path, levels, private, tried = layout.path.column, problem.levels, problem.private, 0
    level = levels - 1
    turn[level, 0], turn[level, 1] = 0, -1
    while level < levels:
        out_m, out_k, out_n = path[level + 1, M], path[level + 1, K], path[level + 1, N]
        serving, of_serving = rates.bandwidth[level + 1], rates.driven[level + 1]
        if level > 0:
            turn[level, 1] += 1
            if turn[level, 1] == len(OPERANDS):
                turn[level, 0], turn[level, 1] = turn[level, 0] + 1, 0
            i, stationary = turn[level, 0], turn[level, 1]
            if i == count[level]:
                level += 1
                continue
            if stationary == A_STATIONARY and not step(problem, sides, level, i, exponent, layout.path):
                turn[level, 0], turn[level, 1] = i + 1, -1
                continue
            passes = max(out_k, path[level, PARTS]) if level == private else out_k
            m, k, n = path[level, M], path[level, K], path[level, N]
            moved = served(stationary, problem.whole, out_m, passes, out_n, m, k, n)
            outside = max(path[level + 1, TIME], path[level, COMPUTE])
            within = level_time(moved, serving, of_serving, path[level, IDLE])
            path[level, MOVED], path[level, TIME] = moved, max(outside, within)
            level -= 1
            turn[level, 0], turn[level, 1] = 0, -1
            continue
        tried += _try_innermost(problem, rates, layout)
        level += 1
    return tried


@kernel
def _try_every_gemm(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, layout: Layout, turn: Ints, out: Tilings
) -> None:
    """Try all tilings of every GEMM, one after the other in the same workspace; write the best to `out`."""
    levels = len(turn)
    for g in range(gemms.m.size):
        problem = make_problem(gemms, hierarchies, sets, levels, g, layout)
        for level in range(levels):
            tiles = hierarchies.tiles[gemms.hierarchy[g] * levels + level]
            list_candidates(problem, sets, tiles, 0, level, False, layout)
        offset = gemms.hierarchy[g] * (levels + 1)
        rates = Rates(
            hierarchies.bandwidth[offset : offset + levels + 1],
            hierarchies.driven[offset : offset + levels + 1],
        )
        write_tiling(problem, layout, _try_all(problem, rates, layout, turn), g, out)


def search_all(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Tilings:
    """Return the best of all tilings of every GEMM, each on `levels` on-chip levels."""
    out, turn = new_tilings(gemms.m.size, levels), np.empty((levels, 2), dtype=np.int64)
    _try_every_gemm(gemms, hierarchies, sets, new_layout(gemms, hierarchies, sets, levels), turn, out)
    return out
