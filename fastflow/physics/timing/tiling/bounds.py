"""Lower bounds on the time of a candidate tile, given the path outside of it (6.1, 6.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.tiling.boost import level_time
from fastflow.physics.timing.tiling.candidates import distribute, may_split
from fastflow.physics.timing.tiling.dataflow import register_accesses_per_flop
from fastflow.physics.timing.tiling.search_space import (
    COMPUTE,
    IDLE,
    INVERSE,
    PART,
    PARTS,
    TIME,
    Candidates,
    K,
    M,
    N,
    Path,
    Problem,
    Rates,
)
from fastflow.physics.timing.tiling.traffic import fewest_served

BOUND, BYTES, LEAST, SHARE = 0, 1, 2, 3
"""Of a candidate: lower bound of the time after the path outside [s], bytes moved in to it then, lower bound
of the time after any path [s], and the idle factor inside of it."""
WITHIN, ACCESSES = 4, 5
"""Of an innermost candidate: time [s] of its own bytes, bytes of register accesses."""
_NODE_COLUMNS = 6


class Frontier(NamedTuple):
    """Bounds of the candidates, and the list of candidates to expand."""

    node: Floats  # BOUND to ACCESSES, (levels, 6, candidates)
    listed: Ints  # candidates to expand, (levels, candidates)
    left: Ints  # length of each list, (levels,)


def new_frontier(levels: int, candidates: int) -> Frontier:
    """Return a workspace for so many candidates at each level."""
    return Frontier(
        node=np.empty((levels, _NODE_COLUMNS, candidates)),
        listed=np.empty((levels, candidates), dtype=np.int64),
        left=np.empty(levels, dtype=np.int64),
    )


@lean_kernel
def least_accesses(problem: Problem, sides: Floats, longest: Ints) -> float:
    """Return the fewest bytes of register accesses that any innermost tiles allow.

    longest: exponents of the longest sides of each level's candidates, (levels, 3).
    """
    per_m, per_k = sides[INVERSE, M, longest[0, M]], sides[INVERSE, K, longest[0, K]]
    per_n = sides[INVERSE, N, longest[0, N]]
    return problem.access * register_accesses_per_flop(problem.unit, per_m, per_k, per_n)


@lean_kernel
def _distribute_clipped(
    problem: Problem, sides: Floats, level: int, i: int, exponent: Ints, outside: Ints
) -> tuple[float, float]:
    """Distribute a candidate clipped by the tile outside; exponent: of candidates, outside: of the path.

    Returns the compute time [s], NaN where its split is not allowed there, and the idle factor.
    """
    m = min(exponent[level, M, i], outside[level + 1, M])
    n = min(exponent[level, N, i], outside[level + 1, N])
    part = exponent[level, PART, i]
    if not may_split(problem, sides, m, n, part):
        return np.nan, 1.0
    return distribute(problem, sides, m, n, part)


@lean_kernel
def start_distributed(
    problem: Problem, sides: Floats, candidates: Candidates, node: Floats, path: Path
) -> None:
    """Start the bounds of the candidates of the private level; NaN for those that are left out.

    Clipped tiles of a closed set are left out: there the clipped tile is a candidate too.
    """
    level, count, tile = problem.private, candidates.counts[problem.private], candidates.column
    row = level + 1
    out_m, out_n, outside = path.column[row, M], path.column[row, N], path.column[row, TIME]
    if problem.closed:
        for i in range(count):
            is_whole = (tile[level, M, i] >= out_m) & (tile[level, N, i] >= out_n)
            node[level, BOUND, i] = max(outside, node[level, LEAST, i]) if is_whole else np.nan
            node[level, SHARE, i] = tile[level, IDLE, i]
        return
    for i in range(count):
        compute, idle = tile[level, COMPUTE, i], tile[level, IDLE, i]
        if tile[level, M, i] < out_m or tile[level, N, i] < out_n:
            compute, idle = _distribute_clipped(problem, sides, level, i, candidates.exponent, path.exponent)
        node[level, BOUND, i], node[level, SHARE, i] = max(compute, outside), idle


@lean_kernel
def start_other(
    problem: Problem, level: int, candidates: Candidates, node: Floats, path: Floats, least_distributed: float
) -> None:
    """Start the bounds of the candidates of another level."""
    private, out_m, out_n = problem.private, path[level + 1, M], path[level + 1, N]
    outside, idle = path[level + 1, TIME], path[level + 1, IDLE]
    tile, least = candidates.column, candidates.least
    holds, all_m, all_n = problem.closed and level > private, 0.0, 0.0  # inside of every tile, or
    if private >= 0 and level == private + 1:
        all_m, all_n = least[private, M], least[private, N]  # of those that clip none
    for i in range(candidates.counts[level]):
        is_bound = holds | (
            (max(tile[level, M, i], out_m) <= all_m) & (max(tile[level, N, i], out_n) <= all_n)
        )
        node[level, BOUND, i] = max(outside, least_distributed) if is_bound else outside
        node[level, SHARE, i] = idle


@lean_kernel
def bound_level(
    problem: Problem, rates: Rates, level: int, outer: int, candidates: Candidates, node: Floats,
    path: Floats, least_accessed: float,
) -> None:  # fmt: skip
    """Raise the bounds of a level's candidates, given the path's tile at a level outside.

    Loops run over all candidates without a branch, so that they are vectorised.
    """
    out_m, out_k, out_n, idle_outside = path[outer, M], path[outer, K], path[outer, N], path[outer, IDLE]
    registers, serving = rates.bandwidth[0], rates.bandwidth[level + 1]
    of_registers, of_serving = rates.driven[0], rates.driven[level + 1]
    tile, least, count = candidates.column, candidates.least, candidates.counts[level]
    for i in range(count):
        m, k, n = max(tile[level, M, i], out_m), max(tile[level, K, i], out_k), max(tile[level, N, i], out_n)
        moved = fewest_served(problem.whole, out_m, max(out_k, tile[level, PARTS, i]), out_n, m, k, n)
        within = level_time(least_accessed, registers, of_registers, node[level, SHARE, i])
        within = max(within, level_time(moved, serving, of_serving, idle_outside))
        node[level, BOUND, i] = max(node[level, BOUND, i], within)
        node[level, BYTES, i] = moved
    for inner in range(level):
        least_m, least_k, least_n = least[inner, M], least[inner, K], least[inner, N]
        serving, of_serving = rates.bandwidth[inner + 1], rates.driven[inner + 1]
        for i in range(count):
            m, k = max(tile[level, M, i], out_m), max(tile[level, K, i], out_k)
            n = max(tile[level, N, i], out_n)
            fewest = fewest_served(problem.whole, m, k, n, max(m, least_m), max(k, least_k), max(n, least_n))
            within = level_time(fewest, serving, of_serving, node[level, SHARE, i])
            node[level, BOUND, i] = max(node[level, BOUND, i], within)


@lean_kernel
def least_times(
    problem: Problem, rates: Rates, candidates: Candidates, node: Floats, path: Floats, least_accessed: float
) -> None:
    """Write the lower bounds of the private level's tiles after any path."""
    level, tile = problem.private, candidates.column
    for i in range(candidates.counts[level]):
        node[level, BOUND, i], node[level, SHARE, i] = tile[level, COMPUTE, i], tile[level, IDLE, i]
    if (
        problem.closed
    ):  # an unclipped tile moves at least as many bytes inside of another tile as inside of the GEMM
        bound_level(problem, rates, level, problem.levels, candidates, node, path, least_accessed)
    for i in range(candidates.counts[level]):
        node[level, LEAST, i] = node[level, BOUND, i]
